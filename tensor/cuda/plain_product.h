// Products of matrices that the library has no algorithm for: slower, and of any shape.
#ifndef RUBATO_TENSOR_CUDA_PLAIN_PRODUCT_H_
#define RUBATO_TENSOR_CUDA_PLAIN_PRODUCT_H_

#include "common/base/check.h"
#include "tensor/cuda/block.h"
#include "tensor/cuda/divisor.h"
#include "tensor/cuda/numbers.h"
#include "tensor/cuda/product.h"
#include "tensor/cuda/product_contract.h"

namespace rubato {
namespace plain_product {

template <typename T>
struct Values {
  T* values;
  int64_t pitch, distance;

  RUBATO_HOST_DEVICE T& At(int64_t matrix, int64_t row, int64_t column) const {
    return values[matrix * distance + row * pitch + column];
  }
};
template <typename T>
Values<T> ValuesOf(const Matrix& matrix) {
  return {static_cast<T*>(const_cast<void*>(matrix.values)), matrix.pitch, matrix.distance};
}

// c = bias, in each row.
template <typename T>
struct SpreadBias {
  Divisor m, n;
  const T* bias;
  Values<T> c;

  RUBATO_HOST_DEVICE void operator()(int64_t i) const {
    const int64_t row = i / n, column = i - row * n;
    c.At(row / m, row % m, column) = bias[column];
  }
  Traffic Moves(int64_t size) const {
    return {n * SizeInBytes<T>(), size * SizeInBytes<T>(), SizeInBytes<T>()};
  }
};

// One value of c, summed in the order of k.
template <typename T, typename C>
struct Multiply {
  bool transpose_a, transpose_b;
  Divisor m, n;
  int64_t k;
  Values<const T> a, b;
  Values<C> c;
  const C* bias;  // or null
  Wide<T> alpha, beta;

  RUBATO_HOST_DEVICE void operator()(int64_t i) const {
    const int64_t line = i / n, column = i - line * n, matrix = line / m, row = line - matrix * m;
    Wide<T> sum = 0;
    for (int64_t j = 0; j < k; ++j) {
      const T left = transpose_a ? a.At(matrix, j, row) : a.At(matrix, row, j);
      const T right = transpose_b ? b.At(matrix, column, j) : b.At(matrix, j, column);
      sum += Widen(left) * Widen(right);
    }
    C& to = c.At(matrix, row, column);
    Wide<T> value = alpha * sum;
    if (beta != 0) value += beta * static_cast<Wide<T>>(Widen(to));
    if (bias != nullptr) value += static_cast<Wide<T>>(Widen(bias[column]));
    to = static_cast<C>(value);
  }
  Traffic Moves(int64_t size) const {
    const int64_t count = size / (m * n);
    const int64_t factors =
        ((a.distance == 0 ? 1 : count) * m + (b.distance == 0 ? 1 : count) * n) * k;
    const int64_t added = (beta != 0 ? size : 0) + (bias != nullptr ? n.value() : 0);
    return {factors * SizeInBytes<T>() + added * SizeInBytes<C>(), size * SizeInBytes<C>(),
            SizeInBytes<T>(), static_cast<double>(size) * static_cast<double>(k)};
  }
};

template <typename Queue, typename T, typename C>
void LaunchAs(Queue& queue, const Product& p) {
  LaunchForEach(queue, p.count * p.m * p.n,
                Multiply<T, C>{p.transpose_a == Transpose::kYes, p.transpose_b == Transpose::kYes,
                               p.m, p.n, p.k, ValuesOf<const T>(p.a), ValuesOf<const T>(p.b),
                               ValuesOf<C>(p.c), static_cast<const C*>(p.bias),
                               static_cast<Wide<T>>(p.alpha), static_cast<Wide<T>>(p.beta)});
}

}  // namespace plain_product

template <typename Queue>
void LaunchPlainProduct(Queue& queue, const Product& p) {
  ByType<Queue>(p.a.dtype, [&](auto zero) {
    using T = decltype(zero);
    if (p.c.dtype == DTypeOf<T>()) {
      plain_product::LaunchAs<Queue, T, T>(queue, p);
    } else {
      plain_product::LaunchAs<Queue, T, float>(queue, p);
    }
  });
}

// By library(product), which says whether it has an algorithm; what it has none for is asked for
// with less, and in the end is done here. A bias laid down in c and added as c is rounded once, as
// one that the library adds: the values are the same.
template <typename Queue, typename Library>
void MultiplyByLibrary(Queue& queue, const Product& p, Library library) {
  if ((p.bias == nullptr || MayEndInBias(p)) && library(p)) return;
  if (p.bias == nullptr || p.beta != 0) return LaunchPlainProduct(queue, p);
  ByType<Queue>(p.c.dtype, [&](auto zero) {
    using C = decltype(zero);
    LaunchForEach(queue, p.count * p.m * p.n,
                  plain_product::SpreadBias<C>{p.m, p.n, static_cast<const C*>(p.bias),
                                               plain_product::ValuesOf<C>(p.c)});
  });
  Product rest = p;
  rest.bias = nullptr;
  rest.beta = 1;
  if (!library(rest)) LaunchPlainProduct(queue, rest);
}

}  // namespace rubato

#endif  // RUBATO_TENSOR_CUDA_PLAIN_PRODUCT_H_
