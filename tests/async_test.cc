// The mode `async`: with one worker it is sequential SGD, bit for bit; with more, every sample is
// counted once in every block, and the job learns.
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/cluster.h"
#include "tests/sequential_sgd.h"

namespace rubato {
namespace {

using AsyncTest = ClusterTest;

class OneWorkerTest : public ClusterTest, public testing::WithParamInterface<std::string> {};

TEST_P(OneWorkerTest, IsSequentialSgdBitForBit) {
  for (const std::string shards : {"1", "2"}) {
    const std::vector<std::string> set = {"consistency.mode=async", GetParam(),
                                          "cluster.servers=" + shards};
    const SequentialResult oracle = TrainSequentially(Job(set), /*rate_by_samples=*/true);
    const std::string run = "run" + shards;
    Train(run, set);
    const nlohmann::json summary = Summary(run);
    EXPECT_EQ(summary["digest"], oracle.digest);
    EXPECT_EQ(InspectDigest(run), oracle.digest);
    EXPECT_EQ(summary["test_accuracy"], oracle.test_accuracy);
    EXPECT_EQ(summary["samples"], oracle.samples);
    std::vector<double> losses;
    for (const nlohmann::json& line : Metrics(run, "train")) {
      losses.push_back(line["loss"]);
      EXPECT_EQ(line["staleness"], 0);
    }
    EXPECT_EQ(losses, oracle.losses);
    for (const nlohmann::json& block : summary["blocks"]) {
      EXPECT_EQ(block["updates"], oracle.losses.size());
      EXPECT_EQ(block["staleness_sum"], 0);
      EXPECT_EQ(block["staleness_max"], 0);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    , OneWorkerTest,
    testing::Values("train={batch_size: 64, micro_batches: 1, until: {steps: 40}}",
                    "train={batch_size: 64, micro_batches: 2, until: {steps: 40}}",
                    // The short batch at an epoch's end has 1500 - 25 * 58 = 50 samples.
                    "train={batch_size: 58, micro_batches: 29, until: {epochs: 2}}"),
    [](const auto& info) { return absl::StrCat("Case", info.index); });

// Of the job with `workers` workers over three epochs: what the ledgers of all shards must say.
struct Expected {
  int64_t contributions, samples;
};
Expected ExpectedOf(const proto::Job& job) {
  const int64_t micro_batch = job.train().batch_size() / job.train().micro_batches();
  const int64_t share =
      std::max<int64_t>(1, job.train().micro_batches() / job.cluster().workers().start());
  const int64_t n = job.data().train_size();
  const int64_t contribution = micro_batch * share;
  const int64_t epochs = static_cast<int64_t>(job.train().until().epochs());
  return {epochs * ((n + contribution - 1) / contribution), epochs * n};
}

TEST_F(AsyncTest, EverySampleIsCountedOnceInEveryBlock) {
  for (const int workers : {3, 5}) {
    const std::vector<std::string> set = {
        "consistency.mode=async", "cluster.servers=2", absl::StrCat("cluster.workers=", workers),
        "train={batch_size: 64, micro_batches: 4, until: {epochs: 3}}"};
    const std::string run = absl::StrCat("run", workers);
    Train(run, set);
    const Expected expected = ExpectedOf(Job(set));

    const nlohmann::json summary = Summary(run);
    EXPECT_EQ(summary["steps"], expected.samples / 64);  // of the global batch, whatever the mode
    EXPECT_EQ(summary["samples"], expected.samples);
    EXPECT_EQ(summary["duplicates"], 0);
    ASSERT_EQ(summary["blocks"].size(), 13u);
    int64_t index = 0;
    for (const nlohmann::json& block : summary["blocks"]) {
      EXPECT_EQ(block["block"], index++);
      EXPECT_EQ(block["updates"], expected.contributions);
      EXPECT_EQ(block["samples"], expected.samples);
      const int64_t sum = block["staleness_sum"], max = block["staleness_max"];
      EXPECT_LE(0, max);
      EXPECT_LE(max, sum);
      EXPECT_LE(sum, max * expected.contributions);
      EXPECT_LT(max, expected.contributions);
    }
    EXPECT_EQ(InspectDigest(run), summary["digest"]);

    const std::vector<nlohmann::json> lines = Metrics(run, "train");
    ASSERT_EQ(lines.size(), static_cast<size_t>(expected.contributions));
    EXPECT_EQ(lines.back()["samples"], expected.samples);
    for (const nlohmann::json& line : lines) EXPECT_GE(line["staleness"], 0);
    // Three epochs of 1500 glyphs: from chance, 2.3 and 0.1, to well beyond, however stale the
    // gradients are on a busy machine (0.49 was seen).
    EXPECT_LT(summary["test_loss"], 1.8);
    EXPECT_GT(summary["test_accuracy"], 0.3);
    EXPECT_GT(lines.front()["loss"], 2.0);
    EXPECT_EQ(Metrics(run, "eval").size(), 3u);
    EXPECT_EQ(Metrics(run, "test").size(), 1u);
  }
}

}  // namespace
}  // namespace rubato
