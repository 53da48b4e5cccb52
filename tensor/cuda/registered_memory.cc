#include "tensor/cuda/registered_memory.h"

#include <cuda_runtime.h>

#include <cstdio>
#include <map>
#include <utility>

#include "absl/base/const_init.h"
#include "absl/synchronization/mutex.h"
#include "tensor/cuda/cuda_check.h"
#include "tensor/cuda/used_gpu.h"

namespace rubato {
namespace {

ABSL_CONST_INIT absl::Mutex mutex(absl::kConstInit);

// How many GPUs have the memory that begins there. Guarded by the mutex.
std::map<void*, int>& Users() {
  static auto* const users = new std::map<void*, int>;
  return *users;
}

// Answers to a registration that leave all else as it was (CUDA Runtime API, cudaHostRegister, and
// what limits of the system come to).
bool IsRefusal(cudaError_t error) {
  switch (error) {
    case cudaErrorInvalidValue:
    case cudaErrorMemoryAllocation:
    case cudaErrorHostMemoryAlreadyRegistered:
    case cudaErrorNotSupported:
    case cudaErrorNotPermitted:
      return true;
    default:
      return false;
  }
}

}  // namespace

RegisteredMemory::~RegisteredMemory() {
  while (!own_.empty()) Remove(*own_.begin());
}

bool RegisteredMemory::Add(void* host, int64_t bytes) {
  UseGpu(gpu_);
  absl::MutexLock lock(&mutex);
  const auto found = Users().find(host);
  const cudaError_t error = found == Users().end()
                                ? cudaHostRegister(host, bytes, cudaHostRegisterPortable)
                                : cudaSuccess;
  if (IsRefusal(error)) {
    cudaGetLastError();  // it heals
    if (!std::exchange(has_warned_, true)) {
      std::fprintf(stderr,
                   "warning: on the GPU: parameters and gradients are copied once more on the "
                   "host: registering %lld bytes of its memory failed: %s (%s)\n",
                   static_cast<long long>(bytes), cudaGetErrorString(error),
                   cudaGetErrorName(error));
    }
    return false;
  }
  CheckCuda(error, "registering the host's memory");
  own_.insert(host);
  ++Users()[host];
  return true;
}

void RegisteredMemory::Remove(void* host) {
  if (own_.erase(host) == 0) return;
  absl::MutexLock lock(&mutex);
  if (--Users()[host] > 0) return;
  Users().erase(host);
  cudaSetDevice(gpu_);
  cudaHostUnregister(host);
}

}  // namespace rubato
