#include "worker/process/worker_memory.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "common/base/status_matchers.h"
#include "gtest/gtest.h"
#include "worker/model/device_layout.h"
#include "worker/model/preset_trajectory.h"
#include "worker/model/presets.h"
#include "worker/step/lane_plan.h"
#include "worker/step/micro_batches.h"

namespace rubato {
namespace {

constexpr int64_t kParts = 8, kBatch = 16, kInputs = 3000;

proto::Job JobOn(proto::Device::Type type, int gpus) {
  proto::Job job;
  job.mutable_device()->set_type(type);
  job.mutable_cluster()->set_gpus_per_worker(gpus);
  job.mutable_train()->set_micro_batches(kParts);
  job.mutable_train()->set_batch_size(kParts * kBatch);
  return job;
}

// By the layout of what devices are given of the host's memory.
TEST(WorkerMemory, HasWhatEachGpuReadsAndWritesOnTheHost) {
  const std::vector<int64_t> shape = {kInputs};
  const auto model = ExpandPreset(ParseModel("preset: PRESET_MLP hidden: [300]"), shape, 10);
  RUBATO_ASSERT_OK(model);
  const auto graph = BuildGraph(*model, shape, 10);
  RUBATO_ASSERT_OK(graph);
  const auto host_bytes = [&](Purpose purpose) {
    const MemoryPlan plan = PlanMemory(*graph, kBatch, purpose);
    return LayOut(*graph, plan, {10}, kBatch, DType::kFloat32, purpose, Keeping{3}).host.bytes;
  };
  const int64_t training = host_bytes(Purpose::kTraining), test = host_bytes(Purpose::kEvaluation);
  EXPECT_GT(test, graph->size * 4);
  EXPECT_GT(training, 2 * graph->size * 4);
  WorkerSizes sizes;
  sizes.values = graph->size;
  sizes.example_values = kInputs;
  const auto planned = [&](proto::Device::Type type, int gpus) {
    return PlanWorkerMemory(JobOn(type, gpus), sizes, 0).training;
  };
  const auto buffers = [](int gpus) {
    return MicroBatches::MaxBuffers(kParts, {0, kParts}, gpus, WaitingSums(kParts, gpus));
  };
  const int64_t batch = kBatch * kInputs * 4, slack = 4096;
  const int64_t on_cpu = planned(proto::Device::TYPE_CPU, 1);  // of activations there are none here
  const int64_t held = MicroBatches::MaxBuffers(kParts, {0, kParts}, 1);
  EXPECT_EQ(buffers(1), 1) << "it adds them up by itself";
  for (const int gpus : {1, 2, 4}) {
    const int64_t more = planned(proto::Device::TYPE_CUDA, gpus) - on_cpu;
    // Of several, all slices of parameters and of the sum beside one gradient, if they exchange.
    const int64_t vectors = gpus == 1 ? buffers(1) : std::max<int64_t>(buffers(gpus), 1 + 2);
    EXPECT_NEAR(more,
                gpus * training + test + (gpus - 1) * batch + (vectors - held) * graph->size * 4,
                (gpus + 1) * slack);
  }
  EXPECT_EQ(planned(proto::Device::TYPE_AUTO, 2), planned(proto::Device::TYPE_CUDA, 2));
  EXPECT_EQ(planned(proto::Device::TYPE_AUTO, 1), on_cpu);
  EXPECT_EQ(planned(proto::Device::TYPE_CUDA, 100), planned(proto::Device::TYPE_CUDA, kParts))
      << "no more than there are micro-batches";
  sizes.training_bytes = sizes.test_bytes = int64_t{1} << 30;  // are in the GPU's memory
  EXPECT_LT(planned(proto::Device::TYPE_CUDA, 1), int64_t{1} << 30);
  EXPECT_GT(planned(proto::Device::TYPE_CPU, 1), int64_t{2} << 30);
}

}  // namespace
}  // namespace rubato
