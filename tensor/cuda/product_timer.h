// How long products of matrices take, beside a library that does nothing else.
#ifndef RUBATO_TENSOR_CUDA_PRODUCT_TIMER_H_
#define RUBATO_TENSOR_CUDA_PRODUCT_TIMER_H_

#include <memory>

#include "absl/status/statusor.h"
#include "tensor/cuda/product.h"

namespace rubato {

struct ProductTime {
  double seconds;        // of a call, as a device's kernels have it done, with its bias
  double alone_seconds;  // of a call of the library for the same matrices, without one
  // Greatest distance of the two results, over the greatest value: of one product they are.
  double difference;
};

class ProductTimer {
 public:
  virtual ~ProductTimer() = default;

  // Of a product like this one, of matrices of random values: of its addresses only the alignment
  // counts. ResourceExhausted if the device has no memory for them.
  virtual absl::StatusOr<ProductTime> Time(const Product& product) = 0;
};

// On a GPU, beside cublasGemmEx of the same precision; medians of CUDA's events. Defined with
// cuda_device.h's functions; errors as OpenGpu.
absl::StatusOr<std::unique_ptr<ProductTimer>> OpenProductTimer(int gpu, ProductPrecision precision);

// On the CPU, in an emulated GPU, beside plain loops in double precision: for tests.
std::unique_ptr<ProductTimer> MakeEmulatedProductTimer(ProductPrecision precision);

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

#endif  // RUBATO_TENSOR_CUDA_PRODUCT_TIMER_H_
