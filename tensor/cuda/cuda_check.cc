#include "tensor/cuda/cuda_check.h"

#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <string>

#include "absl/strings/str_cat.h"
#include "tensor/cuda/nccl_gpu.h"
#include "tensor/cuda/used_gpu.h"

namespace rubato {
namespace {

thread_local int used_gpu = -1;  // -1: none yet
constexpr int kAllGpus = -2;

}  // namespace

void UseGpu(int index) {
  used_gpu = index;
  CheckCuda(cudaSetDevice(index), "the choice of a GPU");
}

void UseAllGpus() { used_gpu = kAllGpus; }

std::string UsedGpu() {
  return used_gpu == kAllGpus ? "the GPUs"
         : used_gpu < 0       ? "the GPU"
                              : absl::StrCat("GPU ", used_gpu);
}

absl::Status CudaStatus(cudaError_t error, absl::string_view what) {
  if (error == cudaSuccess) return absl::OkStatus();
  const std::string text = absl::StrCat(what, " failed: ", cudaGetErrorString(error), " (",
                                        cudaGetErrorName(error), ")");
  return error == cudaErrorMemoryAllocation ? absl::ResourceExhaustedError(text)
                                            : absl::InternalError(text);
}

void EndProcess(const absl::Status& status) {
  // Another thread's GPU may fail after it, and by it.
  static std::atomic<bool> has_begun{false};
  while (has_begun.exchange(true)) pause();
  std::fprintf(stderr, "error: on %s: %s\n", UsedGpu().c_str(),
               std::string(status.message()).c_str());
  std::fflush(stderr);
  _exit(1);
}

void CheckCuda(cudaError_t error, const char* what) {
  if (error != cudaSuccess) EndProcess(CudaStatus(error, what));
}

}  // namespace rubato
