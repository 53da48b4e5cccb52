// Which GPU a thread uses.
#ifndef RUBATO_TENSOR_CUDA_USED_GPU_H_
#define RUBATO_TENSOR_CUDA_USED_GPU_H_

namespace rubato {

// This GPU is the calling thread's from now on, and what fails there is told of it (cuda_check.h).
void UseGpu(int index);

}  // namespace rubato

#endif  // RUBATO_TENSOR_CUDA_USED_GPU_H_
