// The commented examples of the modes, as shipped, on less data.
#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/cluster.h"

namespace rubato {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;

constexpr int64_t kSamples = 640;  // an epoch

class ConfigsTest : public ClusterTest {
 protected:
  // Trains configs/NAME.yaml in the folder NAME.
  void TrainExample(const std::string& name, const Arguments& more = {}) {
    Arguments arguments = {"tools/rubato",
                           "train",
                           fs::absolute("configs/" + name + ".yaml"),
                           "--run-dir",
                           name,
                           "--set",
                           "cluster.address=127.0.0.1:0",
                           "--set",
                           absl::StrCat("data.train_size=", kSamples),
                           "--set",
                           "data.test_size=100"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Process::Result result = Start(arguments).Wait();
    EXPECT_EQ(result.code, 0) << result.err;
  }

  // The modes that held, in order.
  std::vector<std::string> Modes(const std::string& run) const {
    std::vector<std::string> modes;
    for (const absl::string_view line :
         absl::StrSplit(ReadText(Path(run + "/views.jsonl")), '\n', absl::SkipEmpty())) {
      const std::string mode = nlohmann::json::parse(line.begin(), line.end())["mode"];
      if (modes.empty() || modes.back() != mode) modes.push_back(mode);
    }
    return modes;
  }

  void ExpectEverySampleInEveryBlock(const std::string& run, int64_t epochs) const {
    const nlohmann::json summary = Summary(run);
    EXPECT_EQ(summary["samples"], epochs * kSamples);
    for (const nlohmann::json& block : summary["blocks"]) {
      EXPECT_EQ(block["samples"], epochs * kSamples) << block;
    }
  }
};

TEST_F(ConfigsTest, Sync) {
  TrainExample("sync");
  EXPECT_THAT(Modes("sync"), ElementsAre("sync"));
  ExpectEverySampleInEveryBlock("sync", 3);
}

TEST_F(ConfigsTest, Async) {
  TrainExample("async");
  EXPECT_THAT(Modes("async"), ElementsAre("async"));
  ExpectEverySampleInEveryBlock("async", 3);
}

TEST_F(ConfigsTest, Bounded) {
  TrainExample("bounded");
  EXPECT_THAT(Modes("bounded"), ElementsAre("bounded, staleness 3"));
  ExpectEverySampleInEveryBlock("bounded", 3);
  // Of each of the two others, one that reads for its contribution c has those below c - 3, and
  // until it is applied can none begin that comes after c + 3.
  for (const nlohmann::json& block : Summary("bounded")["blocks"]) {
    EXPECT_LE(block["staleness_max"], 2 * (2 * 3 + 1)) << block;
  }
}

TEST_F(ConfigsTest, ScheduleSwitchesAtItsPoints) {
  TrainExample("schedule");
  EXPECT_THAT(Modes("schedule"), ElementsAre("sync", "bounded, staleness 3", "async", "sync"));
  ExpectEverySampleInEveryBlock("schedule", 4);
  const nlohmann::json summary = Summary("schedule");
  EXPECT_EQ(summary["switches"], 3);
  // 2 of 8 micro-batches of 8 samples make a contribution: from epoch 0.5 to 3.
  EXPECT_EQ(summary["contributions"]["applied"], kSamples * 5 / 2 / 16);
  for (const nlohmann::json& block : summary["blocks"]) {
    EXPECT_EQ(block["updates"], kSamples * 5 / 2 / 16 + kSamples * 3 / 2 / 64) << block;
  }
}

}  // namespace
}  // namespace rubato
