// What a product of matrices is asked for: by cuBLAS on a GPU, by the CPU's library in its
// emulation.
#ifndef RUBATO_TENSOR_CUDA_PRODUCT_H_
#define RUBATO_TENSOR_CUDA_PRODUCT_H_

#include <cstdint>

#include "tensor/kernels.h"
#include "tensor/tensor.h"

namespace rubato {

// A row-major matrix, the first of as many as the product has.
struct Matrix {
  const void* values = nullptr;
  DType dtype = DType::kFloat32;
  int64_t pitch = 0;     // values from one stored row to the next
  int64_t distance = 0;  // values from one matrix to the next
};

template <typename T>
Matrix MatrixAt(const T* values, int64_t pitch, int64_t distance = 0) {
  return {values, DTypeOf<T>(), pitch, distance};
}

// c = alpha a b + beta c + bias, `count` times. a as read: (m, k), b: (k, n), of one type; c: (m,
// n) of theirs or float32; bias: (n) of c's type, added to each row, or null.
struct Product {
  Product(Transpose transpose_a, Transpose transpose_b, int64_t m, int64_t n, int64_t k)
      : transpose_a(transpose_a), transpose_b(transpose_b), m(m), n(n), k(k) {}

  Transpose transpose_a, transpose_b;
  int64_t m, n, k;
  Matrix a, b, c;  // c is written
  double alpha = 1, beta = 0;
  int64_t count = 1;
  const void* bias = nullptr;
};

// How products of float32 are computed: in it, or by factors rounded to TF32 (10 bits of mantissa).
enum class ProductPrecision { kFloat32, kTf32 };

}  // namespace rubato

#endif  // RUBATO_TENSOR_CUDA_PRODUCT_H_
