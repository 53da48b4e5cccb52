#include "server/process/pace.h"

#include <fstream>
#include <string>

#include "gtest/gtest.h"

namespace rubato {
namespace {

// Time that moves by hand, on processors of which others have a share.
class PaceTest : public ::testing::Test {
 protected:
  void Pass(absl::Duration time, double others) {
    now_ += time;
    processors_.all += absl::ToDoubleSeconds(time);
    processors_.others += others * absl::ToDoubleSeconds(time);
  }
  absl::Duration Rest(absl::Duration busy) {
    return pace_.Rest(now_, busy, [this] { return processors_; });
  }

  absl::Time now_ = absl::FromUnixSeconds(100);
  Pace::Processors processors_{250, 300};
  Pace pace_{now_, processors_};
};

TEST_F(PaceTest, TakesItsShareWhereOthersHaveWork) {
  absl::Duration busy;
  for (int piece = 0; piece < 20; ++piece) {
    Pass(absl::Milliseconds(20), /*others=*/0.3);
    busy += absl::Milliseconds(10);
    Pass(Rest(busy), /*others=*/0.3);
  }
  EXPECT_NEAR(absl::FDivDuration(busy, now_ - absl::FromUnixSeconds(100)), Pace::kShare, 0.001);
}

TEST_F(PaceTest, DoesNotRestWhereOthersDoLittle) {
  for (int piece = 1; piece < 40; ++piece) {
    Pass(absl::Milliseconds(20), /*others=*/0.2);
    EXPECT_EQ(Rest(piece * absl::Milliseconds(10)), absl::ZeroDuration());
  }
}

// As when the training ends, for which somebody waits who wants the checkpoint.
TEST_F(PaceTest, RestsNoMoreWhenOthersHaveEnded) {
  Pass(absl::Seconds(1), /*others=*/1);
  EXPECT_GT(Rest(absl::Milliseconds(100)), absl::ZeroDuration());
  Pass(absl::Milliseconds(300), /*others=*/0.1);
  EXPECT_EQ(Rest(absl::Milliseconds(100)), absl::ZeroDuration());
}

TEST_F(PaceTest, RestsNoLongerThanItMay) {
  Pass(absl::Seconds(1), /*others=*/1);
  const absl::Duration rest = Rest(absl::Seconds(60));
  EXPECT_EQ(rest, Pace::kLongest - absl::Seconds(1));
  Pass(rest, /*others=*/1);
  EXPECT_EQ(Rest(absl::Seconds(60)), absl::ZeroDuration());
}

TEST_F(PaceTest, WhatIsDoneInAMomentIsNotDrawnOut) {
  Pass(absl::Milliseconds(2), /*others=*/1);
  EXPECT_EQ(Rest(absl::Milliseconds(2)), absl::ZeroDuration());
}

TEST(ProcessorsTest, WorkOfLowPriorityIsNobodyElses) {
  const std::string path = ::testing::TempDir() + "/stat";
  std::ofstream(path) << "cpu  100 20 30 400 5 6 7 8 9 10\ncpu0 50 10 15 200 2 3 3 4 4 5\n";
  const Pace::Processors processors = ReadProcessors(path);
  EXPECT_EQ(processors.others, 100 + 30);
  EXPECT_EQ(processors.all, 100 + 20 + 30 + 400 + 5 + 6 + 7 + 8);
  EXPECT_EQ(ReadProcessors(path + "/none").all, 0);
}

TEST(ProcessorsTest, TheKernelTellsWhatTheyDo) {
  const Pace::Processors processors = ReadProcessors();
  EXPECT_GT(processors.all, 0);
  EXPECT_GT(processors.others, 0);
  EXPECT_LE(processors.others, processors.all);
  EXPECT_GT(ThreadTime(), absl::ZeroDuration());
}

}  // namespace
}  // namespace rubato
