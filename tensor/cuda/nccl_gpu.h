// What an exchange needs of devices that OpenGpu has opened.
#ifndef RUBATO_TENSOR_CUDA_NCCL_GPU_H_
#define RUBATO_TENSOR_CUDA_NCCL_GPU_H_

#include <cuda_runtime.h>

#include <functional>

#include "tensor/device.h"

namespace rubato {

cudaStream_t ComputeStreamOf(const Device& device);

// While the host waits for the device, `call` is called again and again.
void CallWhileWaiting(Device* device, std::function<void()> call);

// What fails next on the calling thread is told of all GPUs, no one in particular (used_gpu.h).
void UseAllGpus();

}  // namespace rubato

#endif  // RUBATO_TENSOR_CUDA_NCCL_GPU_H_
