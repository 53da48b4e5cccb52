// An NCCL for tests, that is linked in the place of nccl_library.cc: it moves values among the GPUs
// of fake_cuda.h, holds its caller to what NCCL's documents demand, and fails where it is told to.
#ifndef RUBATO_TENSOR_CUDA_FAKE_NCCL_H_
#define RUBATO_TENSOR_CUDA_FAKE_NCCL_H_

#include <nccl.h>

#include <cstdint>
#include <string>
#include <vector>

namespace rubato {

struct FakeNccl {
  bool is_there = true;
  bool has_all_to_all = true;                   // as of 2.28
  int64_t fails_at = -1;                        // the call that fails, counted from 0
  ncclResult_t error = ncclUnhandledCudaError;  // with which
  int64_t fails_later_at = -1;                  // after so many calls, as asynchronous errors do
  bool hangs = false;                           // an exchange does not end before it is aborted
  bool garbles = false;                         // an exchange brings other values

  std::vector<std::string> calls;       // names, in order
  int64_t live = 0;                     // communicators
  int64_t exchanges = 0;                // of all GPUs
  int64_t bytes = 0;                    // between different GPUs
  std::vector<std::string> violations;  // of what NCCL demands
};

// The library's one state, as it is now; begins anew with ResetFakeNccl.
FakeNccl& TheFakeNccl();
void ResetFakeNccl();

}  // namespace rubato

#endif  // RUBATO_TENSOR_CUDA_FAKE_NCCL_H_
