// Whether this host can hold the processes of a job, before `rubato train` starts them all here.
#ifndef RUBATO_TOOLS_COMMAND_CAPACITY_H_
#define RUBATO_TOOLS_COMMAND_CAPACITY_H_

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "tools/command/plan.h"

namespace rubato {

// What a host has, as far as it tells.
struct Capacity {
  std::optional<int64_t> memory;     // bytes, with swap
  std::optional<int64_t> processes;  // beside each other
};

Capacity CapacityOfThisHost();

// InvalidArgument if the job cannot run there: more processes than there may be, or so much memory
// that the prediction would have to be wrong by half.
absl::Status CheckCapacity(const Capacity& capacity, const Plan& plan);

}  // namespace rubato

#endif  // RUBATO_TOOLS_COMMAND_CAPACITY_H_
