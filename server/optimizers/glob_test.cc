#include "server/optimizers/glob.h"

#include <fnmatch.h>

#include <string>

#include "common/base/random.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

TEST(GlobTest, MatchesTheWholeName) {
  EXPECT_TRUE(MatchesGlob("*.bias", "12.bias"));
  EXPECT_FALSE(MatchesGlob("*.bias", "12.bias.x"));
  EXPECT_FALSE(MatchesGlob("1.*", "11.weight"));
  EXPECT_TRUE(MatchesGlob("1?.*", "11.weight"));
  EXPECT_FALSE(MatchesGlob("weight", "0.weight"));
  EXPECT_TRUE(MatchesGlob("*", ""));
  EXPECT_FALSE(MatchesGlob("?", ""));
  EXPECT_FALSE(MatchesGlob("", "a"));
  // What other globs give a meaning is itself here.
  EXPECT_TRUE(MatchesGlob("[a]", "[a]"));
  EXPECT_FALSE(MatchesGlob("[a]", "a"));
}

TEST(GlobTest, ABackslashMakesTheNextCharacterItself) {
  EXPECT_TRUE(MatchesGlob(R"(user\*)", "user*"));
  EXPECT_FALSE(MatchesGlob(R"(user\*)", "user_x"));
  EXPECT_FALSE(MatchesGlob(R"(b\?)", "bc"));
  EXPECT_TRUE(MatchesGlob(R"(a\\b*)", R"(a\bc)"));
  EXPECT_FALSE(MatchesGlob("a\\", "a"));
}

// fnmatch means the same by `*`, `?` and a backslash.
TEST(GlobTest, AgreesWithTheCLibraryOnRandomPatterns) {
  RandomStream random(Key(1));
  const auto draw = [&](const char* letters, size_t kinds, size_t most) {
    std::string text;
    for (size_t n = random.Below(most + 1); n > 0; --n) text += letters[random.Below(kinds)];
    return text;
  };
  int matches = 0;
  for (int i = 0; i < 200000; ++i) {
    const std::string pattern = draw("ab.*?*\\", 7, 8), text = draw("ab.*\\", 5, 10);
    const bool expected = fnmatch(pattern.c_str(), text.c_str(), 0) == 0;
    matches += expected;
    ASSERT_EQ(MatchesGlob(pattern, text), expected) << pattern << " on " << text;
  }
  EXPECT_GT(matches, 10000);
}

// A search of all ways to cut the name would not end.
TEST(GlobTest, ManyStarsTakeNoTime) {
  std::string pattern;
  for (int i = 0; i < 1000; ++i) pattern += "*a";
  EXPECT_FALSE(MatchesGlob(pattern + "b", std::string(10000, 'a')));
}

}  // namespace
}  // namespace rubato
