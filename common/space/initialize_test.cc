#include "common/space/initialize.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

using ::testing::Each;

proto::Parameter Uniform(const std::string& name, double bound) {
  proto::Parameter parameter;
  parameter.set_name(name);
  parameter.mutable_init()->set_uniform_bound(bound);
  return parameter;
}

std::vector<float> Draw(const proto::Parameter& parameter, uint64_t seed, int64_t begin,
                        size_t size) {
  std::vector<float> values(size);
  InitializeRange(parameter, seed, begin, absl::MakeSpan(values));
  return values;
}

TEST(InitializeTest, AnyCutGivesTheSameBits) {
  const proto::Parameter parameter = Uniform("1.weight", 0.1);
  const std::vector<float> whole = Draw(parameter, 7, 0, 103);
  for (size_t begin = 0; begin <= whole.size(); ++begin) {
    for (size_t end = begin; end <= whole.size(); ++end) {
      const std::vector<float> expected(whole.begin() + begin, whole.begin() + end);
      ASSERT_EQ(Draw(parameter, 7, begin, end - begin), expected) << begin << " to " << end;
    }
  }
}

TEST(InitializeTest, SeedAndNameMatterAndShapeDoesNot) {
  proto::Parameter parameter = Uniform("1.weight", 0.1);
  const std::vector<float> values = Draw(parameter, 7, 0, 16);
  EXPECT_NE(Draw(parameter, 8, 0, 16), values);
  EXPECT_NE(Draw(Uniform("1.bias", 0.1), 7, 0, 16), values);
  parameter.add_shape(16);
  EXPECT_EQ(Draw(parameter, 7, 0, 16), values);
}

// A uniform variable on [-b, b): mean 0, variance b²/3, fourth moment b⁴/5, no correlation of
// neighbours. Bounds are five standard errors of the estimate.
TEST(InitializeTest, MomentsAreThoseOfTheUniformDistribution) {
  constexpr double kBound = 0.25;
  constexpr int kValues = 1 << 20;
  const std::vector<float> values = Draw(Uniform("1.weight", kBound), 1, 0, kValues);
  double sum = 0, squares = 0, fourths = 0, products = 0;
  for (int i = 0; i < kValues; ++i) {
    const double x = values[i] / kBound;
    sum += x;
    squares += x * x;
    fourths += x * x * x * x;
    if (i > 0) products += x * values[i - 1] / kBound;
  }
  const double root = std::sqrt(kValues);
  EXPECT_NEAR(sum / kValues, 0, 5 * std::sqrt(1.0 / 3) / root);
  EXPECT_NEAR(squares / kValues, 1.0 / 3, 5 * std::sqrt(1.0 / 5 - 1.0 / 9) / root);
  EXPECT_NEAR(fourths / kValues, 1.0 / 5, 5 * std::sqrt(1.0 / 9 - 1.0 / 25) / root);
  EXPECT_NEAR(products / kValues, 0, 5 * (1.0 / 3) / root);
  const auto [least, greatest] = std::minmax_element(values.begin(), values.end());
  EXPECT_GE(*least, -kBound);
  EXPECT_LT(*greatest, kBound);
  // The most extreme of n values is within 20 / n of the bound but for one in e^10.
  EXPECT_LT(*least, -kBound * (1 - 20.0 / kValues));
  EXPECT_GT(*greatest, kBound * (1 - 20.0 / kValues));
}

TEST(InitializeTest, WithoutABoundAllValuesAreTheConstant) {
  proto::Parameter parameter;
  parameter.set_name("bn.weight");
  parameter.mutable_init()->set_constant(1);
  EXPECT_THAT(Draw(parameter, 3, 5, 100), Each(1.0f));
  EXPECT_THAT(Draw(proto::Parameter(), 3, 5, 100), Each(0.0f));
}

// The share of values below x is the distribution's, (1 + erf(x / sqrt 2)) / 2. Bounds are five
// standard errors of the estimate.
TEST(InitializeTest, NormalValuesAreDistributedAsTheErrorFunctionSays) {
  constexpr int kValues = 1 << 20;
  proto::Parameter parameter;
  parameter.set_name("0.weight");
  parameter.mutable_init()->set_normal_deviation(0.5);
  const std::vector<float> values = Draw(parameter, 1, 0, kValues);
  for (double x : {-4.0, -3.0, -2.0, -1.5, -0.7, 0.0, 0.3, 1.0, 1.9, 2.1, 3.5}) {
    const double share = (1 + std::erf(x / std::sqrt(2.0))) / 2;
    const double found =
        std::count_if(values.begin(), values.end(), [&](float v) { return v < 0.5 * x; });
    EXPECT_NEAR(found / kValues, share, 5 * std::sqrt(share * (1 - share) / kValues)) << x;
  }
  EXPECT_THAT(Draw(parameter, 1, 1000, 7),
              ::testing::ElementsAreArray(values.begin() + 1000, values.begin() + 1007));
}

}  // namespace
}  // namespace rubato
