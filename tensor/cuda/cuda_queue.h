#ifndef RUBATO_TENSOR_CUDA_CUDA_QUEUE_H_
#define RUBATO_TENSOR_CUDA_CUDA_QUEUE_H_

#include <cuda_runtime.h>

#include <cstdint>
#include <memory>

#include "tensor/cuda/product.h"
#include "tensor/device.h"

namespace rubato {

class CublasHandle;  // cublas.h

// A GPU's stream of kernels and products.
class CudaQueue {
 public:
  static constexpr bool kHasDouble = false;

  // Both must outlive it.
  CudaQueue(cudaStream_t stream, CublasHandle* cublas) : stream_(stream), cublas_(*cublas) {}

  // Defined in cuda_launch.h, for nvcc.
  template <typename Kernel>
  void Launch(int64_t blocks, int threads, const Kernel& kernel);

  void Multiply(const Product& product);

 private:
  const cudaStream_t stream_;
  CublasHandle& cublas_;
};

std::unique_ptr<DeviceKernels> MakeCudaKernels(CudaQueue* queue);

}  // namespace rubato

#endif  // RUBATO_TENSOR_CUDA_CUDA_QUEUE_H_
