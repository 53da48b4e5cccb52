#include "common/wire/look_rule.h"

#include "gtest/gtest.h"

namespace rubato {
namespace {

// Looks in `waits` waits, none of which has its event in time.
int LooksInVain(LookRule* rule, int waits) {
  int looks = 0;
  for (int i = 0; i < waits; ++i) {
    if (!rule->MayLook()) continue;
    ++looks;
    rule->OnLooked(/*found=*/false);
  }
  return looks;
}

TEST(LookRuleTest, LooksAgainAfterEachSuccess) {
  LookRule rule;
  for (int i = 0; i < 1000; ++i) {
    ASSERT_TRUE(rule.MayLook());
    rule.OnLooked(/*found=*/true);
  }
}

// In the waits 0, 2, 6, 14, 30, 62, 126, 254, 510, and then one in 256.
TEST(LookRuleTest, SeldomLooksWhereThatIsInVain) {
  LookRule rule;
  EXPECT_EQ(LooksInVain(&rule, 510), 8);
  EXPECT_EQ(LooksInVain(&rule, 256 * 100), 100);
}

TEST(LookRuleTest, OneSuccessMakesUpForAllLooksInVain) {
  LookRule rule;
  LooksInVain(&rule, 10000);
  while (!rule.MayLook()) {
  }
  rule.OnLooked(/*found=*/true);
  EXPECT_TRUE(rule.MayLook());
  rule.OnLooked(/*found=*/false);
  EXPECT_FALSE(rule.MayLook());
  EXPECT_TRUE(rule.MayLook());
}

}  // namespace
}  // namespace rubato
