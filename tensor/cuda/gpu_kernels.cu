#include "tensor/cuda/cuda_launch.h"
#include "tensor/cuda/gpu_kernels.h"
#include "tensor/cuda/plain_product.h"

namespace rubato {

void CudaQueue::Multiply(const Product& product) {
  MultiplyByLibrary(*this, product, [this](const Product& p) { return MultiplyByCublas(p); });
}

std::unique_ptr<DeviceKernels> MakeCudaKernels(CudaQueue* queue) {
  return std::make_unique<GpuKernels<CudaQueue>>(queue);
}

}  // namespace rubato
