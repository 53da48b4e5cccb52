#ifndef RUBATO_TENSOR_CUDA_CUDA_QUEUE_H_
#define RUBATO_TENSOR_CUDA_CUDA_QUEUE_H_

#include <cuda_runtime.h>

#include <cstdint>
#include <memory>

#include "common/base/check.h"
#include "tensor/cuda/column_sums.h"
#include "tensor/cuda/fused_attention.h"
#include "tensor/cuda/fused_convolution.h"
#include "tensor/cuda/product.h"
#include "tensor/device.h"

namespace rubato {

class AttentionLibrary;    // attention_library.h
class ConvolutionLibrary;  // convolution_library.h
class CublasHandle;        // cublas.h

// A GPU's stream of kernels and products.
class CudaQueue {
 public:
  static constexpr bool kHasDouble = false;

  static constexpr int64_t kPartialBytes = kPartialSums * sizeof(float);

  // Of GPU `index`. All must outlive it, so must kPartialBytes of the GPU's memory at `partials`;
  // attention and convolution may be null.
  CudaQueue(int index, cudaStream_t stream, void* partials, CublasHandle* cublas,
            AttentionLibrary* attention, ConvolutionLibrary* convolution)
      : index_(index),
        stream_(stream),
        partials_(partials),
        cublas_(*cublas),
        attention_(attention),
        convolution_(convolution) {}

  // Defined in cuda_launch.h, for nvcc.
  template <typename Kernel>
  void Launch(int64_t blocks, int threads, const Kernel& kernel);

  // Defined in gpu_kernels.cu, likewise: what cuBLAS has no algorithm for is done by a kernel.
  void Multiply(const Product& product);

  // For sums on their way (column_sums.h).
  void* Partials(int64_t bytes) const {
    RUBATO_CHECK(bytes <= kPartialBytes);
    return partials_;
  }

  // By the library, of half floats.
  int64_t AttentionWorkspace(const Attention& attention, int64_t n) const;
  void Attend(const FusedAttention& fused);
  int64_t ConvolutionWorkspace(const Convolution& convolution, DType dtype, int64_t n) const;
  void Convolve(const FusedConvolution& fused);

 private:
  // By cuBLAS. False if it has no algorithm.
  bool MultiplyByCublas(const Product& product);

  const int index_;
  const cudaStream_t stream_;
  void* const partials_;
  CublasHandle& cublas_;
  AttentionLibrary* const attention_;
  ConvolutionLibrary* const convolution_;
};

std::unique_ptr<DeviceKernels> MakeCudaKernels(CudaQueue* queue);

}  // namespace rubato

#endif  // RUBATO_TENSOR_CUDA_CUDA_QUEUE_H_
