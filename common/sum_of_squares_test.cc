#include "common/sum_of_squares.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "absl/types/span.h"
#include "common/isa.h"
#include "common/random.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

// Over many magnitudes, so that every other order of addition gives other bits.
std::vector<float> RandomFloats(uint64_t key, size_t n) {
  RandomStream stream(key);
  std::vector<float> values(n);
  for (float& value : values) {
    value = std::ldexp(stream.Uniform(-1, 1), static_cast<int>(stream.Below(20)) - 10);
  }
  return values;
}

double SumOf(absl::Span<const float> values) {
  SumOfSquares sum;
  sum.Add(0, values);
  return sum.Total();
}

// The definition, read as it stands: recursion over units, then halves of 16 lanes.
double ByDefinition(const std::vector<float>& values, int level, int64_t index) {
  if (level > 0) {
    return ByDefinition(values, level - 1, 2 * index) +
           ByDefinition(values, level - 1, 2 * index + 1);
  }
  std::vector<double> squares(16, 0.0);
  for (size_t i = 0; i < 16 && 16 * index + i < values.size(); ++i) {
    squares[i] = std::pow(double{values[16 * index + i]}, 2);
  }
  while (squares.size() > 1) {
    for (size_t i = 0; i < squares.size() / 2; ++i) squares[i] += squares[i + squares.size() / 2];
    squares.resize(squares.size() / 2);
  }
  return squares[0];
}

const size_t kSizes[] = {0, 1, 15, 16, 17, 64, 100, 1023, 1024, 1025, 3000, 16384, 40007};

TEST(SumOfSquares, IsTheTreesSum) {
  for (const size_t n : kSizes) {
    const std::vector<float> values = RandomFloats(n, n);
    EXPECT_EQ(SumOf(values), ByDefinition(values, 12, 0)) << n;
  }
}

TEST(SumOfSquares, IsNearTheExactSum) {
  const std::vector<float> values = RandomFloats(1, 1000000);
  long double exact = 0;
  for (const float value : values) exact += static_cast<long double>(value) * value;
  // A value passes 20 additions at most, each off by half a rounding.
  const double bound = 10 * std::numeric_limits<double>::epsilon();
  EXPECT_NEAR(static_cast<double>(SumOf(values) / exact - 1), 0, bound);
}

TEST(SumOfSquares, HasTheSameBitsHoweverTheVectorIsCut) {
  RandomStream random(7);
  const auto below = [&](size_t n) { return static_cast<size_t>(random.Below(n)); };
  for (const size_t n : kSizes) {
    const std::vector<float> values = RandomFloats(n, n);
    const double expected = SumOf(values);
    for (int repeat = 0; repeat < 50; ++repeat) {
      // Random blocks of whole units, in random order, on a random number of shards; their sums
      // merged in random order, some node by node.
      std::vector<size_t> cuts = {0, n};
      for (size_t i = below(20); i > 0 && n >= 16; --i) cuts.push_back(16 * below(n / 16 + 1));
      std::sort(cuts.begin(), cuts.end());
      std::vector<size_t> blocks;
      for (size_t i = 0; i + 1 < cuts.size(); ++i) blocks.push_back(i);
      for (size_t i = blocks.size(); i > 1; --i) std::swap(blocks[i - 1], blocks[below(i)]);
      std::vector<SumOfSquares> shards(1 + below(5));
      for (const size_t b : blocks) {
        shards[below(shards.size())].Add(
            cuts[b], absl::MakeSpan(values).subspan(cuts[b], cuts[b + 1] - cuts[b]));
      }
      SumOfSquares total;
      for (const SumOfSquares& shard : shards) {
        if (random.Below(2) == 0) {
          total.Merge(shard);
        } else {
          std::vector<SumOfSquares::Node> nodes = shard.nodes();
          for (size_t i = nodes.size(); i > 1; --i) std::swap(nodes[i - 1], nodes[below(i)]);
          for (const SumOfSquares::Node& node : nodes) total.Add(node);
        }
      }
      ASSERT_EQ(total.Total(), expected) << n;
      ASSERT_LE(total.nodes().size(), 20u);
    }
  }
}

TEST(SumOfSquares, APartsSumIsThatOfItsValues) {
  const std::vector<float> values = RandomFloats(3, 4096);
  std::vector<float> masked(values.size());
  std::copy(values.begin() + 176, values.begin() + 2000, masked.begin() + 176);
  SumOfSquares part;
  part.Add(176, absl::MakeSpan(values).subspan(176, 2000 - 176));
  EXPECT_EQ(part.Total(), SumOf(masked));
}

TEST(SumOfSquares, HasTheSameBitsAtEveryLevel) {
  const std::vector<float> values = RandomFloats(5, 10007);
  SetIsa(Isa::kGeneric);
  const double expected = SumOf(values);
  for (const Isa isa : {Isa::kAvx2, Isa::kAvx512}) {
    if (isa > DetectIsa()) continue;
    SetIsa(isa);
    EXPECT_EQ(SumOf(values), expected) << IsaName(isa);
  }
  SetIsa(DetectIsa());
}

TEST(SumOfSquares, SaysWhatIsNotFinite) {
  for (const float bad : {NAN, HUGE_VALF, -HUGE_VALF}) {
    std::vector<float> values(100, 1.0f);
    values[70] = bad;
    EXPECT_FALSE(std::isfinite(SumOf(values)));
  }
  // Squares beyond float's range are none beyond double's.
  EXPECT_EQ(SumOf({0x1p127f, 0x1p127f}), 0x1p255);
}

}  // namespace
}  // namespace rubato
