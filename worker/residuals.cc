#include "worker/residuals.h"

#include <algorithm>
#include <cmath>

#include "common/check.h"
#include "common/codec/top_k.h"
#include "common/isa.h"
#include "common/kernels.h"

namespace rubato {
namespace {

struct Accumulate {
  static RUBATO_ALWAYS_INLINE void Run(const float* gradient, float* v, size_t n) {
    RUBATO_ELEMENTWISE
    for (size_t i = 0; i < n; ++i) v[i] = v[i] + gradient[i];
  }
};

template <bool nesterov>
struct AccumulateMomentum {
  static RUBATO_ALWAYS_INLINE void Run(float momentum, bool first, const float* gradient, float* u,
                                       float* v, size_t n) {
    const float decay = first ? momentum : 1.0f;
    RUBATO_ELEMENTWISE
    for (size_t i = 0; i < n; ++i) {
      const float next = decay * u[i] + gradient[i];
      u[i] = next;
      const float added = first ? next : gradient[i];
      v[i] = v[i] + (nesterov ? gradient[i] + momentum * added : added);
    }
  }
};

}  // namespace

Residuals::Residuals(int64_t values, Settings settings)
    : settings_(settings), u_(settings.momentum > 0 ? values : 0), v_(values) {}

void Residuals::Encode(Range range, absl::Span<const float> gradient, bool first, size_t k,
                       char* out) {
  const size_t n = gradient.size();
  RUBATO_CHECK(range.size() == static_cast<int64_t>(n));
  RUBATO_CHECK(range.begin >= 0 && range.end <= static_cast<int64_t>(v_.size()));
  if (n == 0) return EncodeTopK({}, 0, out, &sent_);
  float* const v = &v_[range.begin];
  float* const u = u_.empty() ? nullptr : &u_[range.begin];
  if (u == nullptr) {
    Dispatch<Accumulate>(gradient.data(), v, n);
  } else if (settings_.nesterov) {
    Dispatch<AccumulateMomentum<true>>(settings_.momentum, first, gradient.data(), u, v, n);
  } else {
    Dispatch<AccumulateMomentum<false>>(settings_.momentum, first, gradient.data(), u, v, n);
  }
  EncodeTopK(absl::MakeConstSpan(v, n), k, out, &sent_);
  for (uint32_t i : sent_) {
    v[i] = 0;
    if (u != nullptr) u[i] = 0;
  }
}

size_t Residuals::CountOf(size_t n, double density) {
  if (n == 0) return 0;
  const double count = std::round(static_cast<double>(n) * density);
  return std::clamp<size_t>(static_cast<size_t>(count), 1, n);
}

double Residuals::DensityAt(double density, double epoch, double warmup) {
  if (epoch >= warmup) return density;
  return std::pow(density, (std::floor(epoch) + 1) / (std::ceil(warmup) + 1));
}

}  // namespace rubato
