// Kernels that treat values, or columns, apart from one another.
#include <cstring>

#include "common/base/check.h"
#include "common/base/isa.h"
#include "tensor/cpu/by_dtype.h"
#include "tensor/kernels.h"

namespace rubato {
namespace {

template <typename T>
struct AddBiasKernel {
  static RUBATO_ALWAYS_INLINE void Run(const T* __restrict bias, int64_t rows, int64_t columns,
                                       T* __restrict y) {
    for (int64_t i = 0; i < rows; ++i, y += columns) {
      for (int64_t j = 0; j < columns; ++j) y[j] += bias[j];
    }
  }
};

template <typename T>
struct ColumnSumsKernel {
  static RUBATO_ALWAYS_INLINE void Run(const T* __restrict x, int64_t rows, int64_t columns,
                                       T* __restrict sums) {
    int64_t j = 0;
    for (; j + 16 <= columns; j += 16) Strip<16>(x + j, rows, columns, sums + j);
    for (; j < columns; ++j) Strip<1>(x + j, rows, columns, sums + j);
  }

  template <int kWidth>
  static RUBATO_ALWAYS_INLINE void Strip(const T* __restrict x, int64_t rows, int64_t columns,
                                         T* __restrict sums) {
    T acc[4][kWidth] = {};
    int64_t i = 0;
    for (; i + 4 <= rows; i += 4) {
      for (int r = 0; r < 4; ++r) {
        for (int l = 0; l < kWidth; ++l) acc[r][l] += x[(i + r) * columns + l];
      }
    }
    for (int r = 0; i + r < rows; ++r) {
      for (int l = 0; l < kWidth; ++l) acc[r][l] += x[(i + r) * columns + l];
    }
    for (int l = 0; l < kWidth; ++l) {
      sums[l] = (acc[0][l] + acc[1][l]) + (acc[2][l] + acc[3][l]);
    }
  }
};

template <typename T>
struct ReluKernel {
  static RUBATO_ALWAYS_INLINE void Run(const T* x, T* y, int64_t n) {
    for (int64_t i = 0; i < n; ++i) y[i] = x[i] < 0 ? 0 : x[i];
  }
};

template <typename T>
struct ReluBackwardKernel {
  static RUBATO_ALWAYS_INLINE void Run(const T* y, const T* dy, T* dx, int64_t n) {
    for (int64_t i = 0; i < n; ++i) dx[i] = y[i] <= 0 ? 0 : dy[i];
  }
};

}  // namespace

void Copy(const ConstTensorRef& x, const TensorRef& y) {
  RUBATO_CHECK(x.size() == y.size());
  ByDType(x, [&](auto zero) {
    using T = decltype(zero);
    if (y.values<T>().data() == x.values<T>().data()) return;
    std::memcpy(y.values<T>().data(), x.values<T>().data(), x.size() * sizeof(T));
  });
}

void SetToZero(const TensorRef& y) {
  ByDType(y, [&](auto zero) {
    using T = decltype(zero);
    std::memset(y.values<T>().data(), 0, y.size() * sizeof(T));
  });
}

void AddBias(const ConstTensorRef& bias, const TensorRef& y) {
  RUBATO_CHECK(y.shape().size() == 2 && bias.size() == y.dim(1));
  ByDType(y, [&](auto zero) {
    using T = decltype(zero);
    Dispatch<AddBiasKernel<T>>(bias.values<T>().data(), y.dim(0), y.dim(1), y.values<T>().data());
  });
}

void FillRows(const ConstTensorRef& bias, const TensorRef& y) {
  RUBATO_CHECK(y.shape().size() == 2 && bias.size() == y.dim(1));
  ByDType(y, [&](auto zero) {
    using T = decltype(zero);
    T* row = y.values<T>().data();
    for (int64_t i = 0; i < y.dim(0); ++i, row += bias.size()) {
      std::memcpy(row, bias.values<T>().data(), bias.size() * sizeof(T));
    }
  });
}

void ColumnSums(const ConstTensorRef& x, const TensorRef& sums) {
  RUBATO_CHECK(x.shape().size() == 2 && sums.size() == x.dim(1));
  ByDType(x, [&](auto zero) {
    using T = decltype(zero);
    Dispatch<ColumnSumsKernel<T>>(x.values<T>().data(), x.dim(0), x.dim(1),
                                  sums.values<T>().data());
  });
}

void Relu(const ConstTensorRef& x, const TensorRef& y) {
  RUBATO_CHECK(x.size() == y.size());
  ByDType(x, [&](auto zero) {
    using T = decltype(zero);
    Dispatch<ReluKernel<T>>(x.values<T>().data(), y.values<T>().data(), x.size());
  });
}

void ReluBackward(const ConstTensorRef& y, const ConstTensorRef& dy, const TensorRef& dx) {
  RUBATO_CHECK(y.size() == dy.size() && dy.size() == dx.size());
  ByDType(y, [&](auto zero) {
    using T = decltype(zero);
    Dispatch<ReluBackwardKernel<T>>(y.values<T>().data(), dy.values<T>().data(),
                                    dx.values<T>().data(), y.size());
  });
}

}  // namespace rubato
