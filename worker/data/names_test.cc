#include "worker/data/names.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

using ::testing::ElementsAre;

Names Make(const std::vector<std::string>& all) {
  Names names;
  for (const std::string& name : all) names.Number(name);
  return names;
}

TEST(NamesTest, NumbersInOrderOfAppearance) {
  Names names;
  EXPECT_EQ(names.Number("b"), 0);
  EXPECT_EQ(names.Number("a"), 1);
  EXPECT_EQ(names.Number("b"), 0);
  EXPECT_EQ(names.size(), 2);
  EXPECT_EQ(names.name(1), "a");
}

TEST(NamesTest, RanksByBytes) {
  std::vector<std::string> ordered;
  EXPECT_THAT(Make({"b", "10", "a", "9", "<1H"}).Ranks(&ordered), ElementsAre(4, 0, 3, 1, 2));
  EXPECT_THAT(ordered, ElementsAre("10", "9", "<1H", "a", "b"));
}

TEST(NamesTest, RanksIntegersAsIntegers) {
  std::vector<std::string> ordered;
  EXPECT_THAT(Make({"10", "-1", "9", "+9", "9.0", "1e1"}).Ranks(&ordered),
              ElementsAre(2, 0, 1, 1, 1, 2));
  EXPECT_THAT(ordered, ElementsAre("-1", "9", "10"));
  EXPECT_THAT(Make({"10", "9.5"}).Ranks(nullptr), ElementsAre(0, 1)) << "9.5 is no integer";
}

}  // namespace
}  // namespace rubato
