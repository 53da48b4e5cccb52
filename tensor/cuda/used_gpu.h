// Which GPU a thread uses.
#ifndef RUBATO_TENSOR_CUDA_USED_GPU_H_
#define RUBATO_TENSOR_CUDA_USED_GPU_H_

#include <string>

namespace rubato {

// This GPU is the calling thread's from now on, and what fails there is told of it (cuda_check.h).
void UseGpu(int index);

// "GPU 1", the calling thread's; "the GPU" before it uses any.
std::string UsedGpu();

}  // namespace rubato

#endif  // RUBATO_TENSOR_CUDA_USED_GPU_H_
