// NCCL, NVIDIA's library of exchanges among GPUs. It is opened when several GPUs of one process
// are, as cuBLAS is: a program that does without needs none.
#ifndef RUBATO_TENSOR_CUDA_NCCL_LIBRARY_H_
#define RUBATO_TENSOR_CUDA_NCCL_LIBRARY_H_

#include <nccl.h>

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace rubato {

// The library's functions.
struct Nccl {
  // FailedPrecondition if it cannot be opened, saying where it was sought, or is too old.
  static absl::StatusOr<std::shared_ptr<const Nccl>> Open();

  // What was to be done, with NCCL's own words if it failed.
  absl::Status StatusOf(ncclResult_t result, const std::string& what) const;

  std::string
      version;  // "2.28.9", of what was opened, which may be another than what was built with

  decltype(&ncclGetVersion) GetVersion = nullptr;
  decltype(&ncclGetErrorString) GetErrorString = nullptr;
  decltype(&ncclGetLastError) GetLastError = nullptr;
  decltype(&ncclCommInitAll) CommInitAll = nullptr;
  decltype(&ncclCommDestroy) CommDestroy = nullptr;
  decltype(&ncclCommAbort) CommAbort = nullptr;
  decltype(&ncclCommGetAsyncError) CommGetAsyncError = nullptr;
  decltype(&ncclGroupStart) GroupStart = nullptr;
  decltype(&ncclGroupEnd) GroupEnd = nullptr;
  decltype(&ncclAllGather) AllGather = nullptr;
  decltype(&ncclSend) Send = nullptr;
  decltype(&ncclRecv) Recv = nullptr;
  // Null before 2.28, whose header has it first.
  ncclResult_t (*AlltoAll)(const void* from, void* to, size_t count, ncclDataType_t type,
                           ncclComm_t communicator, cudaStream_t stream) = nullptr;
};

}  // namespace rubato

#endif  // RUBATO_TENSOR_CUDA_NCCL_LIBRARY_H_
