#include "tensor/attention.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "common/base/check.h"
#include "common/base/isa.h"
#include "tensor/cpu/by_dtype.h"
#include "tensor/cpu/exp.h"
#include "tensor/cpu/gemm.h"
#include "tensor/cpu/lanes.h"
#include "tensor/cpu/normalize_rows.h"

namespace rubato {
namespace {

// Each row of scores becomes its softmax; row i of a causal one has i + 1 values, then zeros.
template <typename T>
struct SoftmaxRowsKernel {
  static RUBATO_ALWAYS_INLINE void Run(bool causal, int64_t places, T* __restrict scores) {
    for (int64_t i = 0; i < places; ++i, scores += places) {
      const int64_t seen = causal ? i + 1 : places;
      // What is not seen, up to a whole number of lanes, has the exponential 0.
      const int64_t whole =
          std::min((seen + kLanes - 1) / kLanes * kLanes, places / kLanes * kLanes);
      for (int64_t j = seen; j < whole; ++j) scores[j] = -std::numeric_limits<T>::infinity();
      T lanes[kLanes];
      for (int64_t l = 0; l < kLanes; ++l) lanes[l] = -std::numeric_limits<T>::infinity();
      for (int64_t j = 0; j < whole; j += kLanes) {
        for (int64_t l = 0; l < kLanes; ++l) {
          lanes[l] = scores[j + l] > lanes[l] ? scores[j + l] : lanes[l];
        }
      }
      for (int64_t j = whole; j < seen; ++j) {
        lanes[j - whole] = scores[j] > lanes[j - whole] ? scores[j] : lanes[j - whole];
      }
      T greatest = lanes[0];
      for (int64_t l = 1; l < kLanes; ++l) greatest = lanes[l] > greatest ? lanes[l] : greatest;
      for (int64_t l = 0; l < kLanes; ++l) lanes[l] = 0;
      for (int64_t j = 0; j < whole; j += kLanes) {
        for (int64_t l = 0; l < kLanes; ++l) {
          scores[j + l] = Exp(scores[j + l] - greatest);
          lanes[l] += scores[j + l];
        }
      }
      for (int64_t j = whole; j < seen; ++j) {
        scores[j] = Exp(scores[j] - greatest);
        lanes[j - whole] += scores[j];
      }
      const T factor = 1 / TreeSum(lanes);
      for (int64_t j = 0; j < std::max(whole, seen); ++j) scores[j] *= factor;
      for (int64_t j = std::max(whole, seen); j < places; ++j) scores[j] = 0;
    }
  }
};

// gradient = probabilities * (gradient - sum of gradient * probabilities) * factor, row by row.
template <typename T>
struct SoftmaxRowsBackwardKernel {
  static RUBATO_ALWAYS_INLINE void Run(int64_t places, T factor, const T* __restrict probabilities,
                                       T* __restrict gradient) {
    for (int64_t i = 0; i < places; ++i, probabilities += places, gradient += places) {
      const T dot = LaneSum<T>(
          places, [=](int64_t j)
                      __attribute__((always_inline)) { return gradient[j] * probabilities[j]; });
      for (int64_t j = 0; j < places; ++j) {
        gradient[j] = probabilities[j] * (gradient[j] - dot) * factor;
      }
    }
  }
};

struct Heads {
  Heads(int64_t heads, const ConstTensorRef& x)
      : n(x.dim(0)), places(x.dim(1)), channels(x.dim(2) / 3), size(channels / heads) {
    RUBATO_CHECK(x.shape().size() == 3 && x.dim(2) == 3 * heads * size);
  }
  int64_t n, places, channels, size;
};

// Calls part(begin, end) for the places at once or, where each sees only those before it, in two
// halves: so a quarter of the products, of what nobody sees, is left out.
template <typename Part>
void ForEachPart(bool causal, int64_t places, Part part) {
  constexpr int64_t kMin = 32;  // below, smaller products cost more than they spare
  const int64_t cut = causal && places >= kMin ? places / 2 / kLanes * kLanes : 0;
  if (cut > 0) part(0, cut);
  part(cut, places);
}

template <typename T>
struct AddRowKernel {
  static RUBATO_ALWAYS_INLINE void Run(const T* __restrict x, const T* __restrict bias,
                                       int64_t rows, int64_t columns, T* __restrict y) {
    for (int64_t i = 0; i < rows; ++i, x += columns, y += columns) {
      for (int64_t j = 0; j < columns; ++j) y[j] = x[j] + bias[j];
    }
  }
};

template <typename T>
struct AddKernel {
  static RUBATO_ALWAYS_INLINE void Run(const T* x, const T* y, T* z, int64_t n) {
    for (int64_t i = 0; i < n; ++i) z[i] = x[i] + y[i];
  }
};

}  // namespace

void ScaledDotProductAttention(int64_t heads, bool causal, const ConstTensorRef& x,
                               const TensorRef& y, const TensorRef& probabilities) {
  const Heads h(heads, x);
  RUBATO_CHECK(probabilities.size() == h.n * heads * h.places * h.places);
  RUBATO_CHECK(y.size() == h.n * h.places * h.channels);
  ByDType(x, [&](auto zero) {
    using T = decltype(zero);
    const T scale = 1 / std::sqrt(static_cast<T>(h.size));
    const int64_t row = 3 * h.channels, t = h.places;
    T* scores = probabilities.values<T>().data();
    for (int64_t i = 0; i < h.n; ++i) {
      const T* example = x.values<T>().data() + i * t * row;
      for (int64_t head = 0; head < heads; ++head, scores += t * t) {
        const T* q = example + head * h.size;
        const T* k = q + h.channels;
        const T* v = k + h.channels;
        T* out = y.values<T>().data() + i * t * h.channels + head * h.size;
        ForEachPart(causal, t, [&](int64_t begin, int64_t end) {
          Gemm(Transpose::kNo, Transpose::kYes, end - begin, end, h.size, scale, q + begin * row,
               row, k, row, T(0), scores + begin * t, t);
        });
        Dispatch<SoftmaxRowsKernel<T>>(causal, t, scores);
        ForEachPart(causal, t, [&](int64_t begin, int64_t end) {
          Gemm(Transpose::kNo, Transpose::kNo, end - begin, h.size, end, T(1), scores + begin * t,
               t, v, row, T(0), out + begin * h.channels, h.channels);
        });
      }
    }
  });
}

void ScaledDotProductAttentionBackward(int64_t heads, bool causal, const ConstTensorRef& x,
                                       const ConstTensorRef& probabilities,
                                       const ConstTensorRef& dy, const TensorRef& dx,
                                       const TensorRef& scratch) {
  const Heads h(heads, x);
  RUBATO_CHECK(scratch.size() >= h.places * h.places && dx.size() == x.size());
  ByDType(x, [&](auto zero) {
    using T = decltype(zero);
    const T scale = 1 / std::sqrt(static_cast<T>(h.size));
    const int64_t row = 3 * h.channels, t = h.places;
    const T* p = probabilities.values<T>().data();
    T* ds = scratch.values<T>().data();
    std::fill(ds, ds + t * t, T(0));  // what no part covers stays so
    for (int64_t i = 0; i < h.n; ++i) {
      for (int64_t head = 0; head < heads; ++head, p += t * t) {
        const int64_t at = i * t * row + head * h.size;
        const T* q = x.values<T>().data() + at;
        const T* k = q + h.channels;
        const T* v = k + h.channels;
        T* dq = dx.values<T>().data() + at;
        T* dk = dq + h.channels;
        T* dv = dk + h.channels;
        const T* dout = dy.values<T>().data() + i * t * h.channels + head * h.size;
        // Queries [begin, end) see keys [0, end); keys [begin, end) are seen by queries from begin.
        ForEachPart(causal, t, [&](int64_t begin, int64_t end) {
          Gemm(Transpose::kNo, Transpose::kYes, end - begin, end, h.size, T(1),
               dout + begin * h.channels, h.channels, v, row, T(0), ds + begin * t, t);
        });
        Dispatch<SoftmaxRowsBackwardKernel<T>>(t, scale, p, ds);
        ForEachPart(causal, t, [&](int64_t begin, int64_t end) {
          const int64_t keys = end - begin, queries = t - begin;
          Gemm(Transpose::kNo, Transpose::kNo, keys, h.size, end, T(1), ds + begin * t, t, k, row,
               T(0), dq + begin * row, row);
          Gemm(Transpose::kYes, Transpose::kNo, keys, h.size, queries, T(1), p + begin * t + begin,
               t, dout + begin * h.channels, h.channels, T(0), dv + begin * row, row);
          Gemm(Transpose::kYes, Transpose::kNo, keys, h.size, queries, T(1), ds + begin * t + begin,
               t, q + begin * row, row, T(0), dk + begin * row, row);
        });
      }
    }
  });
}

void Embed(const ConstTensorRef& x, const ConstTensorRef& weight, const TensorRef& y) {
  RUBATO_CHECK(weight.shape().size() == 2 && y.size() == x.size() * weight.dim(1));
  ByDType(x, [&](auto zero) {
    using T = decltype(zero);
    const int64_t channels = weight.dim(1);
    T* out = y.values<T>().data();
    for (const T value : x.values<T>()) {
      const int64_t index = static_cast<int64_t>(value);
      RUBATO_CHECK(index >= 0 && index < weight.dim(0));
      std::memcpy(out, weight.values<T>().data() + index * channels, channels * sizeof(T));
      out += channels;
    }
  });
}

void EmbedBackward(const ConstTensorRef& x, const ConstTensorRef& dy, const TensorRef& dweight) {
  RUBATO_CHECK(dweight.shape().size() == 2 && dy.size() == x.size() * dweight.dim(1));
  ByDType(x, [&](auto zero) {
    using T = decltype(zero);
    const int64_t channels = dweight.dim(1);
    std::fill(dweight.values<T>().begin(), dweight.values<T>().end(), T(0));
    const T* gradient = dy.values<T>().data();
    for (const T value : x.values<T>()) {
      T* row = dweight.values<T>().data() + static_cast<int64_t>(value) * channels;
      Dispatch<AddKernel<T>>(row, gradient, row, channels);
      gradient += channels;
    }
  });
}

void AddRow(const ConstTensorRef& x, const ConstTensorRef& bias, const TensorRef& y) {
  const int64_t rows = x.size() / bias.size();
  RUBATO_CHECK(y.size() == x.size() && x.size() == rows * bias.size());
  ByDType(x, [&](auto zero) {
    using T = decltype(zero);
    Dispatch<AddRowKernel<T>>(x.values<T>().data(), bias.values<T>().data(), rows, bias.size(),
                              y.values<T>().data());
  });
}

void AddTensors(const ConstTensorRef& x, const ConstTensorRef& y, const TensorRef& z) {
  RUBATO_CHECK(x.size() == y.size() && z.size() == x.size());
  ByDType(x, [&](auto zero) {
    using T = decltype(zero);
    Dispatch<AddKernel<T>>(x.values<T>().data(), y.values<T>().data(), z.values<T>().data(),
                           x.size());
  });
}

}  // namespace rubato
