#include "common/space/sum_of_squares.h"

#include <algorithm>
#include <cmath>

#include "common/base/random.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

std::vector<float> Values(int64_t count) {
  RandomStream random(Key(3, "squares", count));
  std::vector<float> values(count);
  for (float& value : values) value = std::ldexp(random.Uniform(-1, 1), random.Below(12));
  return values;
}

TEST(SumOfSquaresTest, IsThatOfLongDoubles) {
  for (int64_t count : {1, 15, 16, 17, 100, 4097, 100000}) {
    const std::vector<float> values = Values(count);
    SumOfSquares sum(count);
    sum.Add(0, values);
    long double expected = 0;
    for (float value : values) expected += static_cast<long double>(value) * value;
    ASSERT_TRUE(sum.complete());
    EXPECT_NEAR(sum.sum(), static_cast<double>(expected), 1e-14 * static_cast<double>(expected));
  }
}

// Any cut into blocks, any division of the blocks among shards, any order: the same bits.
TEST(SumOfSquaresTest, BitsDoNotDependOnCutsAndOrder) {
  for (int64_t count : {1000, 4096, 5003}) {
    const std::vector<float> values = Values(count);
    SumOfSquares whole(count);
    whole.Add(0, values);
    RandomStream random(Key(4, count));
    for (int trial = 0; trial < 50; ++trial) {
      const int64_t block = 16 * (1 + random.Below(40));
      std::vector<SumOfSquares> shards(1 + random.Below(4), SumOfSquares(count));
      std::vector<int64_t> begins;
      for (int64_t begin = 0; begin < count; begin += block) begins.push_back(begin);
      for (size_t i = begins.size(); i > 1; --i) std::swap(begins[i - 1], begins[random.Below(i)]);
      for (int64_t begin : begins) {
        shards[random.Below(shards.size())].Add(begin,
                                                absl::MakeConstSpan(values).subspan(begin, block));
      }
      SumOfSquares total(count);
      for (const SumOfSquares& shard : shards) {
        EXPECT_FALSE(shard.nodes().empty() && shards.size() == 1);
        for (const SumOfSquares::Node& node : shard.nodes()) ASSERT_TRUE(total.AddNode(node));
      }
      ASSERT_TRUE(total.complete());
      EXPECT_EQ(total.sum(), whole.sum()) << "trial " << trial;
    }
  }
}

TEST(SumOfSquaresTest, RefusesWhatIsHereAlready) {
  SumOfSquares sum(64);
  EXPECT_TRUE(sum.AddNode({{0, 1}, 1}));
  EXPECT_FALSE(sum.AddNode({{0, 2}, 1}));
  EXPECT_FALSE(sum.AddNode({{1, 3}, 1}));
  EXPECT_FALSE(sum.AddNode({{4, 5}, 1}));
}

// By torch.nn.utils.clip_grad_norm_ on one parameter of gradient [3, 4] times n / 2, whose mean
// over n samples has the norm 2.5.
TEST(ClipFactorTest, IsThatOfPyTorch) {
  for (const int64_t n : {1, 7}) {
    const double sum = 25.0 * n * n / 4;
    EXPECT_EQ(ClipFactor(sum, n, 3), 1);
    EXPECT_EQ(ClipFactor(sum, n, 2.5000011), 1);
    EXPECT_NEAR(ClipFactor(sum, n, 1), 0.39999984000006401, 1e-15);
  }
  EXPECT_EQ(ClipFactor(0, 1, 1e-3), 1);
}

}  // namespace
}  // namespace rubato
