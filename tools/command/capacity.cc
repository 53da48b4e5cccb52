#include "tools/command/capacity.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "common/base/host_memory.h"
#include "proto/job.pb.h"

namespace rubato {
namespace {

std::string Counted(int64_t count, absl::string_view noun) {
  return absl::StrCat(count, " ", noun, count == 1 ? "" : "s");
}

}  // namespace

Capacity CapacityOfThisHost() { return {TotalMemory(), MostProcesses()}; }

absl::Status CheckCapacity(const Capacity& capacity, const Plan& plan) {
  const proto::Cluster& cluster = plan.job.cluster();
  const int64_t processes =
      cluster.servers() + cluster.workers().start() + (cluster.dedicated_coordinator() ? 1 : 0);
  const std::string found = absl::StrCat(Counted(cluster.servers(), "server"), " and ",
                                         Counted(cluster.workers().start(), "worker"));
  if (capacity.processes.has_value() && processes > *capacity.processes) {
    return absl::InvalidArgumentError(
        absl::StrCat("cluster: found ", found, " to start on this host, expected no more than the ",
                     *capacity.processes, " processes that may run on it"));
  }
  if (!capacity.memory.has_value()) return absl::OkStatus();
  // What processes share (code, rings, lent gradients) counts in each: of 6 and of 34 processes of
  // the quickstart, the kernel's proportional sizes came to 0.56 and 0.54 of the prediction.
  const double most = 2 * static_cast<double>(*capacity.memory);
  const double wanted = static_cast<double>(MemoryInTraining(plan));
  if (wanted <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat(
      "cluster: found %s, which take %.1f MB if all are on this host, as `rubato train` starts "
      "them, expected no more than %.1f MB, twice its memory and swap",
      found, wanted * 1e-6, most * 1e-6));
}

}  // namespace rubato
