#include "tools/simulator/shrink.h"

#include <algorithm>

#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

bool IsHang(const Fault& fault) { return fault.kind == Fault::Kind::kHang; }

// A case with much that can be left out.
Scenario Rich() {
  for (uint64_t seed = 0;; ++seed) {
    const Scenario scenario = Scenario::Draw(seed);
    const auto hangs = std::count_if(scenario.faults.begin(), scenario.faults.end(), IsHang);
    if (hangs >= 2 && scenario.faults.size() >= 4 && !scenario.switches.empty() &&
        scenario.jitter > 0 && scenario.job.min_workers > 1 &&
        absl::string_view(scenario.speeds.text) != "fixed") {
      return scenario;
    }
  }
}

TEST(ShrinkTest, WhatIsLeftFailsAndNothingOfItCanGo) {
  const auto fails = [](const Scenario& scenario) {
    return std::any_of(scenario.faults.begin(), scenario.faults.end(), IsHang) &&
           scenario.jitter > 0;
  };
  const Scenario shortest = Shrink(Rich(), fails);
  EXPECT_TRUE(fails(shortest));
  ASSERT_THAT(shortest.faults, SizeIs(1));
  EXPECT_TRUE(IsHang(shortest.faults[0]));
  EXPECT_THAT(shortest.later_faults, IsEmpty());
  EXPECT_THAT(shortest.switches, IsEmpty());
  EXPECT_THAT(shortest.stops, IsEmpty());
  EXPECT_EQ(shortest.job.min_workers, 1);
  EXPECT_STREQ(shortest.speeds.text, "fixed");
}

}  // namespace
}  // namespace rubato
