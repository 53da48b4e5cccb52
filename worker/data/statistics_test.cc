#include "worker/data/statistics.h"

#include <cmath>

#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Examples Rows(int64_t width, const std::vector<float>& features) {
  Examples examples;
  examples.shape = {width, 0, 0};
  examples.features = features;
  examples.values.resize(features.size() / width);
  return examples;
}

// The textbook's example: 2, 4, 4, 4, 5, 5, 7, 9 have mean 5 and deviation 2.
TEST(StatisticsTest, ComputesMeanAndDeviationOfEachColumn) {
  const Examples train =
      Rows(3, {2, 7, 0, 4, 7, 1, 4, 7, 0, 4, 7, 1, 5, 7, 0, 5, 7, 1, 7, 7, 0, 9, 7, 1});
  const Normalization normalization = ComputeNormalization(train, 2);
  EXPECT_THAT(normalization.mean, ElementsAre(5, 7, 0));
  EXPECT_THAT(normalization.std, ElementsAre(2, 1, 1)) << "constant; not a quantity";
}

// In float32 the sums would lose the small differences.
TEST(StatisticsTest, KeepsDigitsOfLargeValues) {
  const Normalization normalization =
      ComputeNormalization(Rows(1, {16777214, 16777216, 16777214, 16777216}), 1);
  EXPECT_THAT(normalization.std, ElementsAre(1));
  EXPECT_THAT(ComputeNormalization(Rows(1, std::vector<float>(1000, 0.1f)), 1).mean,
              ElementsAre(0.1f));
}

TEST(StatisticsTest, ComputesChannelsOfImages) {
  Examples train;
  train.shape = {2, 1, 2};
  train.classes = 2;
  train.pixels = {0, 255, 51, 51, 0, 255, 51, 51};
  train.labels = {0, 1};
  const Normalization normalization = ComputeNormalization(train, 2);
  EXPECT_THAT(normalization.mean, ElementsAre(0.5f, 0.2f));
  EXPECT_THAT(normalization.std, ElementsAre(0.5f, 1));
}

TEST(StatisticsTest, ImputesTheMeanOfTheTrainingSplitEverywhere) {
  Examples train = Rows(2, {1, NAN, 3, 8, NAN, 4}), test = Rows(2, {NAN, NAN, 100, 200});
  RUBATO_ASSERT_OK(ImputeMeans(train, {"a", "b"}, {&test, &train}));
  EXPECT_THAT(train.features, ElementsAre(1, 6, 3, 8, 2, 4));
  EXPECT_THAT(test.features, ElementsAre(2, 6, 100, 200));
}

TEST(StatisticsTest, RefusesToImputeFromNothing) {
  Examples train = Rows(2, {1, NAN}), test = Rows(2, {NAN, 5});
  EXPECT_THAT(ImputeMeans(train, {"a", "b"}, {&test, &train}),
              IsError(absl::StatusCode::kInvalidArgument,
                      HasSubstr("the column \"b\" has no value in the training split")));
}

}  // namespace
}  // namespace rubato
