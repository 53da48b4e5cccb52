// Workers on emulated GPUs: all that a GPU's worker does, in real processes, but for the GPU. What
// the kernels compute is tested elsewhere; here, that jobs keep their promises.
#include <stdlib.h>

#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/emulated_gpus.h"
#include "tools/bench/cluster_step.h"

namespace rubato {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class EmulatedGpuTest : public EmulatedGpusTest {
 protected:
  double LossAtTheEnd(const std::string& run) const {
    return Metrics(run, "train").back()["loss"].get<double>();
  }
};

TEST_F(EmulatedGpuTest, SyncResultsDoNotDependOnTheCluster) {
  Train("one", {"device=cuda", "train.micro_batches=4"});
  Train("more", {"device=cuda", "train.micro_batches=4", "cluster.workers=3", "cluster.servers=2"});
  EXPECT_EQ(Summary("more")["digest"], Summary("one")["digest"]);
  EXPECT_THAT(ReadText(Path("one/job.yaml")), HasSubstr("type: cuda"));
  SetGpus("none");
  Train("cpu", {"device=cpu", "train.micro_batches=4"});
  // 40 steps of roundings apart.
  EXPECT_NEAR(LossAtTheEnd("one"), LossAtTheEnd("cpu"), 1e-3 * LossAtTheEnd("cpu"));
  EXPECT_NE(Summary("one")["digest"], Summary("cpu")["digest"]) << "was it emulated?";
}

// A worker's GPUs add up along the tree that workers add up along, and one sum leaves them.
TEST_F(EmulatedGpuTest, ResultsDoNotDependOnHowManyGpusAWorkerHas) {
  SetGpus("emulated:4");
  const auto train = [&](const std::string& run, int workers, int gpus) {
    Train(run, {"device=cuda", "train.micro_batches=8", absl::StrCat("cluster.workers=", workers),
                absl::StrCat("cluster.gpus_per_worker=", gpus)});
    EXPECT_EQ(Summary(run)["digest"], Summary("one")["digest"]) << run;
  };
  const auto pushed = [&](const std::string& run) {
    return Metrics(run, "train").back()["pushed_bytes"].get<int64_t>();
  };
  train("one", 1, 1);
  train("two", 1, 2);
  train("three", 1, 3);
  train("four", 1, 4);
  train("two-two", 2, 2);
  EXPECT_THAT(ReadText(Path("one/logs/worker-0.log")), HasSubstr("computes on GPU 0 of 4"));
  EXPECT_THAT(ReadText(Path("four/logs/worker-0.log")),
              HasSubstr("computes on GPUs 0, 1, 2, 3 of 4"));
  EXPECT_THAT(ReadText(Path("two-two/logs/worker-1.log")), HasSubstr("computes on GPUs 2, 3 of 4"));
  EXPECT_EQ(pushed("four"), pushed("one"));
  EXPECT_THAT(ReadText(Path("four/logs/worker-0.log")),
              HasSubstr("its GPUs add their sums up among themselves, by copies"));
}

// By another way, to the same bits.
TEST_F(EmulatedGpuTest, TheHostAddsWhatGpusMayNotOrCannotExchange) {
  SetGpus("emulated:4");
  const Arguments job = {"device=cuda", "train.micro_batches=8", "cluster.gpus_per_worker=4"};
  Train("gpus", job);
  const auto train = [&](const std::string& run, const std::string& setting) {
    Arguments settings = job;
    settings.push_back(setting);
    Train(run, settings);
    EXPECT_EQ(Summary(run)["digest"], Summary("gpus")["digest"]);
    const std::string log = ReadText(Path(run + "/logs/worker-0.log"));
    EXPECT_THAT(log, Not(HasSubstr("among themselves")));
    return log;
  };
  EXPECT_THAT(train("host", "device.exchange=host"), Not(HasSubstr("the host adds")));
  setenv("RUBATO_TEST_EXCHANGE_REFUSES", "1", 1);
  EXPECT_THAT(train("refused", "device.exchange=auto"),
              HasSubstr("its GPUs exchange nothing, and the host adds: an exchange was told to"));
  unsetenv("RUBATO_TEST_EXCHANGE_REFUSES");
}

// On arrival, too, a worker is one, with contributions of the same size.
TEST_F(EmulatedGpuTest, OnArrivalAWorkerIsOneWhateverGpusItHas) {
  SetGpus("emulated:4");
  for (const int gpus : {1, 4}) {
    Train(absl::StrCat("async-", gpus),
          {"device=cuda", "train.micro_batches=4", "consistency=async",
           absl::StrCat("cluster.gpus_per_worker=", gpus)});
  }
  EXPECT_EQ(Summary("async-4")["digest"], Summary("async-1")["digest"]);
  EXPECT_EQ(Summary("async-4")["contributions"], Summary("async-1")["contributions"]);
}

// With CUDA a GPU's failure ends its process.
TEST_F(EmulatedGpuTest, AWorkerGoesOnWithoutAGpuThatHasFailed) {
  SetGpus("emulated:4");
  const Arguments job = {"device=cuda", "train.micro_batches=8"};
  Train("one", job);
  setenv("RUBATO_TEST_GPU_FAILS", absl::StrCat("2:60:", Path("failed")).c_str(), 1);
  const Process::Result result =
      StartTrain("failed-gpu", {job[0], job[1], "cluster.gpus_per_worker=4"}).Wait();
  unsetenv("RUBATO_TEST_GPU_FAILS");
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err,
              HasSubstr("worker 0 ended: on GPU 2: a step failed; started again (1 of 3)"));
  EXPECT_THAT(result.err, HasSubstr("worker 0: leaves GPU 2 out: the choice of a GPU failed"));
  EXPECT_THAT(ReadText(Path("failed-gpu/logs/worker-0.log")),
              HasSubstr("computes on GPUs 0, 1, 3 of 4"));
  EXPECT_THAT(ReadText(Path("failed-gpu/logs/worker-0.log")), HasSubstr("among themselves"));
  EXPECT_EQ(Summary("failed-gpu")["digest"], Summary("one")["digest"]);
}

