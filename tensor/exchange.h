// GPUs of one process that give each other parts of their memory, without the host: by NVLink,
// where they have it.
#ifndef RUBATO_TENSOR_EXCHANGE_H_
#define RUBATO_TENSOR_EXCHANGE_H_

#include <cstdint>
#include <string>

#include "absl/types/span.h"
#include "tensor/device.h"

namespace rubato {

// For one thread at a time, which speaks for all GPUs. Calls return before their work is done, and
// keep to no order with what others give these GPUs: memory that models' devices use may be named
// here while those are known to be done with it. What fails after creation ends the process, with a
// sentence.
class Exchange {
 public:
  virtual ~Exchange() = default;

  virtual int gpus() const = 0;
  virtual std::string description() const = 0;  // "NCCL 2.28.9"
  // A share of the i-th GPU for what comes before and after: an exchange is work of all kCompute.
  virtual Device& gpu(int i) = 0;

  // The `count` values behind from[i] + j * count come to to[j] + i * count, for all i and j. What
  // is read and what is written do not overlap. Addresses are one of each GPU, in its memory.
  virtual void AllToAll(absl::Span<const float* const> from, absl::Span<float* const> to,
                        int64_t count) = 0;
  // The `count` values behind values[i] + i * count come to values[j] + i * count, likewise.
  virtual void AllGather(absl::Span<float* const> values, int64_t count) = 0;
};

}  // namespace rubato

#endif  // RUBATO_TENSOR_EXCHANGE_H_
