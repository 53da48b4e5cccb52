// Group norm and batch norm: statistics over sets of planes, weight and bias a channel.
#include <algorithm>
#include <cmath>

#include "common/base/check.h"
#include "common/base/isa.h"
#include "tensor/cpu/by_dtype.h"
#include "tensor/cpu/normalize_rows.h"
#include "tensor/normalization.h"

namespace rubato {
namespace {

// (n, channels, plane), and the planes that share mean and variance: `runs` runs of `run` planes,
// `stride` planes from one to the next.
struct Planes {
  int64_t channels, plane;
  int64_t runs, run, stride;
  int64_t count() const { return runs * run * plane; }
};

// The planes at x share statistics; the first is of channel `channel`.
template <typename T>
struct NormalizePlanesKernel {
  static RUBATO_ALWAYS_INLINE void Run(const Planes* planes, const T* __restrict x,
                                       const T* __restrict weight, const T* __restrict bias, T eps,
                                       T* __restrict y, T* __restrict statistics) {
    const Planes& p = *planes;
    const int64_t length = p.run * p.plane;
    T sum = 0, squares = 0;
    for (int64_t r = 0; r < p.runs; ++r) sum += Sum(x + r * p.stride * p.plane, length);
    const T mean = sum / p.count();
    for (int64_t r = 0; r < p.runs; ++r) {
      squares += SquaresAround(mean, x + r * p.stride * p.plane, length);
    }
    const T inverse = 1 / std::sqrt(squares / p.count() + eps);
    statistics[0] = mean;
    statistics[1] = inverse;
    for (int64_t r = 0; r < p.runs; ++r) {
      for (int64_t c = 0; c < p.run; ++c) {
        const int64_t at = (r * p.stride + c) * p.plane;
        const T factor = weight == nullptr ? inverse : inverse * weight[c];
        ScaleRow(mean, factor, bias == nullptr ? T(0) : bias[c], x + at, y + at, p.plane);
      }
    }
  }
};

template <typename T>
struct NormalizePlanesBackwardKernel {
  // dweight and dbias (run) are added to.
  static RUBATO_ALWAYS_INLINE void Run(const Planes* planes, const T* __restrict x,
                                       const T* __restrict weight, const T* __restrict statistics,
                                       const T* __restrict dy, T* __restrict dx,
                                       T* __restrict dweight, T* __restrict dbias) {
    const Planes& p = *planes;
    const T mean = statistics[0], inverse = statistics[1];
    GradientSums<T> means = {0, 0};  // of the gradient by the normalised values
    for (int64_t r = 0; r < p.runs; ++r) {
      for (int64_t c = 0; c < p.run; ++c) {
        const int64_t at = (r * p.stride + c) * p.plane;
        const GradientSums<T> sums = SumGradient(mean, inverse, x + at, dy + at, p.plane);
        const T w = weight == nullptr ? T(1) : weight[c];
        means.plain += w * sums.plain;
        means.normalized += w * sums.normalized;
        if (weight == nullptr) continue;
        dweight[c] += sums.normalized;
        dbias[c] += sums.plain;
      }
    }
    if (dx == nullptr) return;
    means.plain /= p.count();
    means.normalized /= p.count();
    for (int64_t r = 0; r < p.runs; ++r) {
      for (int64_t c = 0; c < p.run; ++c) {
        const int64_t at = (r * p.stride + c) * p.plane;
        const T factor = weight == nullptr ? inverse : inverse * weight[c];
        BackwardRow(mean, inverse, factor, means, x + at, dy + at, dx + at, p.plane);
      }
    }
  }
};

template <typename T>
const T* At(const ConstTensorRef& tensor, int64_t offset) {
  return tensor.is_null() ? nullptr : tensor.values<T>().data() + offset;
}

template <typename T>
T* At(const TensorRef& tensor, int64_t offset) {
  return tensor.is_null() ? nullptr : tensor.values<T>().data() + offset;
}

void Check(const ConstTensorRef& x, const ConstTensorRef& y, const ConstTensorRef& weight) {
  RUBATO_CHECK(x.shape().size() == 3 && y.size() == x.size());
  RUBATO_CHECK(weight.is_null() || weight.size() == x.dim(1));
}

// Calls visit(planes, offset of the first value, its channel, place of the statistics) for each
// set of planes that share them.
template <typename Visit>
void ForEachGroup(int64_t groups, const ConstTensorRef& x, Visit visit) {
  const int64_t channels = x.dim(1), plane = x.dim(2), each = channels / groups;
  RUBATO_CHECK(channels % groups == 0);
  const Planes planes = {channels, plane, 1, each, 0};
  for (int64_t i = 0; i < x.dim(0) * groups; ++i) {
    visit(planes, i * each * plane, i % groups * each, 2 * i);
  }
}

template <typename Visit>
void ForEachChannel(const ConstTensorRef& x, Visit visit) {
  const int64_t channels = x.dim(1), plane = x.dim(2);
  const Planes planes = {channels, plane, x.dim(0), 1, channels};
  for (int64_t c = 0; c < channels; ++c) visit(planes, c * plane, c, 2 * c);
}

template <typename ForEach>
void Normalize(ForEach for_each, const ConstTensorRef& x, const ConstTensorRef& weight,
               const ConstTensorRef& bias, double eps, const TensorRef& y,
               const TensorRef& statistics) {
  Check(x, y, weight);
  ByDType(x, [&](auto zero) {
    using T = decltype(zero);
    for_each([&](const Planes& planes, int64_t offset, int64_t channel, int64_t place) {
      Dispatch<NormalizePlanesKernel<T>>(&planes, At<T>(x, offset), At<T>(weight, channel),
                                         At<T>(bias, channel), static_cast<T>(eps),
                                         At<T>(y, offset), At<T>(statistics, place));
    });
  });
}

template <typename ForEach>
void NormalizeBackward(ForEach for_each, const ConstTensorRef& x, const ConstTensorRef& weight,
                       const ConstTensorRef& statistics, const ConstTensorRef& dy,
                       const TensorRef& dx, const TensorRef& dweight, const TensorRef& dbias) {
  Check(x, dy, weight);
  ByDType(x, [&](auto zero) {
    using T = decltype(zero);
    for (const TensorRef* sum : {&dweight, &dbias}) {
      if (!sum->is_null()) std::fill(sum->values<T>().begin(), sum->values<T>().end(), T(0));
    }
    for_each([&](const Planes& planes, int64_t offset, int64_t channel, int64_t place) {
      Dispatch<NormalizePlanesBackwardKernel<T>>(
          &planes, At<T>(x, offset), At<T>(weight, channel), At<T>(statistics, place),
          At<T>(dy, offset), At<T>(dx, offset), At<T>(dweight, channel), At<T>(dbias, channel));
    });
  });
}

}  // namespace

void GroupNorm(int64_t groups, const ConstTensorRef& x, const ConstTensorRef& weight,
               const ConstTensorRef& bias, double eps, const TensorRef& y,
               const TensorRef& statistics) {
  RUBATO_CHECK(statistics.size() == 2 * x.dim(0) * groups);
  Normalize([&](auto visit) { ForEachGroup(groups, x, visit); }, x, weight, bias, eps, y,
            statistics);
}

void GroupNormBackward(int64_t groups, const ConstTensorRef& x, const ConstTensorRef& weight,
                       const ConstTensorRef& statistics, const ConstTensorRef& dy,
                       const TensorRef& dx, const TensorRef& dweight, const TensorRef& dbias) {
  NormalizeBackward([&](auto visit) { ForEachGroup(groups, x, visit); }, x, weight, statistics, dy,
                    dx, dweight, dbias);
}

void BatchNorm(const ConstTensorRef& x, const ConstTensorRef& weight, const ConstTensorRef& bias,
               double eps, const TensorRef& y, const TensorRef& statistics) {
  RUBATO_CHECK(statistics.size() == 2 * x.dim(1));
  Normalize([&](auto visit) { ForEachChannel(x, visit); }, x, weight, bias, eps, y, statistics);
}

void BatchNormBackward(const ConstTensorRef& x, const ConstTensorRef& weight,
                       const ConstTensorRef& statistics, const ConstTensorRef& dy,
                       const TensorRef& dx, const TensorRef& dweight, const TensorRef& dbias) {
  NormalizeBackward([&](auto visit) { ForEachChannel(x, visit); }, x, weight, statistics, dy, dx,
                    dweight, dbias);
}

void BatchNormByStatistics(const ConstTensorRef& x, const ConstTensorRef& weight,
                           const ConstTensorRef& bias, const ConstTensorRef& mean,
                           const ConstTensorRef& variance, double eps, const TensorRef& y) {
  Check(x, y, weight);
  ByDType(x, [&](auto zero) {
    using T = decltype(zero);
    const int64_t plane = x.dim(2);
    for (int64_t i = 0; i < x.dim(0) * x.dim(1); ++i) {
      const int64_t c = i % x.dim(1);
      const T inverse = 1 / std::sqrt(*At<T>(variance, c) + static_cast<T>(eps));
      ScaleRow(*At<T>(mean, c), weight.is_null() ? inverse : inverse * *At<T>(weight, c),
               bias.is_null() ? T(0) : *At<T>(bias, c), At<T>(x, i * plane), At<T>(y, i * plane),
               plane);
    }
  });
}

void BatchAverages(const ConstTensorRef& statistics, int64_t n, int64_t values, double eps,
                   const TensorRef& averages) {
  RUBATO_CHECK(statistics.size() == averages.size());
  ByDType(statistics, [&](auto zero) {
    using T = decltype(zero);
    const absl::Span<const T> saved = statistics.values<T>();
    const absl::Span<T> out = averages.values<T>();
    const int64_t channels = averages.size() / 2;
    const double count = static_cast<double>(values);
    for (int64_t c = 0; c < channels; ++c) {
      const double inverse = saved[2 * c + 1];
      const double variance = 1 / (inverse * inverse) - eps;
      out[c] = static_cast<T>(n * static_cast<double>(saved[2 * c]));
      out[channels + c] = static_cast<T>(count > 1 ? n * (variance * count / (count - 1)) : 0);
    }
  });
}

}  // namespace rubato
