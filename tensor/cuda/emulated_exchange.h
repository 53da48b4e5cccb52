#ifndef RUBATO_TENSOR_CUDA_EMULATED_EXCHANGE_H_
#define RUBATO_TENSOR_CUDA_EMULATED_EXCHANGE_H_

#include <cstdint>
#include <memory>

#include "tensor/exchange.h"

namespace rubato {

// Among emulated GPUs (emulated_device.h), each of which may do its work in another order. As with
// real ones, an exchange is done when all of them have come to it.
std::unique_ptr<Exchange> MakeEmulatedExchange(int gpus, uint64_t seed = 1,
                                               int64_t memory_bytes = int64_t{4} << 30);

}  // namespace rubato

#endif  // RUBATO_TENSOR_CUDA_EMULATED_EXCHANGE_H_
