#include "worker/step/residuals.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "common/base/check.h"
#include "common/base/isa.h"
#include "common/base/kernels.h"
#include "common/frames/top_k.h"

namespace rubato {
namespace {

struct Accumulate {
  static RUBATO_ALWAYS_INLINE void Run(float weight, const float* gradient, float* v, size_t n) {
    RUBATO_ELEMENTWISE
    for (size_t i = 0; i < n; ++i) v[i] = v[i] + weight * gradient[i];
  }
};

template <bool nesterov>
struct AccumulateMomentum {
  static RUBATO_ALWAYS_INLINE void Run(float momentum, bool first, float weight,
                                       const float* gradient, float* u, float* v, size_t n) {
    const float decay = first ? momentum : 1.0f;
    RUBATO_ELEMENTWISE
    for (size_t i = 0; i < n; ++i) {
      const float g = weight * gradient[i];
      const float next = decay * u[i] + g;
      u[i] = next;
      const float added = first ? next : g;
      v[i] = v[i] + (nesterov ? g + momentum * added : added);
    }
  }
};

// Divides `n` floats at any address.
void Divide(float divisor, char* at, size_t n) {
  if (divisor == 1) return;
  for (; n > 0; --n, at += sizeof(float)) {
    float value;
    std::memcpy(&value, at, sizeof(value));
    value /= divisor;
    std::memcpy(at, &value, sizeof(value));
  }
}

}  // namespace

Residuals::Residuals(int64_t values, Settings settings)
    : settings_(settings), u_(settings.momentum > 0 ? values : 0), v_(values) {}

void Residuals::Take(Range range, absl::Span<const float> gradient, const Step& step) {
  const size_t n = gradient.size();
  RUBATO_CHECK(range.size() == static_cast<int64_t>(n));
  RUBATO_CHECK(range.begin >= 0 && range.end <= static_cast<int64_t>(v_.size()));
  float* const v = v_.data() + range.begin;
  float* const u = u_.data() + range.begin;
  if (u_.empty()) {
    Dispatch<Accumulate>(step.weight, gradient.data(), v, n);
  } else if (settings_.nesterov) {
    Dispatch<AccumulateMomentum<true>>(settings_.momentum, step.first, step.weight, gradient.data(),
                                       u, v, n);
  } else {
    Dispatch<AccumulateMomentum<false>>(settings_.momentum, step.first, step.weight,
                                        gradient.data(), u, v, n);
  }
}

void Residuals::Encode(Range range, absl::Span<const float> gradient, const Step& step, size_t k,
                       char* out) {
  Take(range, gradient, step);
  const absl::Span<float> v = absl::MakeSpan(v_).subspan(range.begin, gradient.size());
  EncodeTopK(v, k, out, &sent_);
  Divide(step.weight, out + sizeof(uint32_t) + k * sizeof(uint32_t), k);
  for (uint32_t i : sent_) {
    v[i] = 0;
    if (!u_.empty()) u_[range.begin + i] = 0;
  }
}

void Residuals::EncodeAll(Range range, absl::Span<const float> gradient, const Step& step,
                          char* out) {
  Take(range, gradient, step);
  const absl::Span<float> v = absl::MakeSpan(v_).subspan(range.begin, gradient.size());
  std::memcpy(out, v.data(), v.size() * sizeof(float));
  Divide(step.weight, out, v.size());
  std::fill(v.begin(), v.end(), 0.0f);
}

double Residuals::DensityAt(double density, double epoch, double warmup) {
  if (epoch >= warmup) return density;
  return std::pow(density, (std::floor(epoch) + 1) / (std::ceil(warmup) + 1));
}

}  // namespace rubato
