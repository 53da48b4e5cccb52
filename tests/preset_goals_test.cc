// What configs/fashion_cnn.yaml and configs/char_gpt.yaml promise of real data, beside PyTorch's
// figures with the same settings (tools/scripts/train_in_pytorch.py).
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/cluster.h"

namespace rubato {
namespace {

class PresetGoals : public ClusterTest {
 protected:
  // The summary of a run of `config` with what lies at `place` in the folder of test data. As long
  // as it takes: the test's own limit ends it.
  nlohmann::json SummaryOf(const std::string& config, const std::string& data,
                           const std::string& place) {
    Process& train = Start({"tools/rubato", "train", std::filesystem::absolute("configs/" + config),
                            "--run-dir", "run", "--set", "cluster.address=127.0.0.1:0", "--set",
                            absl::StrCat("data.path=", data, "/", place)});
    const Process::Result result = train.Wait(absl::InfiniteDuration());
    EXPECT_EQ(result.code, 0) << result.err;
    if (result.code != 0) return nullptr;
    const nlohmann::json summary = Summary("run");
    std::cout << config << ": " << summary.dump() << std::endl;
    return summary;
  }
};

TEST_F(PresetGoals, CnnReaches90AndAHalfPercentOfFashionMnist) {
  const char* data = std::getenv("RUBATO_TEST_DATA");
  if (data == nullptr) GTEST_SKIP() << "RUBATO_TEST_DATA is not set";
  const nlohmann::json summary = SummaryOf("fashion_cnn.yaml", data, "fashion-mnist");
  ASSERT_TRUE(summary.is_object());
  EXPECT_GE(summary["test_accuracy"], 0.905);
}

TEST_F(PresetGoals, CharGptReaches1Point75OfTinyShakespeare) {
  const char* data = std::getenv("RUBATO_TEST_DATA");
  if (data == nullptr) GTEST_SKIP() << "RUBATO_TEST_DATA is not set";
  const nlohmann::json summary = SummaryOf("char_gpt.yaml", data, "tinyshakespeare/input.txt");
  ASSERT_TRUE(summary.is_object());
  EXPECT_LE(summary["test_loss"], 1.75);
}

}  // namespace
}  // namespace rubato
