// A job of two workers of which one overflows, always: one computes in float16 on an emulated GPU,
// of values beyond its range, the other in float32 on the CPU, where nothing overflows. What
// overflows must change nothing, on either shard, and be counted.
#include <stdlib.h>

#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/emulated_gpus.h"
#include "tests/sequential_sgd.h"
#include "tests/worker_trace.h"

namespace rubato {
namespace {

constexpr int64_t kSamples = 1536, kBatch = 64;

class OverflowTest : public EmulatedGpusTest {
 protected:
  OverflowTest() { setenv("RUBATO_TEST_TRACE", folder().c_str(), 1); }
  ~OverflowTest() override { unsetenv("RUBATO_TEST_TRACE"); }

  static Arguments JobOf(const std::string& mode) {
    return {"cluster.servers=2", "cluster.workers=2", "consistency=" + mode,
            absl::StrCat("data.train_size=", kSamples),
            // Beyond 65504, whatever the loss is multiplied by.
            "data.normalize={mean: [0], std: [0.000001]}", "optimizer.learning_rate=1e-15",
            "device={type: cuda, precision: fp16}", "train.on_non_finite=skip",
            "train.until={steps: 12}"};
  }

  // Worker 1's device is the CPU; one way or the other, each trains to the end.
  void RunByHand(Arguments set) {
    std::filesystem::create_directory(Path("run"));
    std::vector<Process*> processes;
    processes.push_back(&StartServer(0, set, {"--run-dir", "run", "--listen", "127.0.0.1:0"}));
    set.push_back("cluster.address=" + AwaitAddress("run", *processes[0]));
    processes.push_back(&StartServer(1, set));
    processes.push_back(&StartWorker(set, {"--rank", "0"}));
    set.push_back("device.type=cpu");
    processes.push_back(&StartWorker(set, {"--rank", "1"}));
    for (Process* process : processes) {
      const Process::Result result = process->Wait();
      EXPECT_EQ(result.code, 0) << result.err;
    }
  }
};

TEST_F(OverflowTest, InSyncEveryStepInWhichOneWorkerOverflowsIsLeftOutOnAllShards) {
  RunByHand(JobOf("sync"));
  const nlohmann::json summary = Summary("run");
  EXPECT_EQ(summary["skipped"], 12);
  const SequentialGradients gradients(Job(JobOf("sync")));
  EXPECT_EQ(summary["digest"], FlatDigest(gradients.layout(), gradients.InitialParameters()));
  // The other worker's part was finite, and there.
  EXPECT_EQ(ReadWorkerTrace(ReadText(Path("worker-1"))).computed.size(), 12u);
}

TEST_F(OverflowTest, OnArrivalWhatOneWorkerOverflowsIsNotThereForTheOther) {
  RunByHand(JobOf("async"));
  const nlohmann::json summary = Summary("run");
  const std::vector<WorkerTrace::Computed> computed =
      ReadWorkerTrace(ReadText(Path("worker-1"))).computed;
  const nlohmann::json& counts = summary["contributions"];
  EXPECT_GE(counts["left_out"], 1);
  int64_t told = 0;
  for (const auto& [what, count] : counts.items()) {
    if (what != "given") told += count.get<int64_t>();
  }
  EXPECT_EQ(counts["given"], told) << counts;
  // SGD by the other's contributions alone, in their order: to the last bit.
  const proto::Job job = Job(JobOf("async"));
  SequentialGradients gradients(job);
  std::vector<float> w = gradients.InitialParameters(), m(w.size());
  const int64_t applied = counts["applied"], leaves = job.train().micro_batches() / 2;
  const int64_t samples = kBatch / 2, units = kSamples / samples;
  ASSERT_GE(static_cast<int64_t>(computed.size()), applied);
  const float rate =
      static_cast<float>(static_cast<double>(static_cast<float>(job.optimizer().learning_rate())) *
                         static_cast<double>(samples) / static_cast<double>(kBatch));
  const float decay = static_cast<float>(job.optimizer().momentum());
  for (int64_t i = 0; i < applied; ++i) {
    const int64_t unit = computed[i].unit;
    double loss = 0;
    const std::vector<float> sum =
        gradients.Sum(w, unit / units, unit % units * samples, samples, leaves, &loss);
    for (size_t j = 0; j < w.size(); ++j) {
      const float g = 1.0f / static_cast<float>(samples) * sum[j];
      m[j] = i == 0 ? g : decay * m[j] + g;
      w[j] = w[j] - rate * m[j];
    }
  }
  EXPECT_EQ(summary["digest"], FlatDigest(gradients.layout(), w));
  for (const nlohmann::json& block : summary["blocks"]) {
    EXPECT_EQ(block["updates"], applied);
    EXPECT_EQ(block["staleness_max"], 0);
  }
}

}  // namespace
}  // namespace rubato
