// Exchanges among NVIDIA's GPUs, by NCCL.
#ifndef RUBATO_TENSOR_CUDA_NCCL_EXCHANGE_H_
#define RUBATO_TENSOR_CUDA_NCCL_EXCHANGE_H_

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tensor/cuda/patience.h"
#include "tensor/exchange.h"

namespace rubato {

// Among `gpus`, all of them others, which has been tried out: what a first exchange brings is
// compared. FailedPrecondition or Internal if NCCL is not there, or not part of this build, or
// refuses, or brings other values, or nothing in a minute: then nothing is left of it, and the GPUs
// can be used without. Errors of OpenGpu. A wait ends the process as one of OpenGpu's does.
absl::StatusOr<std::unique_ptr<Exchange>> OpenNcclExchange(const std::vector<int>& gpus,
                                                           absl::Duration patience = kGpuPatience);

}  // namespace rubato

#endif  // RUBATO_TENSOR_CUDA_NCCL_EXCHANGE_H_
