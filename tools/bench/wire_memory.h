// What a server holds while two workers train through it in step.
#ifndef RUBATO_TOOLS_BENCH_WIRE_MEMORY_H_
#define RUBATO_TOOLS_BENCH_WIRE_MEMORY_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace rubato {

// Resident memory of a shard's process over its parameters, slots and one gradient: SGD with
// momentum, float32, two workers, sync; `bytes` of parameters, a multiple of 256 KiB. Through
// shared memory or TCP; the steps are few, and all parameters are checked.
absl::StatusOr<double> MeasureServerMemory(int64_t bytes, bool shared);

}  // namespace rubato

#endif  // RUBATO_TOOLS_BENCH_WIRE_MEMORY_H_
