#include "common/space/permutation.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include "common/base/random.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

std::vector<uint64_t> Values(const Permutation& permutation) {
  std::vector<uint64_t> values(permutation.size());
  for (uint64_t i = 0; i < values.size(); ++i) values[i] = permutation(i);
  return values;
}

// Pearson's statistic against equal counts, in standard deviations above its mean. Under the
// hypothesis that all is even it is near 0; a cell that is never met drives it into the hundreds.
double Unevenness(const std::vector<int>& counts, double degrees_of_freedom) {
  double total = 0;
  for (int count : counts) total += count;
  const double expected = total / counts.size();
  double statistic = 0;
  for (int count : counts) statistic += (count - expected) * (count - expected) / expected;
  return (statistic - degrees_of_freedom) / std::sqrt(2 * degrees_of_freedom);
}

TEST(PermutationTest, MeetsEveryValueOnce) {
  std::vector<uint64_t> sizes = {1000, 1023, 1024, 1025, 4095, 4096, 4097, 60000, 65536, 65537};
  for (uint64_t size = 1; size <= 130; ++size) sizes.push_back(size);
  for (uint64_t size : sizes) {
    for (uint64_t key : {0, 1, 2}) {
      std::vector<uint64_t> values = Values(Permutation(key, size));
      std::sort(values.begin(), values.end());
      for (uint64_t i = 0; i < size; ++i) ASSERT_EQ(values[i], i) << "size " << size;
    }
  }
}

TEST(PermutationTest, StaysInRangeForTheLargestSizes) {
  for (uint64_t size : {(uint64_t{1} << 62) + 1, uint64_t{1} << 63, ~uint64_t{0}}) {
    const Permutation permutation(5, size);
    for (uint64_t i = 0; i < 100; ++i) {
      EXPECT_LT(permutation(i), size);
      EXPECT_LT(permutation(size - 1 - i), size);
    }
  }
}

TEST(PermutationTest, PutsEveryValueInEveryPlaceEquallyOften) {
  constexpr int kKeys = 20000;
  for (uint64_t size : {2, 3, 4, 5, 7, 10, 16, 17, 33}) {
    std::vector<int> counts(size * size);
    for (int key = 0; key < kKeys; ++key) {
      const Permutation permutation(Key(1, "place", key), size);
      for (uint64_t i = 0; i < size; ++i) ++counts[i * size + permutation(i)];
    }
    EXPECT_LT(Unevenness(counts, (size - 1) * (size - 1)), 5) << "size " << size;
  }
}

TEST(PermutationTest, PutsEveryValueAfterEveryOtherEquallyOften) {
  constexpr int kKeys = 20000;
  for (uint64_t size : {3, 4, 5, 7, 10, 16, 17, 33}) {
    std::vector<int> counts(size * (size - 1));
    for (int key = 0; key < kKeys; ++key) {
      const std::vector<uint64_t> values = Values(Permutation(Key(2, "successor", key), size));
      for (uint64_t i = 0; i + 1 < size; ++i) {
        const uint64_t distance = (values[i + 1] + size - values[i]) % size;  // 1…size-1
        ++counts[values[i] * (size - 1) + distance - 1];
      }
    }
    EXPECT_LT(Unevenness(counts, counts.size() - 1), 5) << "size " << size;
  }
}

TEST(PermutationTest, GivesAllOrdersOfFourEquallyOften) {
  std::map<std::vector<uint64_t>, int> orders;
  for (int key = 0; key < 24000; ++key) ++orders[Values(Permutation(Key(3, "all", key), 4))];
  std::vector<int> counts;
  for (const auto& [order, count] : orders) counts.push_back(count);
  ASSERT_EQ(counts.size(), 24u);
  EXPECT_LT(Unevenness(counts, 23), 5);
}

// Within one order of a training set: what follows a sample is as good as independent of it.
TEST(PermutationTest, SpreadsNeighboursOverTheWholeRange) {
  constexpr uint64_t kSize = 60000, kBins = 20;
  for (uint64_t key = 0; key < 20; ++key) {
    const Permutation permutation(Key(4, "spread", key), kSize);
    std::vector<int> pairs(kBins * kBins);
    for (uint64_t i = 0; i + 1 < kSize; ++i) {
      ++pairs[permutation(i) * kBins / kSize * kBins + permutation(i + 1) * kBins / kSize];
    }
    EXPECT_LT(Unevenness(pairs, (kBins - 1) * (kBins - 1)), 5) << "key " << key;
  }
}

// Two shuffled orders agree in one place on average (the fixed points of a random permutation).
TEST(PermutationTest, DiffersFromKeyToKey) {
  constexpr uint64_t kSize = 1000, kKeys = 200;
  int agreements = 0;
  for (uint64_t key = 0; key < kKeys; ++key) {
    const Permutation one(key, kSize), other(key + 1, kSize);
    for (uint64_t i = 0; i < kSize; ++i) agreements += one(i) == other(i);
  }
  EXPECT_NEAR(agreements, kKeys, 5 * 15);  // five standard deviations: a Poisson of mean kKeys
}

// A run that is resumed, on whatever machine, must go on in the same order.
TEST(PermutationTest, KeepsItsValues) {
  EXPECT_EQ(Values(Permutation(1, 10)), (std::vector<uint64_t>{8, 3, 6, 5, 4, 7, 2, 9, 1, 0}));
}

TEST(SampleAtTest, EveryEpochHasAnOrderOfItsOwnAndAllSamples) {
  constexpr uint64_t kSize = 100;
  std::vector<bool> seen(kSize);
  int agreements = 0;
  for (uint64_t i = 0; i < kSize; ++i) {
    seen[SampleAt(7, 0, i, kSize)] = true;
    agreements += SampleAt(7, 0, i, kSize) == SampleAt(7, 1, i, kSize);
    EXPECT_EQ(SampleAt(7, 0, i, kSize), SampleAt(7, 0, i, kSize));
  }
  EXPECT_EQ(std::count(seen.begin(), seen.end(), true), 100);
  EXPECT_LT(agreements, 10);
}

// python/rubato/sampler.py has the same order: python/tests/sampler_test.py.
TEST(SampleAtTest, KeepsItsValues) {
  std::vector<uint64_t> values;
  for (uint64_t i = 0; i < 10; ++i) values.push_back(SampleAt(7, 3, i, 10));
  EXPECT_EQ(values, (std::vector<uint64_t>{3, 1, 8, 9, 4, 6, 7, 0, 5, 2}));
}

}  // namespace
}  // namespace rubato
