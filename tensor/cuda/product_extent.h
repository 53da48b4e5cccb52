// How far a product's matrices reach.
#ifndef RUBATO_TENSOR_CUDA_PRODUCT_EXTENT_H_
#define RUBATO_TENSOR_CUDA_PRODUCT_EXTENT_H_

#include <cstdint>

#include "tensor/cuda/product.h"

namespace rubato {

// A matrix's values from the first to the last of all that the product has; `rows` and `columns`
// are as stored.
inline int64_t ExtentOf(const Matrix& matrix, int64_t rows, int64_t columns, int64_t count) {
  return (count - 1) * matrix.distance + (rows - 1) * matrix.pitch + columns;
}
inline int64_t ExtentOfA(const Product& p) {
  return p.transpose_a == Transpose::kYes ? ExtentOf(p.a, p.k, p.m, p.count)
                                          : ExtentOf(p.a, p.m, p.k, p.count);
}
inline int64_t ExtentOfB(const Product& p) {
  return p.transpose_b == Transpose::kYes ? ExtentOf(p.b, p.n, p.k, p.count)
                                          : ExtentOf(p.b, p.k, p.n, p.count);
}
inline int64_t ExtentOfC(const Product& p) { return ExtentOf(p.c, p.m, p.n, p.count); }

}  // namespace rubato

#endif  // RUBATO_TENSOR_CUDA_PRODUCT_EXTENT_H_
