// How long products of matrices take, beside a library that does nothing else.
#ifndef RUBATO_TENSOR_CUDA_PRODUCT_TIMER_H_
#define RUBATO_TENSOR_CUDA_PRODUCT_TIMER_H_

#include <memory>

#include "absl/status/statusor.h"
#include "tensor/cuda/product.h"
#include "tensor/cuda/product_extent.h"

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

}  // namespace rubato

#endif  // RUBATO_TENSOR_CUDA_PRODUCT_TIMER_H_
