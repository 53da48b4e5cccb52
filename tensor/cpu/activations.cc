#include "tensor/cpu/activations.h"

#include "common/base/check.h"
#include "common/base/isa.h"
#include "tensor/cpu/by_dtype.h"
#include "tensor/kernels.h"

namespace rubato {
namespace {

// A function of one value, and what its derivative takes (x, or y where that is cheaper).
struct SigmoidFunction {
  template <typename T>
  static RUBATO_ALWAYS_INLINE T Value(T x) {
    return Sigmoid(x);
  }
  template <typename T>
  static RUBATO_ALWAYS_INLINE T Derivative(T y) {
    return y * (1 - y);
  }
};

struct TanhFunction {
  template <typename T>
  static RUBATO_ALWAYS_INLINE T Value(T x) {
    return Tanh(x);
  }
  template <typename T>
  static RUBATO_ALWAYS_INLINE T Derivative(T y) {
    return 1 - y * y;
  }
};

struct GeluFunction {
  template <typename T>
  static RUBATO_ALWAYS_INLINE T Value(T x) {
    return Gelu(x);
  }
  template <typename T>
  static RUBATO_ALWAYS_INLINE T Both(T x, T* derivative) {
    return GeluWithDerivative(x, derivative);
  }
};

struct GeluTanhFunction {
  template <typename T>
  static RUBATO_ALWAYS_INLINE T Value(T x) {
    return GeluTanh(x);
  }
  template <typename T>
  static RUBATO_ALWAYS_INLINE T Both(T x, T* derivative) {
    return GeluTanhWithDerivative(x, derivative);
  }
};

template <typename Function, typename T>
struct ValueKernel {
  static RUBATO_ALWAYS_INLINE void Run(const T* __restrict x, T* __restrict y, int64_t n) {
    for (int64_t i = 0; i < n; ++i) y[i] = Function::Value(x[i]);
  }
};

template <typename Function, typename T>
struct DerivativeKernel {
  static RUBATO_ALWAYS_INLINE void Run(const T* __restrict of, const T* __restrict dy,
                                       T* __restrict dx, int64_t n) {
    for (int64_t i = 0; i < n; ++i) dx[i] = dy[i] * Function::Derivative(of[i]);
  }
};

template <typename Function, typename T>
struct BothKernel {
  // y may be x.
  static RUBATO_ALWAYS_INLINE void Run(const T* x, T* y, T* __restrict derivative, int64_t n) {
    for (int64_t i = 0; i < n; ++i) y[i] = Function::Both(x[i], &derivative[i]);
  }
};

template <typename T>
struct MultiplyKernel {
  static RUBATO_ALWAYS_INLINE void Run(const T* __restrict x, const T* y, T* z, int64_t n) {
    for (int64_t i = 0; i < n; ++i) z[i] = x[i] * y[i];
  }
};

template <typename Function>
void Values(const ConstTensorRef& x, const TensorRef& y) {
  RUBATO_CHECK(x.size() == y.size());
  ByDType(x, [&](auto zero) {
    using T = decltype(zero);
    Dispatch<ValueKernel<Function, T>>(x.values<T>().data(), y.values<T>().data(), x.size());
  });
}

template <typename Function>
void Derivatives(const ConstTensorRef& of, const ConstTensorRef& dy, const TensorRef& dx) {
  RUBATO_CHECK(of.size() == dy.size() && dy.size() == dx.size());
  ByDType(of, [&](auto zero) {
    using T = decltype(zero);
    Dispatch<DerivativeKernel<Function, T>>(of.values<T>().data(), dy.values<T>().data(),
                                            dx.values<T>().data(), of.size());
  });
}

}  // namespace

void Sigmoid(const ConstTensorRef& x, const TensorRef& y) { Values<SigmoidFunction>(x, y); }

void SigmoidBackward(const ConstTensorRef& y, const ConstTensorRef& dy, const TensorRef& dx) {
  Derivatives<SigmoidFunction>(y, dy, dx);
}

void Tanh(const ConstTensorRef& x, const TensorRef& y) { Values<TanhFunction>(x, y); }

void TanhBackward(const ConstTensorRef& y, const ConstTensorRef& dy, const TensorRef& dx) {
  Derivatives<TanhFunction>(y, dy, dx);
}

void Gelu(GeluForm form, const ConstTensorRef& x, const TensorRef& y) {
  form == GeluForm::kExact ? Values<GeluFunction>(x, y) : Values<GeluTanhFunction>(x, y);
}

void GeluWithDerivative(GeluForm form, const ConstTensorRef& x, const TensorRef& y,
                        const TensorRef& derivative) {
  RUBATO_CHECK(x.size() == y.size() && derivative.size() == x.size());
  ByDType(x, [&](auto zero) {
    using T = decltype(zero);
    const auto run = [&](auto kernel) {
      Dispatch<decltype(kernel)>(x.values<T>().data(), y.values<T>().data(),
                                 derivative.values<T>().data(), x.size());
    };
    form == GeluForm::kExact ? run(BothKernel<GeluFunction, T>())
                             : run(BothKernel<GeluTanhFunction, T>());
  });
}

void Multiply(const ConstTensorRef& x, const ConstTensorRef& y, const TensorRef& z) {
  RUBATO_CHECK(x.size() == y.size() && z.size() == x.size());
  ByDType(x, [&](auto zero) {
    using T = decltype(zero);
    Dispatch<MultiplyKernel<T>>(x.values<T>().data(), y.values<T>().data(), z.values<T>().data(),
                                x.size());
  });
}

}  // namespace rubato
