#include "worker/process/worker_memory.h"

#include <algorithm>
#include <vector>

#include "common/space/job_codec.h"
#include "common/space/modes.h"
#include "common/space/reduction_tree.h"
#include "common/wire/stream_memory.h"
#include "worker/step/micro_batches.h"

namespace rubato {
namespace {

// Measured: workers of models of 7,850 and of 203,530 values, less their data and streams. Code and
// libraries 22, threads, gRPC and OpenBLAS 5, oneDNN 8 where it computes.
constexpr int64_t kProcessBytes = 35 << 20;

// Gradients that are held at a time, or are still on their way.
int64_t GradientsHeld(const proto::Job& job, int64_t index, int64_t threads) {
  const int64_t workers = job.cluster().workers().start();
  int64_t most = 1;
  const auto count = [&](int64_t leaves, Range own) {
    const std::vector<Range> nodes = ReductionTree(leaves).MaximalNodes(own);
    for (const Range& node : nodes) {
      // The sum of the node before may not have left yet.
      most = std::max(most,
                      MicroBatches::MaxBuffers(leaves, node, threads) + (nodes.size() > 1 ? 1 : 0));
    }
  };
  const int64_t leaves = job.train().micro_batches();
  const bool switches = job.consistency().schedule_size() > 0;
  const bool sync = !OnArrival(job.consistency().mode());
  if (sync || switches) count(leaves, {index * leaves / workers, (index + 1) * leaves / workers});
  if (!sync || switches) {
    const int64_t own = std::max<int64_t>(1, leaves / workers);
    count(own, {0, own});
  }
  return most + (job.cluster().servers() > 1 ? 1 : 0);  // see MicroBatches
}

}  // namespace

WorkerMemory PlanWorkerMemory(const proto::Job& job, const WorkerSizes& sizes, int64_t index) {
  constexpr int64_t kValue = sizeof(float);
  const proto::Train& train = job.train();
  const int64_t workers = job.cluster().workers().start();
  const int64_t threads = std::min<int64_t>(job.device().threads(), train.micro_batches());
  const int64_t share = (train.micro_batches() + workers - 1) / std::max<int64_t>(1, workers);
  const int64_t batches = threads + 1 + job.data().prefetch() * share;
  const int64_t batch = train.batch_size() / train.micro_batches() * sizes.example_values * kValue;
  WorkerMemory memory;
  // In sync the two versions that the servers keep are read in their memory.
  const bool borrows =
      (!OnArrival(job.consistency().mode()) || job.consistency().schedule_size() > 0) &&
      IsLent(SharesMemory(job), PullCodec(job), job.wire().chunk());
  memory.training = kProcessBytes + sizes.data_bytes +
                    sizes.values * kValue * (1 + borrows + GradientsHeld(job, index, threads)) +
                    threads * sizes.training_bytes + sizes.test_bytes + batches * batch +
                    job.cluster().servers() * StreamMemory(SharesMemory(job));
  // What goes out in fewer bytes lies beside the gradient; of topk what has not gone out, too.
  if (PushCodec(job) != Codec::kFloat32) {
    memory.training += static_cast<int64_t>(PushedBytes(job, {0, sizes.values}, sizes.values));
  }
  if (PushCodec(job) == Codec::kTopK) {
    memory.training += sizes.values * kValue * (job.optimizer().momentum() > 0 ? 2 : 1);
  }
  memory.test = sizes.values * kValue;
  return memory;
}

}  // namespace rubato
