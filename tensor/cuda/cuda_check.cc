#include "tensor/cuda/cuda_check.h"

#include <unistd.h>

#include <cstdio>
#include <string>

#include "absl/strings/str_cat.h"

namespace rubato {

absl::Status CudaStatus(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return absl::OkStatus();
  const std::string text = absl::StrCat(what, " failed: ", cudaGetErrorString(error), " (",
                                        cudaGetErrorName(error), ")");
  return error == cudaErrorMemoryAllocation ? absl::ResourceExhaustedError(text)
                                            : absl::InternalError(text);
}

void EndProcess(const absl::Status& status) {
  std::fprintf(stderr, "error: on the GPU: %s\n", std::string(status.message()).c_str());
  std::fflush(stderr);
  _exit(1);
}

void CheckCuda(cudaError_t error, const char* what) {
  if (error != cudaSuccess) EndProcess(CudaStatus(error, what));
}

}  // namespace rubato
