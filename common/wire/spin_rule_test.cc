#include "common/wire/spin_rule.h"

#include "gtest/gtest.h"

namespace rubato {
namespace {

// Spins in `waits` waits, none of which has its event in time.
int SpinsInVain(SpinRule* rule, int waits) {
  int spins = 0;
  for (int i = 0; i < waits; ++i) {
    if (!rule->MaySpin()) continue;
    ++spins;
    rule->OnSpun(/*found=*/false);
  }
  return spins;
}

TEST(SpinRuleTest, SpinsAgainAfterEachSuccess) {
  SpinRule rule;
  for (int i = 0; i < 1000; ++i) {
    ASSERT_TRUE(rule.MaySpin());
    rule.OnSpun(/*found=*/true);
  }
}

// In the waits 0, 2, 6, 14, 30, 62, 126, 254, 510, and then one in 256.
TEST(SpinRuleTest, SeldomSpinsWhereThatIsInVain) {
  SpinRule rule;
  EXPECT_EQ(SpinsInVain(&rule, 510), 8);
  EXPECT_EQ(SpinsInVain(&rule, 256 * 100), 100);
}

TEST(SpinRuleTest, OneSuccessMakesUpForAllSpinsInVain) {
  SpinRule rule;
  SpinsInVain(&rule, 10000);
  while (!rule.MaySpin()) {
  }
  rule.OnSpun(/*found=*/true);
  EXPECT_TRUE(rule.MaySpin());
  rule.OnSpun(/*found=*/false);
  EXPECT_FALSE(rule.MaySpin());
  EXPECT_TRUE(rule.MaySpin());
}

TEST(SpinRuleTest, SpinsUntilNothingHasMovedForAWhile) {
  SpinRule rule;
  rule.Begin(1000);
  int64_t now = 1000;
  int questions = 0;
  while (rule.MayAskAgain(now)) {
    ++questions;
    now += questions == 10 ? 4001 : 1000;  // the tenth moves bytes
  }
  EXPECT_EQ(now, 1000 + 9 * 1000 + 4001 + kQueueSpinNanos);
}

TEST(SpinRuleTest, SpinsAMillisecondAtMost) {
  SpinRule rule;
  rule.Begin(0);
  int64_t now = 0;
  while (rule.MayAskAgain(now)) now += 5000;  // each question moves bytes
  EXPECT_EQ(now, 1000000);
}

// Whether it spins at `nanos` of a wait that began at 1000.
bool SpinsAt(int64_t nanos, const LinkSpinRule& rule) { return rule.MaySpin(1000 + nanos); }

TEST(LinkSpinRuleTest, SpinsForAWhileAfterAShortWaitAndNotAtAllAfterALongOne) {
  LinkSpinRule rule;
  rule.OnWait(1000, /*on_same_processor=*/false);
  EXPECT_TRUE(rule.waits());
  EXPECT_TRUE(SpinsAt(kSpinNanos - 1, rule));
  EXPECT_FALSE(SpinsAt(kSpinNanos, rule));
  rule.OnWork(1000 + kSpinNanos);
  EXPECT_FALSE(rule.waits());
  rule.OnWait(1000, /*on_same_processor=*/false);
  EXPECT_FALSE(SpinsAt(0, rule));
  rule.OnWork(1000 + kSpinNanos - 1);  // a short one again
  rule.OnWait(1000, /*on_same_processor=*/false);
  EXPECT_TRUE(SpinsAt(0, rule));
}

TEST(LinkSpinRuleTest, DoesNotKeepAPeerFromTheProcessor) {
  LinkSpinRule rule;
  rule.OnWait(1000, /*on_same_processor=*/true);
  EXPECT_FALSE(SpinsAt(0, rule));
}

}  // namespace
}  // namespace rubato
