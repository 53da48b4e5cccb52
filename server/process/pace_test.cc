#include "server/process/pace.h"

#include "gtest/gtest.h"

namespace rubato {
namespace {

// Time that moves by hand, on processors of which others leave a share idle.
class PaceTest : public ::testing::Test {
 protected:
  void Pass(absl::Duration time, double idle) {
    now_ += time;
    processors_.all += absl::ToDoubleSeconds(time);
    processors_.idle += idle * absl::ToDoubleSeconds(time);
  }
  absl::Duration Rest(absl::Duration busy) {
    return pace_.Rest(now_, busy, [this] { return processors_; });
  }

  absl::Time now_ = absl::FromUnixSeconds(100);
  Pace::Processors processors_{50, 300};
  Pace pace_{now_, processors_};
};

TEST_F(PaceTest, TakesItsShareWhereOthersHaveWork) {
  absl::Duration busy;
  for (int piece = 0; piece < 40; ++piece) {
    Pass(absl::Milliseconds(20), /*idle=*/0.1);
    busy += absl::Milliseconds(10);
    Pass(Rest(busy), /*idle=*/0.1);
  }
  EXPECT_NEAR(absl::FDivDuration(busy, now_ - absl::FromUnixSeconds(100)), Pace::kShare, 0.001);
}

TEST_F(PaceTest, DoesNotRestWhereProcessorsAreIdle) {
  for (int piece = 1; piece < 40; ++piece) {
    Pass(absl::Milliseconds(20), /*idle=*/0.5);
    EXPECT_EQ(Rest(piece * absl::Milliseconds(10)), absl::ZeroDuration());
  }
}

// As when the training ends, for which somebody waits who wants the checkpoint.
TEST_F(PaceTest, RestsNoMoreWhenOthersHaveEnded) {
  Pass(absl::Seconds(1), /*idle=*/0);
  EXPECT_GT(Rest(absl::Milliseconds(100)), absl::ZeroDuration());
  Pass(absl::Milliseconds(300), /*idle=*/0.9);
  EXPECT_EQ(Rest(absl::Milliseconds(100)), absl::ZeroDuration());
}

TEST_F(PaceTest, RestsNoLongerThanItMay) {
  Pass(absl::Seconds(1), /*idle=*/0);
  const absl::Duration rest = Rest(absl::Seconds(60));
  EXPECT_EQ(rest, Pace::kLongest - absl::Seconds(1));
  Pass(rest, /*idle=*/0);
  EXPECT_EQ(Rest(absl::Seconds(60)), absl::ZeroDuration());
}

TEST_F(PaceTest, WhatIsDoneInAMomentIsNotDrawnOut) {
  Pass(absl::Milliseconds(2), /*idle=*/0);
  EXPECT_EQ(Rest(absl::Milliseconds(2)), absl::ZeroDuration());
}

TEST(ProcessorsTest, TheKernelTellsWhatTheyDo) {
  const Pace::Processors processors = ReadProcessors();
  EXPECT_GT(processors.all, 0);
  EXPECT_LE(processors.idle, processors.all);
  EXPECT_GT(ThreadTime(), absl::ZeroDuration());
}

}  // namespace
}  // namespace rubato
