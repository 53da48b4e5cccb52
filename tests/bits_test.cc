// In sync the result does not depend on the cluster: the same bits for any number of workers,
// shards and blocks, and those of a loop in one process.
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/cluster.h"
#include "tests/sequential_sgd.h"

namespace rubato {
namespace {

// Jobs that differ in what is computed.
const std::map<std::string, std::vector<std::string>>& Jobs() {
  static const auto* jobs = new std::map<std::string, std::vector<std::string>>{
      // An epoch ends with 28 samples after 23 whole steps of 64.
      {"Four", {}},
      // Not a power of two; an epoch ends with 3 samples, so that micro-batches are empty.
      {"Six",
       {"train={batch_size: 72, micro_batches: 6, until: {steps: 40}}",
        "data={format: glyphs, train_size: 1443, test_size: 200}"}},
      // Blocks that servers cut into parts: in the largest there are three.
      {"ServerThreads", {"cluster.server_threads=3"}},
      // Running statistics behind the parameters.
      {"BatchNorm",
       {"train={batch_size: 64, micro_batches: 4, until: {steps: 40}}",
        "model={layers: [flatten, linear: {out_features: 48}, batch_norm, relu, "
        "linear: {out_features: 10}]}"}},
      // Micro-batches side by side in each worker; the oracle has one thread.
      {"Threads",
       {"train={batch_size: 72, micro_batches: 6, until: {steps: 40}}", "device.threads=3",
        "data={format: glyphs, train_size: 1443, test_size: 200}"}},
      {"BatchNormThreads",
       {"train={batch_size: 64, micro_batches: 8, until: {steps: 40}}", "device.threads=3",
        "model={layers: [flatten, linear: {out_features: 48}, batch_norm, relu, "
        "linear: {out_features: 10}]}"}},
  };
  return *jobs;
}

struct Cut {
  std::string job;
  int workers, shards;
  std::string chunk;
};

void PrintTo(const Cut& cut, std::ostream* out) {
  *out << cut.workers << " workers, " << cut.shards << " shards, blocks of " << cut.chunk;
}

class BitsTest : public ClusterTest, public testing::WithParamInterface<Cut> {
 protected:
  // Computed once for each job.
  const SequentialResult& Oracle() const {
    static auto* results = new std::map<std::string, SequentialResult>();
    const std::string& name = GetParam().job;
    if (results->count(name) == 0) {
      (*results)[name] = TrainSequentially(Job(Jobs().at(name)), /*rate_by_samples=*/false);
    }
    return results->at(name);
  }
};

TEST_P(BitsTest, AreThoseOfOneProcess) {
  const Cut& cut = GetParam();
  std::vector<std::string> set = Jobs().at(cut.job);
  set.push_back(absl::StrCat("cluster.workers=", cut.workers));
  set.push_back(absl::StrCat("cluster.servers=", cut.shards));
  set.push_back(absl::StrCat("wire.chunk=", cut.chunk));
  const Process::Result result = Train("run", set);
  ASSERT_EQ(result.code, 0);

  const SequentialResult& oracle = Oracle();
  const nlohmann::json summary = Summary("run");
  EXPECT_EQ(summary["digest"], oracle.digest);
  EXPECT_EQ(InspectDigest("run"), oracle.digest);
  EXPECT_EQ(InspectDigest("run/parameters.safetensors"), oracle.digest);
  EXPECT_EQ(summary["test_accuracy"], oracle.test_accuracy);
  EXPECT_NEAR(summary["test_loss"], oracle.test_loss, 1e-6 * oracle.test_loss);
  EXPECT_EQ(summary["samples"], oracle.samples);
  EXPECT_EQ(summary["duplicates"], 0);
  EXPECT_EQ(summary["workers_lost"], 0);

  std::vector<double> losses;
  for (const nlohmann::json& line : Metrics("run", "train")) losses.push_back(line["loss"]);
  EXPECT_EQ(losses, oracle.losses);
  // At the end of the first epoch, and at the end.
  EXPECT_EQ(Metrics("run", "eval").size(), 2u);
  EXPECT_EQ(Metrics("run", "test").size(), 1u);
}

std::string Name(const testing::TestParamInfo<Cut>& info) {
  const Cut& cut = info.param;
  return absl::StrCat(cut.job, "MicroBatches", cut.workers, "Workers", cut.shards, "Shards",
                      cut.chunk);
}

// Every number of workers meets every number of shards, and each of both every size of blocks:
// one block for all, 13, and 199.
INSTANTIATE_TEST_SUITE_P(
    , BitsTest,
    testing::Values(Cut{"Four", 1, 1, "256KiB"},  //
                    Cut{"Four", 1, 2, "16KiB"},   //
                    Cut{"Four", 1, 3, "1KiB"},    //
                    Cut{"Four", 2, 1, "16KiB"},   //
                    Cut{"Four", 2, 2, "1KiB"},    //
                    Cut{"Four", 2, 3, "256KiB"},  //
                    Cut{"Four", 3, 1, "1KiB"},    //
                    Cut{"Four", 3, 2, "256KiB"},  //
                    Cut{"Four", 3, 3, "16KiB"},   //
                    Cut{"Four", 4, 1, "256KiB"},  //
                    Cut{"Four", 4, 2, "16KiB"},   //
                    Cut{"Four", 4, 3, "1KiB"},    //
                    // Workers to spare:
                    Cut{"Four", 6, 2, "16KiB"},
                    // Shares of one and two micro-batches; a spare worker.
                    Cut{"Six", 1, 1, "256KiB"},  //
                    Cut{"Six", 4, 3, "16KiB"},   //
                    Cut{"Six", 7, 2, "16KiB"}, Cut{"ServerThreads", 2, 1, "256KiB"},
                    Cut{"BatchNorm", 1, 1, "256KiB"}, Cut{"BatchNorm", 3, 2, "1KiB"},
                    // As many threads as micro-batches, more, and fewer.
                    Cut{"Threads", 2, 1, "16KiB"}, Cut{"Threads", 3, 2, "256KiB"},
                    Cut{"BatchNormThreads", 1, 1, "256KiB"}, Cut{"BatchNormThreads", 2, 2, "1KiB"}),
    Name);

}  // namespace
}  // namespace rubato
