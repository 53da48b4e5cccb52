#include "worker/step/pulled_parameters.h"

#include <future>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "common/base/monotonic.h"
#include "common/base/status_matchers.h"
#include "common/wire/arena_space.h"
#include "common/wire/shared_arena.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/process/mailbox.h"

namespace rubato {
namespace {

using ::testing::ElementsAre;
using ::testing::Gt;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Ten values in five blocks, of which a computation needs the first two values first.
class PulledParametersTest : public ::testing::Test {
 protected:
  PulledParametersTest() : mailbox_([this] { parameters_->Wake(); }) {
    parameters_.emplace(&mailbox_.waiting());
    PulledParameters::Callbacks callbacks;
    callbacks.on_first = [this](uint64_t) { ++first_; };
    callbacks.on_all = [this](const PulledParameters::Arrived& arrived) {
      all_.push_back(arrived.number);
      passed_ = arrived.passed;
      staleness_ = arrived.staleness;
      version_ = arrived.version;
    };
    parameters_->Open(Placement::Even(FlatSpace(10, 2), 1), {0, 2}, std::move(callbacks));
  }

  absl::Status Bring(uint64_t pull, int64_t block, int64_t version = 3, uint32_t staleness = 0) {
    Frame frame;
    frame.kind = FrameKind::kParameters;
    frame.unit = pull;
    frame.block = static_cast<uint64_t>(block);
    frame.version = static_cast<uint64_t>(version);
    frame.staleness = staleness;
    const std::vector<float> values(2, static_cast<float>(10 * pull + frame.block));
    return parameters_->OnFrame(0, frame, absl::MakeConstSpan(values));
  }
  void BringAll(uint64_t pull) {
    for (int64_t block = 0; block < 5; ++block) RUBATO_EXPECT_OK(Bring(pull, block));
  }

