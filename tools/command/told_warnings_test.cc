#include "tools/command/told_warnings.h"

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

using Answer = ToldWarnings::Answer;

constexpr absl::Time kStart = absl::UnixEpoch();

TEST(ToldWarningsTest, EachIsToldOnceAnHour) {
  ToldWarnings warnings;
  EXPECT_EQ(warnings.On("the disk is full", kStart), Answer::kTell);
  EXPECT_EQ(warnings.On("the disk is full", kStart), Answer::kKeep);
  EXPECT_EQ(warnings.On("a worker is gone", kStart + absl::Minutes(59)), Answer::kTell);
  EXPECT_EQ(warnings.On("the disk is full", kStart + absl::Minutes(59)), Answer::kKeep);
  EXPECT_EQ(warnings.On("the disk is full", kStart + absl::Minutes(60)), Answer::kTell);
}

TEST(ToldWarningsTest, WhatTheLauncherHasToldIsNeverRepeated) {
  ToldWarnings warnings;
  warnings.IsTold("a column counts the lines");
  EXPECT_EQ(warnings.On("a column counts the lines", kStart), Answer::kKeep);
  EXPECT_EQ(warnings.On("a column counts the lines", kStart + absl::Hours(2)), Answer::kKeep);
}

TEST(ToldWarningsTest, NotMoreThanFiftyAnHourAreTold) {
  ToldWarnings warnings;
  for (const absl::Time hour : {kStart, kStart + absl::Hours(1)}) {
    for (int i = 0; i < 50; ++i) {
      EXPECT_EQ(warnings.On(absl::StrCat("step ", i, " is left out"), hour), Answer::kTell);
    }
    EXPECT_EQ(warnings.On("step 50 is left out", hour), Answer::kTellOfMore);
    EXPECT_EQ(warnings.On("step 51 is left out", hour), Answer::kKeep);
    EXPECT_EQ(warnings.On("step 1 is left out", hour), Answer::kKeep);
  }
}

}  // namespace
}  // namespace rubato
