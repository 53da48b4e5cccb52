#include "server/process/server_memory.h"

#include <algorithm>
#include <map>
#include <utility>

#include "common/base/status.h"
#include "common/space/job_codec.h"
#include "common/space/modes.h"
#include "common/space/reduction_tree.h"
#include "common/wire/stream_memory.h"
#include "server/optimizers/optimizer.h"
#include "server/run/collect.h"

namespace rubato {
namespace {

// Measured: a server of a model of 7,850 values and one worker, without its stream. Code and
// libraries 19, threads and gRPC 3.
constexpr int64_t kProcessBytes = 22 << 20;

// Measured with 12,300 blocks of 4 KiB: a block's ledger, and what its buffers take beside values.
constexpr int64_t kBlockBytes = 1800;

// The window in which who coordinates reads the parts and the result of shards that do not see its
// folder.
int64_t WindowBytes(const Placement& placement, int64_t slots) {
  const int64_t all = placement.space().values() * static_cast<int64_t>(sizeof(float));
  return std::min(all * (1 + slots), kMaxBytesUnderWay);
}

}  // namespace

int64_t MaxSumsHeld(int64_t leaves, int64_t workers) {
  const ReductionTree tree(leaves);
  // By node that has been made up so far: how many of its parts may wait while it is not whole.
  std::map<std::pair<int64_t, int64_t>, int64_t> nodes;
  for (int64_t i = 0; i < workers; ++i) {
    const Range own = LeavesOfMember(leaves, i, workers);
    for (const Range& node : tree.MaximalNodes(own)) nodes[{node.begin, node.end}] = 0;
  }
  while (nodes.size() > 1) {
    for (auto left = nodes.begin(); left != nodes.end(); ++left) {
      const Range node{left->first.first, left->first.second};
      const Range sibling = tree.Sibling(node);
      const auto right = nodes.find({sibling.begin, sibling.end});
      if (sibling.begin < node.begin || right == nodes.end()) continue;
      // One of the two is not whole; the other may be, and is one sum then.
      const int64_t most = std::max(left->second + std::max<int64_t>(right->second, 1),
                                    right->second + std::max<int64_t>(left->second, 1));
      const Range parent = tree.Parent(node);
      nodes.erase(right);
      nodes.erase(left);
      nodes[{parent.begin, parent.end}] = most;
      break;
    }
  }
  return nodes.begin()->second;
}

absl::StatusOr<ServerMemory> PlanServerMemory(const proto::Job& job, const Placement& placement,
                                              int shard) {
  RUBATO_ASSIGN_OR_RETURN(const Optimizer optimizer, Optimizer::Create(ServerOptimizer(job)));
  const int64_t slots = static_cast<int64_t>(optimizer.slots().size());
  const int64_t own = placement.Values(shard).size() * static_cast<int64_t>(sizeof(float));
  const int64_t workers = job.cluster().workers().start();
  const bool sync = !OnArrival(job.consistency().mode()) || job.consistency().schedule_size() > 0;
  // Buffers that become the next version: in sync they hold sums. On arrival a version is written
  // over the one before, but for blocks that are being sent to another worker meanwhile.
  const int64_t spare =
      sync ? own * std::max<int64_t>(1, MaxSumsHeld(job.train().micro_batches(), workers))
           : own * (workers > 1);
  ServerMemory memory;
  memory.training = kProcessBytes + own * (1 + slots) + spare +
                    placement.Blocks(shard).size() * kBlockBytes +
                    workers * StreamMemory(SharesMemory(job));
  // Gradients are read in the workers' memory.
  if (IsLent(SharesMemory(job), PushCodec(job), job.wire().chunk()) &&
      LendsGradients(placement.max_values())) {
    memory.training += workers * own;
  }
  // Parameters are encoded once for all who pull them; two versions are kept.
  if (PullCodec(job) != Codec::kFloat32) {
    memory.training += 2 * static_cast<int64_t>(PulledBytes(job, placement.Values(shard),
                                                            placement.space().values()));
  }
  // The version of the checkpoint and its slots, of which what is overwritten is held twice until
  // it has been written.
  memory.checkpoint = own * (1 + slots);
  if (shard == 0 && !job.cluster().dedicated_coordinator()) {
    memory.checkpoint += WindowBytes(placement, slots);
  }
  return memory;
}

absl::StatusOr<ServerMemory> PlanCoordinatorMemory(const proto::Job& job,
                                                   const Placement& placement) {
  RUBATO_ASSIGN_OR_RETURN(const Optimizer optimizer, Optimizer::Create(ServerOptimizer(job)));
  return ServerMemory{kProcessBytes,
                      WindowBytes(placement, static_cast<int64_t>(optimizer.slots().size()))};
}

}  // namespace rubato