TEST_F(EmulatedGpuTest, TooFewGpusEndWith2AndASentence) {
  SetGpus("emulated:3");
  const Process::Result result =
      StartTrain("run", {"device=cuda", "cluster.workers=2", "cluster.gpus_per_worker=2"}).Wait();
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err,
              HasSubstr("worker 1: cluster.gpus_per_worker: found 2, so that 2 workers of a host "
                        "take 4 GPUs, and there are 3"));
}

TEST_F(EmulatedGpuTest, Bf16Learns) {
  for (const std::string mode : {"sync", "async"}) {
    Train(mode, {"device={type: cuda, precision: bf16}", "consistency=" + mode, "cluster.workers=2",
                 "train.micro_batches=4"});
    EXPECT_LT(LossAtTheEnd(mode), 0.8 * Metrics(mode, "train").front()["loss"].get<double>());
  }
}

// A worker's log says what of its model is in one piece, and nothing of what the model lacks.
TEST_F(EmulatedGpuTest, ConvolutionsAreInOnePieceUnlessTheJobWantsProducts) {
  for (const std::string form : {"auto", "products"}) {
    Train(form, {"device={type: cuda, precision: bf16, convolution: " + form + "}", "model=lenet",
                 "data.train_size=64", "data.test_size=10", "train.until={steps: 2}"});
    const std::string log = ReadText(Path(form + "/logs/worker-0.log"));
    EXPECT_THAT(log, Not(HasSubstr("attention")));
    EXPECT_EQ(log.find("convolutions in one piece, by plain loops") != std::string::npos,
              form == "auto");
  }
}

// The GPU looks at its sum; where it sees such a value, the worker finds whose it is.
TEST_F(EmulatedGpuTest, AGradientThatIsNotFiniteEndsTheRunBeforeItIsApplied) {
  const Process::Result result =
      StartTrain("run", {"device=cuda", "optimizer.learning_rate=1e30"}).Wait();
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.err, HasSubstr(", and the gradient of 1.weight is not finite; there is no "
                                    "checkpoint"));
}

// The loss is scaled by 65536 at the start, which overflows; it is halved until it does not.
TEST_F(EmulatedGpuTest, StepsThatOverflowInFp16AreLeftOutAndCounted) {
  const std::vector<std::string> fp16 = {
      "device={type: cuda, precision: fp16}", "train.on_non_finite=skip",
      // As if the data's values were larger.
      "data.normalize={mean: [0], std: [0.01]}", "optimizer.learning_rate=0.00001"};
  Train("sync", fp16);
  const int64_t skipped = Summary("sync")["skipped"].get<int64_t>();
  EXPECT_GE(skipped, 1);
  EXPECT_LE(skipped, 16);  // 2^16 at the most
  EXPECT_TRUE(std::isfinite(LossAtTheEnd("sync")));

  std::vector<std::string> async = fp16;
  async.push_back("consistency=async");
  Train("async", async);
  EXPECT_GE(Summary("async")["contributions"]["left_out"].get<int64_t>(), 1);
  EXPECT_TRUE(std::isfinite(LossAtTheEnd("async")));
}

// What tools/gpu_check measures of steps through a server, in small.
TEST_F(EmulatedGpuTest, StepsThroughAServerAreMeasured) {
  for (const std::string model :
       {"{preset: char_gpt, blocks: 1, heads: 2, channels: 16}", "resnet20"}) {
    const bool is_text = model != "resnet20";
    ClusterStepBench bench;
    bench.model = model;
    bench.device = "cuda";
    bench.precision = "bf16";
    bench.batch = 2;
    bench.workers = 1;
    bench.seconds = 8;
    bench.accumulate = is_text ? 3 : 2;
    if (is_text) {
      bench.shape = {8};
      bench.classes = 3000;
    }
    const absl::StatusOr<std::string> text = BenchClusterStep(bench, /*json=*/true);
    RUBATO_ASSERT_OK(text);
    const nlohmann::json measured = nlohmann::json::parse(*text);
    EXPECT_EQ(measured["device"], "cuda");
    EXPECT_TRUE(measured["flops_share_of_peak"].is_null()) << "what a GPU reaches is not known";
    EXPECT_GT(measured["samples_per_second"], 0);
    EXPECT_EQ(measured["accumulate"], is_text ? 3 : 2);
    EXPECT_GE(measured["communication_hidden"], 0);
    EXPECT_LE(measured["communication_hidden"], 1);
  }
}

TEST_F(EmulatedGpuTest, WithoutAGpuCudaEndsWith2AndASentence) {
  SetGpus("none");
  setenv("CUDA_VISIBLE_DEVICES", "", 1);  // none, where there are some
  const Process::Result result = StartTrain("run", {"device=cuda"}).Wait();
  unsetenv("CUDA_VISIBLE_DEVICES");
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, HasSubstr("worker 0: device.type: found cuda, but "));
}

}  // namespace
}  // namespace rubato
