#include <algorithm>
#include <cmath>

#include "common/base/check.h"
#include "common/base/isa.h"
#include "common/base/philox.h"
#include "tensor/cpu/by_dtype.h"
#include "tensor/kernels.h"

namespace rubato {
namespace {

constexpr int kBlocks = 16;  // blocks of four random words that are drawn side by side

// DrawFour of common/base/philox.h at kBlocks counters from `first` on: words[l + kBlocks * w] is
// word w of counter first + l. Loops over counters are innermost: by AVX-512 a quarter faster than
// a loop around DrawFour.
RUBATO_ALWAYS_INLINE void DrawBlocks(uint64_t key, uint64_t first, uint32_t* words) {
  uint32_t c0[kBlocks], c1[kBlocks], c2[kBlocks], c3[kBlocks];
  for (int l = 0; l < kBlocks; ++l) {
    c0[l] = static_cast<uint32_t>(first + l);
    c1[l] = static_cast<uint32_t>((first + l) >> 32);
    c2[l] = c3[l] = 0;
  }
  uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < philox::kRounds; ++round) {
    for (int l = 0; l < kBlocks; ++l) philox::Round(k0, k1, c0[l], c1[l], c2[l], c3[l]);
    k0 += philox::kWeyl0;
    k1 += philox::kWeyl1;
  }
  for (int l = 0; l < kBlocks; ++l) words[l] = c0[l];
  for (int l = 0; l < kBlocks; ++l) words[l + kBlocks] = c1[l];
  for (int l = 0; l < kBlocks; ++l) words[l + 2 * kBlocks] = c2[l];
  for (int l = 0; l < kBlocks; ++l) words[l + 3 * kBlocks] = c3[l];
}

template <typename T>
struct DropoutKernel {
  static RUBATO_ALWAYS_INLINE void Run(uint64_t key, uint32_t threshold, T scale,
                                       const T* __restrict x, T* __restrict y, int64_t n) {
    uint32_t words[4 * kBlocks];
    for (int64_t i = 0; i < n; i += 4 * kBlocks) {
      DrawBlocks(key, static_cast<uint64_t>(i) / 4, words);
      T factors[4 * kBlocks];
      for (int l = 0; l < kBlocks; ++l) {
        for (int w = 0; w < 4; ++w) {
          factors[4 * l + w] = words[l + kBlocks * w] >= threshold ? scale : T{0};
        }
      }
      if (n - i >= 4 * kBlocks) {
        for (int64_t j = 0; j < 4 * kBlocks; ++j) y[i + j] = x[i + j] * factors[j];
      } else {
        for (int64_t j = 0; i + j < n; ++j) y[i + j] = x[i + j] * factors[j];
      }
    }
  }
};

}  // namespace

void Dropout(uint64_t key, double p, const ConstTensorRef& x, const TensorRef& y) {
  RUBATO_CHECK(x.size() == y.size() && p >= 0 && p < 1);
  const uint32_t threshold =
      static_cast<uint32_t>(std::min(std::nearbyint(p * 0x1p32), 0x1p32 - 1));
  ByDType(x, [&](auto zero) {
    using T = decltype(zero);
    Dispatch<DropoutKernel<T>>(key, threshold, static_cast<T>(1 / (1 - p)), x.values<T>().data(),
                               y.values<T>().data(), x.size());
  });
}

}  // namespace rubato
