#include "tensor/cuda/emulated_queue.h"

#include <cstdio>
#include <cstring>
#include <string>
#include <utility>

#include "tensor/cpu/gemm.h"
#include "tensor/cuda/numbers.h"
#include "tensor/cuda/plain_attention.h"
#include "tensor/cuda/plain_convolution.h"
#include "tensor/cuda/plain_product.h"
#include "tensor/cuda/product_contract.h"

namespace rubato {
namespace {

// A factor's TF32: to nearest, ties to even.
float ToTf32(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  if ((bits & 0x7f800000u) == 0x7f800000u) return value;
  bits = (bits + 0xfffu + ((bits >> 13) & 1u)) & ~0x1fffu;
  std::memcpy(&value, &bits, sizeof bits);
  return value;
}

// The i-th matrix, (rows, columns) as stored, without gaps.
template <typename T>
std::vector<Wide<T>> Gather(const Matrix& matrix, int64_t i, int64_t rows, int64_t columns,
                            ProductPrecision precision) {
  std::vector<Wide<T>> values(rows * columns);
  const T* from = static_cast<const T*>(matrix.values) + i * matrix.distance;
  for (int64_t r = 0; r < rows; ++r, from += matrix.pitch) {
    for (int64_t c = 0; c < columns; ++c) {
      values[r * columns + c] = Widen(from[c]);
      if constexpr (sizeof(T) == sizeof(float)) {
        if (precision == ProductPrecision::kTf32) {
          values[r * columns + c] = ToTf32(values[r * columns + c]);
        }
      }
    }
  }
  return values;
}

template <typename T, typename C>
void MultiplyAs(const Product& p, ProductPrecision precision) {
  using A = Wide<T>;
  const bool ta = p.transpose_a == Transpose::kYes, tb = p.transpose_b == Transpose::kYes;
  std::vector<A> c(p.m * p.n);
  for (int64_t i = 0; i < p.count; ++i) {
    const std::vector<A> a = Gather<T>(p.a, i, ta ? p.k : p.m, ta ? p.m : p.k, precision);
    const std::vector<A> b = Gather<T>(p.b, i, tb ? p.n : p.k, tb ? p.k : p.n, precision);
    Gemm(p.transpose_a, p.transpose_b, p.m, p.n, p.k, static_cast<A>(p.alpha), a.data(),
         ta ? p.m : p.k, b.data(), tb ? p.k : p.n, A(0), c.data(), p.n);
    C* to = static_cast<C*>(const_cast<void*>(p.c.values)) + i * p.c.distance;
    for (int64_t row = 0; row < p.m; ++row, to += p.c.pitch) {
      for (int64_t column = 0; column < p.n; ++column) {
        A value = c[row * p.n + column];
        if (p.beta != 0) value += static_cast<A>(p.beta) * static_cast<A>(Widen(to[column]));
        if (p.bias != nullptr)
          value += static_cast<A>(Widen(static_cast<const C*>(p.bias)[column]));
        to[column] = static_cast<C>(value);
      }
    }
  }
}

}  // namespace

void EmulatedQueue::Multiply(const Product& product) {
  MultiplyByLibrary(*this, product, [this](const Product& p) { return AskLibrary(p); });
}

bool EmulatedQueue::AskLibrary(const Product& product) {
  const absl::Status allowed = CheckContract(product);
  if (!allowed.ok()) std::fprintf(stderr, "%s\n", std::string(allowed.message()).c_str());
  RUBATO_CHECK(allowed.ok());
  if (library_ == EmulatedLibrary::kNothing) return false;
  if (library_ == EmulatedLibrary::kNoBias && product.bias != nullptr) return false;
  Give(Stream::kCompute, [product, precision = precision_] {
    ByType<EmulatedQueue>(product.a.dtype, [&](auto zero) {
      using T = decltype(zero);
      if (product.c.dtype == DTypeOf<T>()) {
        MultiplyAs<T, T>(product, precision);
      } else {
        MultiplyAs<T, float>(product, precision);
      }
    });
  });
  return true;
}

int64_t EmulatedQueue::AttentionWorkspace(const Attention& attention, int64_t n) {
  if (attention_ == AttentionForm::kProducts || !IsHalf(attention.dtype)) return -1;
  has_attention_ = true;
  return PlainAttentionWorkspace(attention, n);
}

void EmulatedQueue::Attend(const FusedAttention& fused) {
  CheckFused(fused);
  Give(Stream::kCompute, [fused] {
    if (fused.attention.dtype == DType::kBFloat16) {
      AttendPlainly<BFloat16>(fused);
    } else {
      AttendPlainly<Float16>(fused);
    }
  });
}

int64_t EmulatedQueue::ConvolutionWorkspace(const Convolution& convolution, DType dtype,
                                            int64_t n) {
  const bool is_fused =
      convolution_ == ConvolutionForm::kFused && IsHalf(dtype) && IsConvolvedPlainly(convolution);
  if (!is_fused) return -1;
  has_convolutions_ = true;
  return PlainConvolutionWorkspace(n);
}

void EmulatedQueue::Convolve(const FusedConvolution& fused) {
  CheckFused(fused);
  Give(Stream::kCompute, [fused] {
    if (fused.dtype == DType::kBFloat16) {
      ConvolvePlainly<BFloat16>(fused);
    } else {
      ConvolvePlainly<Float16>(fused);
    }
  });
}

void EmulatedQueue::Give(Stream stream, std::function<void()> work) {
  if (is_recording_) {
    recordings_.back().push_back({stream, std::move(work), stream});
    return;
  }
  const int s = static_cast<int>(stream);
  ++given_[s];
  streams_[s].push_back({std::move(work)});
}

void EmulatedQueue::Order(Stream waiting, Stream other) {
  if (is_recording_) {
    recordings_.back().push_back({waiting, nullptr, other});
    return;
  }
  const int s = static_cast<int>(waiting), o = static_cast<int>(other);
  ++given_[s];
  streams_[s].push_back({nullptr, o, given_[o]});
}

void EmulatedQueue::Run(const std::function<bool()>& until) {
  while (!until()) {
    int ready[kStreams], count = 0;
    bool is_empty = true;
    for (int s = 0; s < kStreams; ++s) {
      if (streams_[s].empty()) continue;
      is_empty = false;
      if (IsReady(streams_[s].front())) ready[count++] = s;
    }
    if (is_empty) return;
    RUBATO_CHECK(count > 0);
    const int s = ready[random_.Below(count)];
    const Piece piece = std::move(streams_[s].front());
    streams_[s].pop_front();
    if (piece.work) piece.work();
    ++done_[s];
  }
}

void EmulatedQueue::BeginRecording() {
  RUBATO_CHECK(!is_recording_);
  recordings_.emplace_back();
  is_recording_ = true;
}

int EmulatedQueue::EndRecording() {
  is_recording_ = false;
  return static_cast<int>(recordings_.size()) - 1;
}

void EmulatedQueue::Replay(int recording) {
  // A whole: nothing of it begins before what kCompute has been given, nor ends after.
  const auto others = {Stream::kUpload, Stream::kDownload};
  for (const Stream other : others) Order(other, Stream::kCompute);
  for (const Recorded& recorded : recordings_[recording]) {
    if (recorded.work) {
      Give(recorded.stream, recorded.work);
    } else {
      Order(recorded.stream, recorded.other);
    }
  }
  for (const Stream other : others) Order(Stream::kCompute, other);
}

}  // namespace rubato
