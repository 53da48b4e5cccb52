#include "worker/process/worker_memory.h"

#include <algorithm>
#include <vector>

#include "common/space/job_codec.h"
#include "common/space/modes.h"
#include "common/space/reduction_tree.h"
#include "common/wire/stream_memory.h"
#include "worker/step/lane_plan.h"
#include "worker/step/micro_batches.h"

namespace rubato {
namespace {

// Measured: workers of models of 7,850 and of 203,530 values, less their data and streams. Code and
// libraries 22, threads, gRPC and OpenBLAS 5, oneDNN 8 where it computes.
constexpr int64_t kProcessBytes = 35 << 20;

// Models side by side, one for each thread of the CPU or each GPU.
struct Lanes {
  bool on_gpus = false;
  int64_t count = 1;
  int keeps = 0;  // sums that each keeps on its GPU
};
Lanes LanesOf(const proto::Job& job) {
  const proto::Device::Type type = job.device().type();
  const int64_t gpus = job.cluster().gpus_per_worker(), parts = job.train().micro_batches();
  Lanes lanes;
  lanes.on_gpus =
      type == proto::Device::TYPE_CUDA || (type == proto::Device::TYPE_AUTO && gpus > 1);
  const int64_t most = lanes.on_gpus ? std::max<int64_t>(gpus, 1) : job.device().threads();
  lanes.count = std::min(most, parts);
  if (lanes.on_gpus) lanes.keeps = WaitingSums(parts, lanes.count);
  return lanes;
}

// Gradients that are held at a time, or are still on their way.
int64_t GradientsHeld(const proto::Job& job, int64_t index, const Lanes& lanes) {
  const int64_t workers = job.cluster().workers().start();
  int64_t most = 1;
  const auto count = [&](int64_t leaves, Range own) {
    const std::vector<Range> nodes = ReductionTree(leaves).MaximalNodes(own);
    for (const Range& node : nodes) {
      // The sum of the node before may not have left yet.
      most = std::max(most, MicroBatches::MaxBuffers(leaves, node, lanes.count, lanes.keeps) +
                                (nodes.size() > 1 ? 1 : 0));
    }
  };
  const int64_t leaves = job.train().micro_batches();
  const bool switches = job.consistency().schedule_size() > 0;
  const bool sync = !OnArrival(job.consistency().mode());
  if (sync || switches) count(leaves, LeavesOfMember(leaves, index, workers));
  if (!sync || switches) {
    const int64_t own = std::max<int64_t>(1, leaves / workers);
    count(own, {0, own});
  }
  return most + (job.cluster().servers() > 1 ? 1 : 0);  // see MicroBatches
}

// Vectors of values that hold gradients, of what the lanes' models do not hold themselves.
int64_t GradientVectors(const proto::Job& job, int64_t index, const Lanes& lanes) {
  const int64_t by_host = GradientsHeld(job, index, lanes);
  if (!lanes.on_gpus || lanes.count == 1) return by_host;
  // GPUs that exchange slices give the host a single sum, and read and write all slices there, of
  // the parameters and of the sum (worker/step/exchanged_sums.h). Which it is, is not known yet.
  Lanes one = lanes;
  one.count = 1;
  one.keeps = WaitingSums(job.train().micro_batches(), one.count);
  return std::max(by_host, GradientsHeld(job, index, one) + 2);
}

}  // namespace

WorkerMemory PlanWorkerMemory(const proto::Job& job, const WorkerSizes& sizes, int64_t index) {
  constexpr int64_t kValue = sizeof(float);
  const proto::Train& train = job.train();
  const int64_t workers = job.cluster().workers().start();
  const Lanes lanes = LanesOf(job);
  const int64_t share = (train.micro_batches() + workers - 1) / std::max<int64_t>(1, workers);
  const int64_t batches = lanes.count + 1 + job.data().prefetch() * share;
  const int64_t batch = train.batch_size() / train.micro_batches() * sizes.example_values * kValue;
  WorkerMemory memory;
  // In sync the two versions that the servers keep are read in their memory.
  const bool borrows =
      (!OnArrival(job.consistency().mode()) || job.consistency().schedule_size() > 0) &&
      IsLent(SharesMemory(job), PullCodec(job), job.wire().chunk());
  // Of a GPU, what it reads and writes by itself (worker/model/device_layout.h): parameters, a
  // gradient and a batch; without the gradient where it tests. Activations lie in its own memory.
  const int64_t staged = sizes.values * kValue + batch;
  const int64_t models = lanes.on_gpus ? lanes.count * (staged + sizes.values * kValue) + staged
                                       : lanes.count * sizes.training_bytes + sizes.test_bytes;
  memory.training = kProcessBytes + sizes.data_bytes +
                    sizes.values * kValue * (1 + borrows + GradientVectors(job, index, lanes)) +
                    models + batches * batch +
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