  std::optional<PulledParameters> parameters_;
  Mailbox<int> mailbox_;
  int first_ = 0;
  std::vector<uint64_t> all_;
  bool passed_ = false;
  double staleness_ = 0;
  int64_t version_ = 0;
};

TEST_F(PulledParametersTest, SaysHowManyContributionsTheParametersHold) {
  for (const uint64_t pull : {1, 2}) {
    parameters_->Begin({pull, 0, /*exact=*/false});
    for (int64_t block = 0; block < 5; ++block) {
      RUBATO_EXPECT_OK(Bring(pull, block, static_cast<int64_t>(pull) * 10 + (block < 2 ? 3 : 0)));
    }
    EXPECT_EQ(version_, pull * 10 + 1) << "6 / 5, rounded down";
  }
}

TEST_F(PulledParametersTest, SaysWhenTheFirstAndWhenAllAreHere) {
  parameters_->Begin({1, 3, /*exact=*/true});
  for (const int64_t block : {4, 2}) RUBATO_EXPECT_OK(Bring(1, block, 3, 10));
  EXPECT_EQ(parameters_->MayBegin(), std::nullopt);
  RUBATO_EXPECT_OK(Bring(1, 0));
  EXPECT_EQ(first_, 1);
  EXPECT_EQ(parameters_->MayBegin(), 1u);
  RUBATO_EXPECT_OK(Bring(1, 1));
  EXPECT_THAT(all_, IsEmpty());
  RUBATO_EXPECT_OK(Bring(1, 3));
  EXPECT_EQ(first_, 1);
  EXPECT_THAT(all_, ElementsAre(1));
  EXPECT_FALSE(passed_);
  EXPECT_EQ(staleness_, 4);
  EXPECT_EQ(parameters_->MayBegin(), std::nullopt);
  EXPECT_FALSE(parameters_->Use(absl::InfiniteFuture()));  // it is too late for that
  EXPECT_THAT(parameters_->values(), ElementsAre(10, 10, 11, 11, 12, 12, 13, 13, 14, 14));
  EXPECT_EQ(parameters_->version(2), 3);
}

// A server that is gone would keep its memory until the worker joins anew.
TEST_F(PulledParametersTest, GivesBackWhatItHasBorrowedWhenItIsClosed) {
  auto arena = SharedArena::Create();
  RUBATO_ASSERT_OK(arena);
  auto view = SharedArenaView::Open((*arena)->Offer());
  RUBATO_ASSERT_OK(view);
  constexpr int64_t kLent = kSharedPage / sizeof(float);
  PulledParameters::Callbacks callbacks;
  callbacks.on_first = [](uint64_t) {};
  callbacks.on_all = [](const PulledParameters::Arrived&) {};
  parameters_->Open(Placement::Even(FlatSpace(kLent, kLent), 1), {0, kLent}, std::move(callbacks));
  parameters_->Begin({1, 3, /*exact=*/true});
  const std::shared_ptr<char> piece = (*arena)->Allocate(kSharedPage);
  ReceivedValues values(absl::MakeConstSpan(reinterpret_cast<const float*>(piece.get()), kLent));
  auto loan = std::make_shared<int>(0);
  const std::weak_ptr<const void> watch = loan;
  values.SetLent({*view, *(*arena)->Find({piece.get(), kSharedPage}), std::move(loan)});
  Frame frame;
  frame.kind = FrameKind::kParameters;
  frame.unit = 1;
  frame.version = 3;
  RUBATO_ASSERT_OK(parameters_->OnFrame(0, frame, values));
  values = {};
  EXPECT_FALSE(watch.expired());
  parameters_->Close();
  EXPECT_TRUE(watch.expired());
  EXPECT_EQ(parameters_->MayBegin(), std::nullopt);
}

// The reader's own lock may be held by a thread that wakes this.
TEST_F(PulledParametersTest, AsksTheReaderWithTheFirstBlockOfEachPullAndNoLockHeld) {
  std::vector<float> reads(10, -1.0f);
  int asked = 0;
  PulledParameters::Callbacks callbacks;
  callbacks.on_first = [](uint64_t) {};
  callbacks.on_all = [](const PulledParameters::Arrived&) {};
  parameters_->Open(Placement::Even(FlatSpace(10, 2), 1), {0, 10}, std::move(callbacks), nullptr,
                    [&] {
                      parameters_->Wake();
                      return ++asked == 2 ? absl::MakeSpan(reads) : absl::Span<float>();
                    });
  for (uint64_t pull = 1; pull <= 3; ++pull) {
    parameters_->Begin({pull, 3});
    RUBATO_EXPECT_OK(Bring(pull - 1, 0));  // too late: that place is whoever's now
    EXPECT_EQ(asked, static_cast<int>(pull) - 1);
    BringAll(pull);
    EXPECT_EQ(asked, static_cast<int>(pull));
    const float first = static_cast<float>(10 * pull);
    EXPECT_EQ(parameters_->values()[0], first);
  }
  EXPECT_THAT(reads, ElementsAre(20, 20, 21, 21, 22, 22, 23, 23, 24, 24));
}

TEST_F(PulledParametersTest, OnlyAnswersToTheLastPullCount) {
  parameters_->Begin({1, 3});
  RUBATO_EXPECT_OK(Bring(1, 0));
  parameters_->Begin({2, 3});
  RUBATO_EXPECT_OK(Bring(1, 1));
  BringAll(2);
  EXPECT_THAT(all_, ElementsAre(2));
  parameters_->Begin({3, 3, false, /*observer=*/true});
  BringAll(3);
  EXPECT_EQ(first_, 2);  // not of the third: an observer computes nothing
}

TEST_F(PulledParametersTest, RefusesWhatNoHonestShardSends) {
  parameters_->Begin({1, 3, /*exact=*/true});
  EXPECT_THAT(Bring(1, 5), IsError(absl::StatusCode::kInternal, HasSubstr("block 5")));
  EXPECT_THAT(Bring(1, 1, 2), IsError(absl::StatusCode::kInternal, HasSubstr("at least 3")));
}

TEST_F(PulledParametersTest, ASecondCopyOfABlockChangesNothing) {
  parameters_->Begin({1, 3});
  RUBATO_EXPECT_OK(Bring(1, 1));
  RUBATO_EXPECT_OK(Bring(1, 1, /*version=*/4));
  for (const int64_t block : {0, 2, 3, 4}) RUBATO_EXPECT_OK(Bring(1, block));
  EXPECT_THAT(all_, ElementsAre(1));
  EXPECT_EQ(parameters_->version(1), 3);
}

TEST_F(PulledParametersTest, AComputationThatHasBegunWaitsForWhatItNeeds) {
  parameters_->Begin({1, 3, /*exact=*/true});
  RUBATO_EXPECT_OK(Bring(1, 0));
  ASSERT_TRUE(parameters_->Use(absl::InfiniteFuture()));
  EXPECT_TRUE(parameters_->Await({0, 2}));
  EXPECT_TRUE(parameters_->Await({7, 7}));  // a layer without parameters
  std::vector<std::future<bool>> waiting;
  for (const Range values : {Range{1, 3}, Range{5, 6}, Range{0, 10}}) {
    waiting.push_back(
        std::async(std::launch::async, [this, values] { return parameters_->Await(values); }));
  }
  for (const int64_t block : {4, 1, 2}) RUBATO_EXPECT_OK(Bring(1, block));
  EXPECT_TRUE(waiting[0].get());
  EXPECT_TRUE(waiting[1].get());
  RUBATO_EXPECT_OK(Bring(1, 3));
  EXPECT_TRUE(waiting[2].get());
  EXPECT_THAT(all_, IsEmpty());  // the computation knows
  EXPECT_EQ(parameters_->FinishUse().number, 1u);
  EXPECT_TRUE(parameters_->Await({0, 10}));
}

// So a view that changes, a signal or a broken stream never waits behind a computation that waits.
TEST_F(PulledParametersTest, AnyEventInterruptsAComputationThatWaits) {
  parameters_->Begin({1, 3, /*exact=*/true});
  RUBATO_EXPECT_OK(Bring(1, 0));
  ASSERT_TRUE(parameters_->Use(absl::InfiniteFuture()));
  std::future<bool> waiting = std::async(std::launch::async, [this] {
    return parameters_->Await({2, 4});
  });
  mailbox_.Post(0);
  EXPECT_FALSE(waiting.get());
  EXPECT_FALSE(parameters_->Await({2, 4}));
  EXPECT_TRUE(parameters_->Await({0, 2}));  // what is here needs no waiting
  parameters_->Abandon();
  EXPECT_EQ(parameters_->MayBegin(), std::nullopt);  // the event comes first
  EXPECT_TRUE(mailbox_.Take(absl::InfiniteFuture()).has_value());
  EXPECT_EQ(parameters_->MayBegin(), 1u);
  ASSERT_TRUE(parameters_->Use(absl::InfiniteFuture()));
  for (const int64_t block : {1, 2, 3, 4}) RUBATO_EXPECT_OK(Bring(1, block));
  EXPECT_TRUE(parameters_->Await({0, 10}));
  parameters_->FinishUse();
}

TEST_F(PulledParametersTest, AStepThatHasPassedEndsAComputationThatWaits) {
  parameters_->Begin({1, 3, /*exact=*/true});
  RUBATO_EXPECT_OK(Bring(1, 0));
  ASSERT_TRUE(parameters_->Use(absl::InfiniteFuture()));
  std::future<bool> waiting = std::async(std::launch::async, [this] {
    return parameters_->Await({2, 4});
  });
  RUBATO_EXPECT_OK(Bring(1, 3, /*version=*/4));
  EXPECT_FALSE(waiting.get());
  EXPECT_FALSE(parameters_->Await({0, 2}));
  parameters_->Abandon();
  EXPECT_EQ(parameters_->MayBegin(), std::nullopt);
  for (const int64_t block : {1, 2, 4}) RUBATO_EXPECT_OK(Bring(1, block));
  EXPECT_THAT(all_, ElementsAre(1));
  EXPECT_TRUE(passed_);
}

TEST_F(PulledParametersTest, WhatArrivesWhileAComputationIsAbandonedIsToldOnce) {
  parameters_->Begin({1, 3, /*exact=*/true});
  RUBATO_EXPECT_OK(Bring(1, 0));
  ASSERT_TRUE(parameters_->Use(absl::InfiniteFuture()));
  mailbox_.Post(0);
  EXPECT_FALSE(parameters_->Await({0, 10}));
  for (const int64_t block : {1, 2, 3, 4}) RUBATO_EXPECT_OK(Bring(1, block));
  EXPECT_THAT(all_, IsEmpty());
  parameters_->Abandon();
  EXPECT_THAT(all_, ElementsAre(1));
}

TEST_F(PulledParametersTest, NobodyWaitsBeyondTheDeadline) {
  parameters_->Begin({1, 3});
  RUBATO_EXPECT_OK(Bring(1, 0));
  ASSERT_TRUE(parameters_->Use(MonotonicNow()));
  EXPECT_FALSE(parameters_->Await({0, 10}));
}

TEST_F(PulledParametersTest, CountsTheTimeThatItsOwnerHasNothingElseToDo) {
  const auto pause = [] {
    const absl::Time end = MonotonicNow() + absl::Milliseconds(2);
    while (MonotonicNow() < end) {
    }
  };
  parameters_->Begin({1, 3});
  pause();  // waits
  RUBATO_EXPECT_OK(Bring(1, 0));
  ASSERT_TRUE(parameters_->Use(absl::InfiniteFuture()));
  pause();  // computes
  for (const int64_t block : {1, 2, 3, 4}) RUBATO_EXPECT_OK(Bring(1, block));
  pause();
  EXPECT_TRUE(parameters_->Await({0, 10}));
  parameters_->FinishUse();
  const PulledParameters::Times times = parameters_->times();
  EXPECT_GE(times.waited, 2000000);
  EXPECT_GE(times.arrived - times.begun, times.waited + 2000000);
  EXPECT_THAT(absl::GetCurrentTimeNanos() - times.arrived, Gt(2000000));
}

TEST_F(PulledParametersTest, WhileItsOwnerIsBusyItDoesNotWait) {
  parameters_->Begin({1, 3}, /*is_busy=*/true);
  BringAll(1);
  EXPECT_EQ(parameters_->times().waited, 0);
  parameters_->BecomeIdle();
  EXPECT_EQ(parameters_->times().waited, 0) << "all were here";
  parameters_->Begin({2, 4}, /*is_busy=*/true);
  parameters_->BecomeIdle();
  BringAll(2);
  const PulledParameters::Times times = parameters_->times();
  EXPECT_GT(times.waited, 0);
  EXPECT_LT(times.waited, times.arrived - times.begun);
}

}  // namespace
}  // namespace rubato
