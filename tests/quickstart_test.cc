// The first job of a new user, as shipped: it learns, and leaves the files that it promises.
#include <cmath>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/cluster.h"

namespace rubato {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::set<std::string> Keys(const nlohmann::json& object) {
  std::set<std::string> keys;
  for (const auto& item : object.items()) keys.insert(item.key());
  return keys;
}

class QuickstartTest : public ClusterTest {
 protected:
  // Trains configs/quickstart.yaml and returns its run's folder.
  std::string Quickstart(const std::string& mode) {
    const std::string config = fs::absolute("configs/quickstart.yaml");
    result_ = Start({"tools/rubato", "train", config, "--set", "consistency.mode=" + mode, "--set",
                     "cluster.address=127.0.0.1:0"})
                  .Wait(absl::Minutes(7));
    EXPECT_EQ(result_.code, 0) << result_.err;
    return "runs/" + fs::read_symlink(Path("runs/latest")).string();
  }

  // What every run leaves.
  void ExpectFiles(const std::string& run) {
    EXPECT_THAT(run, StartsWith("runs/quickstart-"));
    for (const std::string file : {"job.yaml", "logs/server-0.log", "logs/server-1.log",
                                   "logs/worker-0.log", "logs/worker-1.log"}) {
      EXPECT_TRUE(fs::exists(Path(run + "/" + file))) << file;
    }
    EXPECT_EQ(InspectDigest(run), Summary(run)["digest"]);
    EXPECT_THAT(result_.out, AllOf(ContainsRegex("test accuracy +9[0-9]\\.[0-9]+ %"),
                                   ContainsRegex("speed +[0-9]+ samples/s"), HasSubstr(run),
                                   HasSubstr("Try next:")));
    EXPECT_FALSE(absl::StrContains(ReadText(Path(run + "/metrics.jsonl")), "nan"));
  }

  // Three epochs of 60,000 samples, two workers.
  void ExpectMetrics(const std::string& run, int64_t units_per_epoch) {
    const std::vector<nlohmann::json> train = Metrics(run, "train"), test = Metrics(run, "test");
    ASSERT_FALSE(train.empty());
    double time = 0;
    for (const nlohmann::json& line : train) {
      EXPECT_EQ(Keys(line), (std::set<std::string>{"kind", "step", "epoch", "samples", "time",
                                                   "loss", "accuracy", "learning_rate",
                                                   "samples_per_second", "staleness"}));
      for (const std::string key : {"step", "samples", "epoch", "loss", "accuracy",
                                    "samples_per_second", "learning_rate"}) {
        EXPECT_GT(line[key], 0) << line;  // and is no null
      }
      EXPECT_GE(line["staleness"], 0);
      EXPECT_GE(line["time"], time);
      time = line["time"];
      EXPECT_NEAR(line["epoch"], line["samples"].get<double>() / 60000, 1e-9);
    }
    ASSERT_EQ(test.size(), 3u);
    for (size_t i = 0; i < test.size(); ++i) {
      EXPECT_EQ(Keys(test[i]), (std::set<std::string>{"kind", "step", "epoch", "samples", "time",
                                                      "loss", "accuracy"}));
      EXPECT_EQ(test[i]["step"], (static_cast<int64_t>(i) + 1) * units_per_epoch);
      EXPECT_EQ(test[i]["samples"], (i + 1) * 60000);
    }
    EXPECT_EQ(test.back()["accuracy"], Summary(run)["test_accuracy"]);
    EXPECT_LT(train.back()["loss"], train.front()["loss"]);
  }

  Process::Result result_;
};

TEST_F(QuickstartTest, LearnsInSync) {
  const std::string run = Quickstart("sync");
  EXPECT_GE(Summary(run)["test_accuracy"], 0.97);
  ExpectFiles(run);
  ExpectMetrics(run, /*units_per_epoch=*/938);  // 60000 / 64, rounded up
  // A line every 50 steps of 64 samples.
  EXPECT_EQ(Metrics(run, "train").size(), 3 * 60000 / (50 * 64));
  std::cout << "sync: test accuracy " << Summary(run)["test_accuracy"] << ", "
            << Summary(run)["seconds"] << " s" << std::endl;
}

TEST_F(QuickstartTest, LearnsInAsync) {
  const std::string run = Quickstart("async");
  EXPECT_GE(Summary(run)["test_accuracy"], 0.97);
  ExpectFiles(run);
  ExpectMetrics(run, /*units_per_epoch=*/1875);  // of 32 samples
  std::cout << "async: test accuracy " << Summary(run)["test_accuracy"] << ", "
            << Summary(run)["seconds"] << " s" << std::endl;
}

// What is not finite is null, in every file that is JSON, and told.
TEST_F(QuickstartTest, ADivergedRunWritesNoNan) {
  Train("run", {"optimizer.learning_rate=1e30"});
  const std::vector<nlohmann::json> train = Metrics("run", "train");
  ASSERT_EQ(train.size(), 40u);
  EXPECT_TRUE(train.front()["loss"].is_number());
  EXPECT_TRUE(train.back()["loss"].is_null());
  EXPECT_TRUE(Summary("run")["test_loss"].is_null());
  EXPECT_THAT(InspectDigest("run"), ContainsRegex("^[0-9a-f]{64}$"));
}

}  // namespace
}  // namespace rubato
