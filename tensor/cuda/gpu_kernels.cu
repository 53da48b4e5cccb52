#include "tensor/cuda/cuda_launch.h"
#include "tensor/cuda/gpu_kernels.h"

namespace rubato {

std::unique_ptr<DeviceKernels> MakeCudaKernels(CudaQueue* queue) {
  return std::make_unique<GpuKernels<CudaQueue>>(queue);
}

}  // namespace rubato
