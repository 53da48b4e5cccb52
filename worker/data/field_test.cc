#include "worker/data/field.h"

#include <cstdlib>
#include <limits>

#include "gtest/gtest.h"

namespace rubato {
namespace {

TEST(FieldTest, RoundsNumbersAsTheCLibraryDoes) {
  for (const char* text : {"0", "-0.0", "1", "+1.5", "-122.23", "452600.0", "8.3252", "1e3",
                           "16777217", "0.1", "3.4028235e38", "1e-45", " 7 ", "1e-400", ".5"}) {
    float value = -1;
    EXPECT_TRUE(ParseNumber(text, &value)) << text;
    EXPECT_EQ(value, std::strtof(text, nullptr)) << text;
  }
}

TEST(FieldTest, RefusesWhatIsNoFiniteNumber) {
  for (const char* text : {"", " ", "NA", "nan", "inf", "-inf", "1e39", "-1e39", "1,5", "0x10",
                           "1 2", "+-1", "--1", "+", "1e", "five", "1.5kg"}) {
    float value;
    EXPECT_FALSE(ParseNumber(text, &value)) << text;
  }
}

TEST(FieldTest, QuotesWhatCanBePrintedAndNoMoreThanALine) {
  EXPECT_EQ(Quoted("NEAR BAY"), "\"NEAR BAY\"");
  EXPECT_EQ(Quoted("a\nb\"\x01"), "\"a\\nb\\\"\\x01\"");
  EXPECT_EQ(Quoted(std::string(1000, 'x')), "\"" + std::string(40, 'x') + "...\"");
}

}  // namespace
}  // namespace rubato
