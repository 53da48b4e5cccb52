#include "tools/kubernetes/predict.h"

#include <algorithm>

#include "common/base/check.h"
#include "common/space/modes.h"
#include "common/space/placement.h"
#include "common/wire/channel.h"
#include "server/process/server_memory.h"
#include "worker/process/worker_memory.h"

namespace rubato::kubernetes {
namespace {

// What CUDA's libraries and context hold of the host: set high, not measured.
constexpr int64_t kCudaBytes = int64_t{3} << 30;
// Of the run's folder: metrics, events and logs of a year, and what rotates (docs/runs.md).
constexpr int64_t kRecords = int64_t{1} << 29;

// The formulas have been found right to some percent; the allocator keeps some, too.
Memory WithMargin(int64_t bytes, int64_t hostile) {
  Memory memory;
  memory.request = bytes + bytes / 8;
  memory.limit = bytes + bytes / 4 + (int64_t{64} << 20) + hostile;
  return memory;
}

}  // namespace

Sizes Predict(const Plan& plan, const Options& options) {
  proto::Job job = plan.job;
  job.mutable_wire()->set_shared_memory(proto::Wire::SHARED_MEMORY_OFF);
  const proto::Workers workers = job.cluster().workers();
  const int servers = job.cluster().servers();
  const Placement placement = Placement::Even(SpaceOf(job, plan.layout), servers);

  proto::Job most = job;
  most.mutable_cluster()->mutable_workers()->set_start(workers.max());
  const auto server = [&](int shard) {
    const absl::StatusOr<ServerMemory> memory = PlanServerMemory(most, placement, shard);
    RUBATO_CHECK(memory.ok());  // MakePlan has tried
    return memory->training + memory->checkpoint;
  };
  const int64_t strangers = MaxStrangers(workers.max(), servers) * kMaxStrangerMemory;
  Sizes sizes;
  sizes.coordinator = WithMargin(server(0), strangers);
  int64_t largest = 0;
  for (int shard = 0; shard < servers; ++shard) largest = std::max(largest, server(shard));
  sizes.server = WithMargin(largest, strangers);

  // The fewer there are, the more each computes.
  int64_t worker = 0;
  for (const int count : {workers.min(), workers.start(), workers.max()}) {
    proto::Job some = job;
    some.mutable_cluster()->mutable_workers()->set_start(count);
    const WorkerMemory memory = PlanWorkerMemory(some, plan.sizes, 0);
    worker = std::max(worker, memory.training + memory.test);
  }
  sizes.worker = WithMargin(worker + (options.gpus > 0 ? kCudaBytes : 0), 0);

  // The parameters and a checkpoint make the result; besides, those kept, and one being written.
  const int checkpoints =
      job.checkpoint().keep_last() + (job.checkpoint().has_keep_best() ? 1 : 0) + 1;
  sizes.runs = plan.result_bytes * (1 + checkpoints) + kRecords;
  return sizes;
}

}  // namespace rubato::kubernetes
