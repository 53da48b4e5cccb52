// The numbers of kernels: types of memory and of sums, and functions of one value.
#ifndef RUBATO_TENSOR_CUDA_NUMBERS_H_
#define RUBATO_TENSOR_CUDA_NUMBERS_H_

#include <cmath>
#include <cstdint>

#include "common/base/host_device.h"
#include "tensor/half_float.h"
#include "tensor/tensor.h"

namespace rubato {

// In what values of type T are computed and summed; also the type of statistics, of parameters that
// are no factors of products, and of gradients by parameters. double is for tests on the CPU.
template <typename T>
struct WideOf {
  using Type = float;
};
template <>
struct WideOf<double> {
  using Type = double;
};
template <typename T>
using Wide = typename WideOf<T>::Type;

template <typename T>
RUBATO_HOST_DEVICE Wide<T> Widen(T value) {
  return static_cast<Wide<T>>(value);
}

// call(T()) for the tensors' type.
template <typename Queue, typename Call>
void ByType(DType dtype, Call call) {
  switch (dtype) {
    case DType::kFloat32:
      return call(float());
    case DType::kBFloat16:
      return call(BFloat16());
    case DType::kFloat16:
      return call(Float16());
    default:
      if constexpr (Queue::kHasDouble) return call(double());
  }
  RUBATO_CHECK(false);
}

template <typename T>
const T* Pointer(const ConstTensorRef& tensor) {
  return tensor.is_null() ? nullptr : tensor.values<T>().data();
}
template <typename T>
T* Pointer(const TensorRef& tensor) {
  return tensor.is_null() ? nullptr : tensor.values<T>().data();
}

namespace numbers {

template <typename A>
RUBATO_HOST_DEVICE A Lowest() {
  return static_cast<A>(-INFINITY);
}

RUBATO_HOST_DEVICE float Exp(float x) { return expf(x); }
RUBATO_HOST_DEVICE double Exp(double x) { return exp(x); }
RUBATO_HOST_DEVICE float Tanh(float x) { return tanhf(x); }
RUBATO_HOST_DEVICE double Tanh(double x) { return tanh(x); }
RUBATO_HOST_DEVICE float Erfc(float x) { return erfcf(x); }
RUBATO_HOST_DEVICE double Erfc(double x) { return erfc(x); }
RUBATO_HOST_DEVICE float Sqrt(float x) { return sqrtf(x); }
RUBATO_HOST_DEVICE double Sqrt(double x) { return sqrt(x); }

// To some 2^-21 of the result for each unit of x beyond 1: one product, and a GPU's instruction.
RUBATO_HOST_DEVICE float FastExp(float x) {
#ifdef __CUDA_ARCH__
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x * 1.44269504088896340736f));
  return result;
#else
  return expf(x);
#endif
}
RUBATO_HOST_DEVICE double FastExp(double x) { return exp(x); }
// To 2^-23 of the result.
RUBATO_HOST_DEVICE float FastReciprocal(float x) {
#ifdef __CUDA_ARCH__
  float result;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
#else
  return 1 / x;
#endif
}
// The greater; if one is no number, the other.
RUBATO_HOST_DEVICE float Greatest(float x, float y) { return fmaxf(x, y); }
RUBATO_HOST_DEVICE double Greatest(double x, double y) { return fmax(x, y); }

template <typename A>
RUBATO_HOST_DEVICE A Sigmoid(A x) {
  return 1 / (1 + Exp(-x));
}

// The functions of tensor/cpu/activations.h, by the C library of either side.
template <typename A>
RUBATO_HOST_DEVICE A Gelu(A x, A* derivative) {
  const A p = A(0.5) * Erfc(-x * A(0.70710678118654752440));
  *derivative = p + x * A(0.39894228040143267794) * Exp(A(-0.5) * x * x);
  // Beyond all floats p is 0, and the product of infinity with it no number.
  return p == 0 ? A(0) : x * p;
}

// Likewise, to some 10^-5 of the result: for what is rounded to a half float. Below 0 the share of
// the normal distribution is exp(-x^2 / 2), which the derivative has, too, times a function that is
// smooth in 1 / (1 + 0.31 |x|): a polynomial fitted to it for |x| < 14.5, to 5 10^-6 of its value.
RUBATO_HOST_DEVICE float FastGelu(float x, float* derivative) {
  const float t = FastReciprocal(1 + 0.31f * fabsf(x)), e = FastExp(-0.5f * x * x);
  float ratio = -0.07392879f;
  ratio = ratio * t + 0.18044932f;
  ratio = ratio * t + 0.015745856f;
  ratio = ratio * t + 0.13342917f;
  ratio = ratio * t + 0.12044144f;
  ratio = ratio * t + 0.12386069f;
  const float tail = ratio * t * e, p = x > 0 ? 1 - tail : tail;
  *derivative = p + x * (0.39894228f * e);
  return p == 0 ? 0.0f : x * p;
}

template <typename A>
RUBATO_HOST_DEVICE A GeluTanh(A x, A* derivative) {
  const A c = A(0.79788456080286535588), q = A(0.044715) * x * x;
  const A s = Sigmoid(2 * c * x * (1 + q));
  *derivative = s + 2 * x * (s * (1 - s)) * c * (1 + 3 * q);
  return x * s;
}

}  // namespace numbers
}  // namespace rubato

#endif  // RUBATO_TENSOR_CUDA_NUMBERS_H_
