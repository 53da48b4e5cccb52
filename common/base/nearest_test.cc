#include "common/base/nearest.h"

#include "gtest/gtest.h"

namespace rubato {
namespace {

TEST(NearestWordTest, FindsWhatIsMeant) {
  const std::vector<std::string> verbs = {"train", "inspect", "help"};
  EXPECT_EQ(NearestWord("trian", verbs), "train");
  EXPECT_EQ(NearestWord("TRAIN", verbs), "train");
  EXPECT_EQ(NearestWord("ins", verbs), "inspect");
  EXPECT_EQ(NearestWord("mpl", {"mlp", "cnn"}), "mlp");
  EXPECT_EQ(NearestWord("run", {"dry-run", "run-dir"}), "run-dir");
  EXPECT_EQ(NearestWord("learning-rat", {"learning_rate", "learning_rate_parity"}),
            "learning_rate");
}

TEST(NearestWordTest, FindsNothingFarFetched) {
  EXPECT_EQ(NearestWord("frobnicate", {"train", "inspect"}), "");
  EXPECT_EQ(NearestWord("x", {"y"}), "");
  EXPECT_EQ(NearestWord("gpu", {"cpu"}), "");
  EXPECT_EQ(NearestWord(std::string(1000, 'x'), {std::string(999, 'x')}), "");
  EXPECT_EQ(NearestWord("train", {}), "");
}

}  // namespace
}  // namespace rubato
