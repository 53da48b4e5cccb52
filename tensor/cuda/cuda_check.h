// What CUDA and cuBLAS answer.
#ifndef RUBATO_TENSOR_CUDA_CUDA_CHECK_H_
#define RUBATO_TENSOR_CUDA_CUDA_CHECK_H_

#include <cuda_runtime.h>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace rubato {

// `what` was to be done, as in "a copy to the GPU". ResourceExhausted if memory is missing.
absl::Status CudaStatus(cudaError_t error, absl::string_view what);

// Ends the process, with exit code 1 and the sentence, unless it was done: a CUDA context does not
// heal.
void CheckCuda(cudaError_t error, const char* what);
void EndProcess(const absl::Status& status);

}  // namespace rubato

#endif  // RUBATO_TENSOR_CUDA_CUDA_CHECK_H_
