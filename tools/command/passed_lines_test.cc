#include "tools/command/passed_lines.h"

#include "gtest/gtest.h"

namespace rubato {
namespace {

constexpr absl::Time kStart = absl::UnixEpoch();
constexpr size_t kMost = PassedLines::kMostBytes;

TEST(PassedLinesTest, SoManyBytesASecondPass) {
  PassedLines lines;
  EXPECT_TRUE(lines.Passes(kMost - 1, kStart));
  EXPECT_TRUE(lines.Passes(1, kStart));
  EXPECT_FALSE(lines.Passes(1, kStart + absl::Milliseconds(999)));
  EXPECT_TRUE(lines.Passes(kMost, kStart + absl::Seconds(1)));
}

TEST(PassedLinesTest, NoneFollowsOneThatIsSkippedBeforeTheSecondIsOver) {
  PassedLines lines;
  EXPECT_FALSE(lines.Passes(kMost + 1, kStart));
  EXPECT_FALSE(lines.Passes(1, kStart));
  EXPECT_TRUE(lines.Passes(1, kStart + absl::Seconds(1)));
}

TEST(PassedLinesTest, WhatIsSkippedIsToldOnceWhenTheSecondIsOver) {
  PassedLines lines;
  EXPECT_EQ(lines.TakeSkipped(kStart), 0);
  for (int i = 0; i < 3; ++i) lines.Passes(kMost, kStart);
  EXPECT_EQ(lines.TakeSkipped(kStart), 0);
  EXPECT_EQ(lines.TakeSkipped(kStart + absl::Seconds(1)), 2);
  EXPECT_EQ(lines.TakeSkipped(kStart + absl::Seconds(2)), 0);
}

}  // namespace
}  // namespace rubato
