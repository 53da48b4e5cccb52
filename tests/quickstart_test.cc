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
  void ExpectMetrics(const std::string& run, bool sync) {
    const std::vector<nlohmann::json> train = Metrics(run, "train"), eval = Metrics(run, "eval"),
                                      test = Metrics(run, "test");
    ASSERT_FALSE(train.empty());
    double time = 0;
    for (const nlohmann::json& line : train) {
      std::set<std::string> keys = Keys(line);
      if (keys.erase("waiting_seconds") > 0) {  // of a window in which somebody could tell
        EXPECT_EQ(keys.erase("communication_hidden"), 1u);
        EXPECT_GE(line["waiting_seconds"], 0);
        EXPECT_GE(line["communication_hidden"], 0);
        EXPECT_LE(line["communication_hidden"], 1);
      }
      EXPECT_EQ(keys, (std::set<std::string>{"kind", "mode", "step", "epoch", "samples", "updates",
                                             "time", "loss", "accuracy", "learning_rate",
                                             "samples_per_second", "staleness", "pushed_bytes",
                                             "pulled_bytes"}));
      EXPECT_EQ(line["mode"], sync ? "sync" : "async");
      for (const std::string key : {"step", "samples", "epoch", "loss", "accuracy",
                                    "samples_per_second", "learning_rate"}) {
        EXPECT_GT(line[key], 0) << line;  // and is no null
      }
      EXPECT_GE(line["staleness"], 0);
      EXPECT_GE(line["time"], time);
      time = line["time"];
      EXPECT_NEAR(line["epoch"], line["samples"].get<double>() / 60000, 1e-9);
    }
    ASSERT_EQ(eval.size(), 3u);
    for (size_t i = 0; i < eval.size(); ++i) {
      EXPECT_EQ(Keys(eval[i]),
                (std::set<std::string>{"kind", "split", "step", "epoch", "samples", "updates",
                                       "due", "time", "loss", "accuracy"}));
      // In sync an epoch's last step is short; on arrival steps are 64 samples each, and a
      // contribution has two of the four micro-batches.
      const int64_t epochs = static_cast<int64_t>(i) + 1;
      EXPECT_EQ(eval[i]["split"], "test");  // the job has no validation split
      // When a test is due on arrival, other contributions are under way.
      const int64_t under_way = sync || i == 2 ? 0 : 8;
      EXPECT_NEAR(eval[i]["updates"], sync ? epochs * 938 : epochs * 60000 / 32, under_way);
      EXPECT_NEAR(eval[i]["samples"], epochs * 60000, under_way * 32);
      EXPECT_EQ(eval[i]["step"], sync ? epochs * 938 : eval[i]["samples"].get<int64_t>() / 64);
    }
    ASSERT_EQ(test.size(), 1u);
    EXPECT_EQ(Keys(test[0]), (std::set<std::string>{"kind", "step", "epoch", "samples", "updates",
                                                    "time", "loss", "accuracy"}));
    EXPECT_EQ(test[0]["samples"], 3 * 60000);
    EXPECT_EQ(test[0]["accuracy"], eval.back()["accuracy"]);
    EXPECT_EQ(test[0]["accuracy"], Summary(run)["test_accuracy"]);
    EXPECT_LT(train.back()["loss"], train.front()["loss"]);
  }

  Process::Result result_;
};

TEST_F(QuickstartTest, LearnsInSync) {
  const std::string run = Quickstart("sync");
  EXPECT_GE(Summary(run)["test_accuracy"], 0.97);
  ExpectFiles(run);
  ExpectMetrics(run, /*sync=*/true);
  // A line every 50 of the 3 * 938 steps, one at the end, and one where five seconds had passed
  // without.
  EXPECT_GE(Metrics(run, "train").size(), 3u * 938 / 50 + 1);
  std::cout << "sync: test accuracy " << Summary(run)["test_accuracy"] << ", "
            << Summary(run)["seconds"] << " s" << std::endl;
}

TEST_F(QuickstartTest, LearnsInAsync) {
  const std::string run = Quickstart("async");
  EXPECT_GE(Summary(run)["test_accuracy"], 0.97);
  ExpectFiles(run);
  ExpectMetrics(run, /*sync=*/false);
  std::cout << "async: test accuracy " << Summary(run)["test_accuracy"] << ", "
            << Summary(run)["seconds"] << " s" << std::endl;
}

// A loss that is not finite ends the run, with its reason, before it touches a parameter; or the
// step is left out. What is not finite is null in every file that is JSON.
TEST_F(QuickstartTest, ADivergedRunEndsOrLeavesStepsOutAndWritesNoNan) {
  const Process::Result result = StartTrain("run", {"optimizer.learning_rate=1e30"}).Wait();
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.err, ContainsRegex("step 1: the loss of micro-batch 0 is -?(nan|inf)"));
  EXPECT_THAT(result.err, HasSubstr(", and the gradient of 1.weight is not finite; there is no "
                                    "checkpoint"));
  for (const nlohmann::json& line : Metrics("run", "train")) EXPECT_TRUE(line["loss"].is_number());
  EXPECT_THAT(Summary("run")["diverged"].get<std::string>(),
              HasSubstr("step 1: the loss of micro-batch 0 is"));
  EXPECT_TRUE(Summary("run")["test_loss"].is_null());

  for (const std::string mode : {"sync", "async"}) {
    const std::string first = mode + "/checkpoints/step-00000040", then = mode + "-again";
    Train(mode, {"consistency=" + mode, "checkpoint.every={steps: 40}"});
    ASSERT_TRUE(fs::create_directory(Path(then)));
    const Process::Result again =
        Start({"tools/rubato", "train", "job.yaml", "--run-dir", then, "--resume", mode, "--set",
               "consistency=" + mode, "--set", "cluster.address=127.0.0.1:0", "--set",
               "optimizer.learning_rate=1e30", "--set", "train.until={steps: 80}"})
            .Wait();
    EXPECT_EQ(again.code, 1);
    EXPECT_THAT(again.err,
                ContainsRegex("worker 0.*(step|contribution) 41: .*the gradient of .* is not "
                              "finite; the last good checkpoint is .*" +
                              first));
  }

  Train("skip", {"optimizer.learning_rate=1e30", "train.on_non_finite=skip"});
  EXPECT_EQ(Metrics("skip", "train").size(), 40u);
  EXPECT_TRUE(Metrics("skip", "train").back()["loss"].is_null());
  EXPECT_EQ(Summary("skip")["skipped"], 39);  // all but the first
  EXPECT_THAT(InspectDigest("skip"), ContainsRegex("^[0-9a-f]{64}$"));
}

}  // namespace
}  // namespace rubato
