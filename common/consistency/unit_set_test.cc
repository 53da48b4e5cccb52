#include "common/consistency/unit_set.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <vector>

#include "common/base/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

// As UnitSet, unit by unit.
std::set<int64_t> Units(const UnitSet& units, int64_t end) {
  std::set<int64_t> all;
  for (int64_t unit = 0; unit < end; ++unit) {
    if (units.Contains(unit)) all.insert(unit);
  }
  return all;
}

TEST(UnitSetTest, OneThatLacksLeavesOneRun) {
  UnitSet units(3);
  for (int64_t unit = 4; unit < 100'000; ++unit) units.Insert(unit);
  EXPECT_EQ(units.below(), 3);
  EXPECT_THAT(units.runs(), ElementsAre(Pair(4, 100'000)));
  EXPECT_EQ(units.end(), 100'000);
  units.Insert(3);
  EXPECT_EQ(units.below(), 100'000);
  EXPECT_THAT(units.runs(), IsEmpty());
}

// Against a set of units, by random insertions of single ones and of runs.
TEST(UnitSetTest, HoldsWhatWasInserted) {
  constexpr int64_t kEnd = 60;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    RandomStream random(seed);
    std::vector<UnitSet> sets(1 + random.Below(4));
    std::vector<std::set<int64_t>> expected(sets.size());
    const uint32_t inserts = random.Below(60);
    for (size_t i = 0; i < sets.size(); ++i) {
      for (uint32_t n = 0; n < inserts; ++n) {
        const auto begin = int64_t{random.Below(kEnd)};
        const auto end = std::min<int64_t>(kEnd, begin + 1 + random.Below(3));
        if (end == begin + 1) {
          sets[i].Insert(begin);
        } else {
          sets[i].Insert(begin, end);
        }
        for (int64_t unit = begin; unit < end; ++unit) expected[i].insert(unit);
      }
      ASSERT_EQ(Units(sets[i], kEnd + 5), expected[i]) << "seed " << seed;
      ASSERT_EQ(sets[i].end(), expected[i].empty() ? 0 : *expected[i].rbegin() + 1);
      int64_t last = sets[i].below();
      ASSERT_EQ(expected[i].count(last), 0u);
      for (const auto& [begin, end] : sets[i].runs()) {
        ASSERT_LT(last, begin) << "runs that touch are one";
        ASSERT_LT(begin, end);
        last = end;
      }
    }
    std::vector<const UnitSet*> pointers;
    for (const UnitSet& set : sets) pointers.push_back(&set);
    const UnitsHeld held = HeldBy(pointers);
    std::vector<int64_t> partial;
    for (int64_t unit = 0; unit < kEnd + 5; ++unit) {
      size_t holders = 0;
      for (const std::set<int64_t>& set : expected) holders += set.count(unit);
      ASSERT_EQ(held.by_all.Contains(unit), holders == sets.size()) << seed << " " << unit;
      ASSERT_EQ(held.by_some.Contains(unit), holders > 0) << seed << " " << unit;
      if (holders > 0 && holders < sets.size()) partial.push_back(unit);
    }
    ASSERT_EQ(held.Partial(), partial) << "seed " << seed;
  }
}

}  // namespace
}  // namespace rubato
