// A library's convolutions, each pass in one piece of work, on one stream of a GPU.
#ifndef RUBATO_TENSOR_CUDA_CONVOLUTION_LIBRARY_H_
#define RUBATO_TENSOR_CUDA_CONVOLUTION_LIBRARY_H_

#include <cuda_runtime.h>

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "tensor/cuda/fused_convolution.h"

namespace rubato {

class ConvolutionLibrary {
 public:
  virtual ~ConvolutionLibrary() = default;

  // See NoFusedConvolution. What it refuses is told once, with the reason, in a warning; a batch
  // that it refuses after it has taken a greater one ends the process.
  virtual int64_t Workspace(const Convolution& convolution, DType dtype, int64_t n) = 0;
  // What fails ends the process. The calling thread's GPU is the stream's.
  virtual void Convolve(const FusedConvolution& fused) = 0;
  // "cuDNN 9.19.0", if it has taken any convolution so far, else empty.
  virtual std::string used() const = 0;
};

// cuDNN's, on the calling thread's GPU, of compute capability `major`. FailedPrecondition if it is
// not there, or not part of this build, saying why.
absl::StatusOr<std::unique_ptr<ConvolutionLibrary>> OpenCudnnConvolution(int major,
                                                                         cudaStream_t stream);

}  // namespace rubato

#endif  // RUBATO_TENSOR_CUDA_CONVOLUTION_LIBRARY_H_
