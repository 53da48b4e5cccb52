#include "common/wire/stream_core.h"

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "common/base/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Side = StreamCore::Side;
using Step = StreamCore::Step;

constexpr size_t kMaxWaiting = 10000;
constexpr Side kSides[] = {Side::kWorker, Side::kServer};

// All that the core wants begun. What is written is dropped.
std::vector<Step> Steps(StreamCore* core) {
  std::vector<Step> steps;
  for (Step step = core->Next(); step != Step::kNone; step = core->Next()) {
    if (step == Step::kWrite) core->outbox()->Clear();
    steps.push_back(step);
  }
  return steps;
}

// A small message that has come is handled.
void Read(const absl::Status& status, StreamCore* core) {
  EXPECT_TRUE(core->OnReceived(true, 100));
  core->OnHandled(status);
}

// A frame with a payload, or none.
void Push(size_t bytes, StreamCore* core) {
  const auto values = std::make_shared<std::vector<float>>(bytes / sizeof(float));
  core->Push(Frame(), {values, *values});
}

// A stream of which `Steps` have been taken.
std::unique_ptr<StreamCore> Opened(Side side) {
  auto core = std::make_unique<StreamCore>(side, kMaxWaiting);
  core->OnOpened();
  EXPECT_THAT(Steps(core.get()), ElementsAre(Step::kRead));
  return core;
}

TEST(StreamCoreTest, FramesWaitUntilItIsOpen) {
  for (const Side side : kSides) {
    StreamCore core(side, kMaxWaiting);
    Push(100, &core);
    EXPECT_THAT(Steps(&core), IsEmpty());
    core.OnOpened();
    EXPECT_THAT(Steps(&core), ElementsAre(Step::kWrite, Step::kRead));
  }
}

TEST(StreamCoreTest, OneWriteAndOneReadAreUnderWay) {
  for (const Side side : kSides) {
    const auto core = Opened(side);
    Push(100, core.get());
    EXPECT_THAT(Steps(core.get()), ElementsAre(Step::kWrite));
    Push(100, core.get());
    EXPECT_THAT(Steps(core.get()), IsEmpty());
    core->OnWritten(true);
    EXPECT_THAT(Steps(core.get()), ElementsAre(Step::kWrite));
    Read(absl::OkStatus(), core.get());
    EXPECT_THAT(Steps(core.get()), ElementsAre(Step::kRead));
  }
}

TEST(StreamCoreTest, WhatIsHeldGoesTogetherUntilItFillsAMessage) {
  const auto core = Opened(Side::kWorker);
  core->Hold();
  core->Hold();
  Push(100, core.get());
  core->Release();
  EXPECT_THAT(Steps(core.get()), IsEmpty());
  core->Release();
  EXPECT_THAT(Steps(core.get()), ElementsAre(Step::kWrite));
  core->OnWritten(true);
  core->Hold();
  Push(kMessageBytes, core.get());
  EXPECT_THAT(Steps(core.get()), ElementsAre(Step::kWrite));
}

// The answers go before the next read is asked for.
TEST(StreamCoreTest, WritesComeBeforeReads) {
  const auto core = Opened(Side::kServer);
  core->Hold();
  Read(absl::OkStatus(), core.get());
  Push(100, core.get());
  core->Release();
  EXPECT_THAT(Steps(core.get()), ElementsAre(Step::kWrite, Step::kRead));
}

TEST(StreamCoreTest, BehindAFullMessageItReadsBeforeThatIsHandled) {
  for (const Side side : kSides) {
    const auto core = Opened(side);
    for (int i = 0; i < 3; ++i) {
      EXPECT_TRUE(core->OnReceived(true, kFullMessageBytes));
      EXPECT_THAT(Steps(core.get()), ElementsAre(Step::kRead));
      core->OnHandled(absl::OkStatus());
      EXPECT_THAT(Steps(core.get()), IsEmpty());
    }
    EXPECT_TRUE(core->OnReceived(true, kFullMessageBytes - 1));
    EXPECT_THAT(Steps(core.get()), IsEmpty());
    core->OnHandled(absl::OkStatus());
    EXPECT_THAT(Steps(core.get()), ElementsAre(Step::kRead));
  }
}

// A peer that has sent nonsense may have sent more behind it.
TEST(StreamCoreTest, WhatComesBehindNonsenseIsNotHandled) {
  const auto core = Opened(Side::kServer);
  EXPECT_TRUE(core->OnReceived(true, kFullMessageBytes));
  EXPECT_THAT(Steps(core.get()), ElementsAre(Step::kRead));
  core->OnHandled(absl::InvalidArgumentError("nonsense"));
  EXPECT_THAT(Steps(core.get()), ElementsAre(Step::kFinish));
  core->OnFinished();
  EXPECT_THAT(Steps(core.get()), IsEmpty());
  EXPECT_FALSE(core->OnReceived(true, 100));
  EXPECT_THAT(Steps(core.get()), ElementsAre(Step::kGone));
}

TEST(StreamCoreTest, APeerThatDoesNotTakeItsAnswersIsNotRead) {
  const auto core = Opened(Side::kServer);
  Push(100, core.get());
  EXPECT_THAT(Steps(core.get()), ElementsAre(Step::kWrite));  // and does not end
  Push(kMaxWaiting, core.get());
  Read(absl::OkStatus(), core.get());
  EXPECT_THAT(Steps(core.get()), IsEmpty());
  core->OnWritten(true);
  EXPECT_THAT(Steps(core.get()), ElementsAre(Step::kWrite, Step::kRead));
}

TEST(StreamCoreTest, AWorkerFinishesWhenItsReadHasFailed) {
  const auto core = Opened(Side::kWorker);
  Push(100, core.get());
  Steps(core.get());
  core->OnReceived(false, 0);
  EXPECT_THAT(Steps(core.get()), IsEmpty());  // the server has ended the write too
  core->OnWritten(false);
  EXPECT_THAT(Steps(core.get()), ElementsAre(Step::kFinish));
  core->OnFinished();
  EXPECT_THAT(Steps(core.get()), ElementsAre(Step::kGone));
  EXPECT_TRUE(core->status().ok());
}

TEST(StreamCoreTest, AWorkerThatHasEnoughCancelsWhatIsUnderWay) {
  const auto core = Opened(Side::kWorker);
  core->End(absl::CancelledError("enough"));
  EXPECT_THAT(Steps(core.get()), ElementsAre(Step::kCancel));
  Push(100, core.get());
  EXPECT_THAT(Steps(core.get()), IsEmpty());
  core->OnReceived(false, 0);
  EXPECT_THAT(Steps(core.get()), ElementsAre(Step::kFinish));
  EXPECT_EQ(core->status().message(), "enough");
}

TEST(StreamCoreTest, AWorkerThatHasEnoughWhileAMessageIsHandledCancels) {
  const auto core = Opened(Side::kWorker);
  EXPECT_TRUE(core->OnReceived(true, 100));
  core->End(absl::OkStatus());
  EXPECT_THAT(Steps(core.get()), ElementsAre(Step::kCancel, Step::kFinish));
  core->OnFinished();
  EXPECT_THAT(Steps(core.get()), IsEmpty());
  core->OnHandled(absl::OkStatus());
  EXPECT_THAT(Steps(core.get()), ElementsAre(Step::kGone));
}

TEST(StreamCoreTest, AWorkerThatHasEnoughBeforeItIsOpenWaitsForThat) {
  for (const bool opens : {false, true}) {
    StreamCore core(Side::kWorker, kMaxWaiting);
    core.End(absl::OkStatus());
    EXPECT_THAT(Steps(&core), ElementsAre(Step::kCancel));
    opens ? core.OnOpened() : core.OnOpenFailed(absl::OkStatus());
    EXPECT_THAT(Steps(&core), ElementsAre(Step::kFinish));
  }
}

// The peer is told: a cancelled call would say nothing.
TEST(StreamCoreTest, AServerFinishesWithWhatWasWrongWithAMessage) {
  const auto core = Opened(Side::kServer);
  Read(absl::InvalidArgumentError("nonsense"), core.get());
  EXPECT_THAT(Steps(core.get()), ElementsAre(Step::kFinish));
  EXPECT_EQ(core->status().message(), "nonsense");
  core->OnFinished();
  EXPECT_THAT(Steps(core.get()), ElementsAre(Step::kGone));
}

// And the server, which takes its message for a good one, is told too.
TEST(StreamCoreTest, AWorkerThatIsSentNonsenseCancels) {
  const auto core = Opened(Side::kWorker);
  Read(absl::InvalidArgumentError("nonsense"), core.get());
  EXPECT_THAT(Steps(core.get()), ElementsAre(Step::kCancel, Step::kFinish));
  EXPECT_EQ(core->status().message(), "nonsense");
}

TEST(StreamCoreTest, AServerDoesNotWaitForAStalledPeerToTakeAMessage) {
  const auto core = Opened(Side::kServer);
  Push(100, core.get());
  Steps(core.get());
  Read(absl::InvalidArgumentError("nonsense"), core.get());
  EXPECT_THAT(Steps(core.get()), ElementsAre(Step::kCancel));
  core->OnWritten(false);
  EXPECT_THAT(Steps(core.get()), ElementsAre(Step::kFinish));
}

TEST(StreamCoreTest, AServerRefusesACall) {
  StreamCore core(Side::kServer, kMaxWaiting);
  core.OnOpenFailed(absl::FailedPreconditionError("another job"));
  EXPECT_THAT(Steps(&core), ElementsAre(Step::kFinish));
  EXPECT_EQ(core.status().message(), "another job");
}

// A message that has been read before a write failed, in either order of the two events.
TEST(StreamCoreTest, WhatHasArrivedIsReadAlthoughAWriteFails) {
  for (const Side side : kSides) {
    for (const bool write_first : {false, true}) {
      const auto core = Opened(side);
      Push(100, core.get());
      EXPECT_THAT(Steps(core.get()), ElementsAre(Step::kWrite));
      if (write_first) core->OnWritten(false);
      EXPECT_THAT(Steps(core.get()), IsEmpty());
      Read(absl::OkStatus(), core.get());
      EXPECT_THAT(Steps(core.get()), ElementsAre(Step::kRead));
      if (!write_first) core->OnWritten(false);
      Push(100, core.get());
      EXPECT_THAT(Steps(core.get()), IsEmpty());
      core->OnReceived(false, 0);
      EXPECT_THAT(Steps(core.get()), ElementsAre(Step::kFinish));
    }
  }
}

TEST(StreamCoreTest, FramesGoByTheLinkOnceItIsOpen) {
  for (const Side side : kSides) {
    StreamCore core(side, kMaxWaiting);
    core.OnLinked();
    EXPECT_FALSE(core.sends_by_link());
    Push(100, &core);
    core.OnOpened();
    EXPECT_TRUE(core.sends_by_link());
    EXPECT_FALSE(core.outbox()->empty());  // which the shell gives to the link
    core.outbox()->Clear();
    EXPECT_THAT(Steps(&core), ElementsAre(Step::kRead));
    core.OnReceived(false, 0);
    EXPECT_FALSE(core.sends_by_link());
    EXPECT_THAT(Steps(&core), ElementsAre(Step::kStopLink));
    core.OnLinkEnded(absl::OkStatus());
    EXPECT_THAT(Steps(&core), ElementsAre(Step::kFinish));
  }
}

TEST(StreamCoreTest, NonsenseInSharedMemoryEndsTheStream) {
  for (const Side side : kSides) {
    StreamCore core(side, kMaxWaiting);
    core.OnLinked();
    core.OnOpened();
    EXPECT_THAT(Steps(&core), ElementsAre(Step::kRead));
    core.OnLinkEnded(absl::InvalidArgumentError("nonsense"));
    // The worker's read does not end by itself. The server's does, with the call.
    EXPECT_THAT(Steps(&core), ElementsAre(side == Side::kWorker ? Step::kCancel : Step::kFinish));
    if (side == Side::kServer) core.OnFinished();
    EXPECT_THAT(Steps(&core), IsEmpty());
    core.OnReceived(false, 0);
    EXPECT_THAT(Steps(&core), ElementsAre(side == Side::kWorker ? Step::kFinish : Step::kGone));
    EXPECT_EQ(core.status().message(), "nonsense");
  }
}

// Any order of events, each of what is under way: the call's rules are kept, and once the peer is
// gone the stream is too.
TEST(StreamCoreTest, AnyStreamThatHasEndedIsGoneWhenNothingIsUnderWay) {
  RandomStream random(20261122);
  for (int round = 0; round < 5000; ++round) {
    const Side side = kSides[random.Below(2)];
    StreamCore core(side, kMaxWaiting);
    std::set<Step> under_way;
    bool opening = true, linked = random.Below(3) == 0, dead = false, finished = false;
    bool gone = false;
    if (linked) core.OnLinked();
    const auto proceed = [&] {
      for (Step step = core.Next(); step != Step::kNone; step = core.Next()) {
        ASSERT_FALSE(gone);
        ASSERT_TRUE(under_way.insert(step).second || step == Step::kCancel);
        switch (step) {
          case Step::kWrite:
            ASSERT_FALSE(core.outbox()->empty());
            core.outbox()->PopFront();
            [[fallthrough]];
          case Step::kRead:
            ASSERT_FALSE(opening || finished || under_way.count(Step::kFinish) > 0);
            break;
          case Step::kCancel:
            dead = true;
            break;
          case Step::kFinish:
            ASSERT_FALSE(opening || linked || under_way.count(Step::kWrite) > 0);
            ASSERT_TRUE(side == Side::kServer || under_way.count(Step::kRead) == 0);
            finished = dead = true;
            break;
          case Step::kGone:
            under_way.erase(Step::kGone);
            ASSERT_THAT(under_way, ::testing::Not(::testing::Contains(Step::kRead)));
            gone = true;
            break;
          default:
            break;
        }
      }
    };
    for (int i = 0; i < 60 || !gone; ++i) {
      ASSERT_LT(i, 1000) << "round " << round << " does not end";
      if (i == 60) dead = true;  // the peer is gone
      switch (random.Below(9)) {
        case 0:
          if (opening) {
            opening = false;
            random.Below(4) == 0 || dead ? core.OnOpenFailed(absl::OkStatus()) : core.OnOpened();
            if (core.sends_by_link()) core.outbox()->Clear();
          }
          break;
        case 1:
        case 2:
          if (under_way.erase(Step::kWrite) > 0) core.OnWritten(!dead && random.Below(30) > 0);
          break;
        case 3:
        case 4:
          if (under_way.erase(Step::kRead) > 0) {
            const bool ok = !dead && random.Below(30) > 0;
            if (!core.OnReceived(ok, random.Below(2) == 0 ? kFullMessageBytes : 100)) break;
            proceed();
            if (HasFatalFailure()) return;
            core.OnHandled(random.Below(30) == 0 ? absl::InvalidArgumentError("nonsense")
                                                 : absl::OkStatus());
          }
          break;
        case 5:
          if (linked && under_way.erase(Step::kStopLink) > 0) {
            linked = false;
            core.OnLinkEnded(absl::OkStatus());
          } else if (linked && !opening && random.Below(30) == 0) {
            linked = false;
            core.OnLinkEnded(absl::InvalidArgumentError("nonsense"));
          }
          break;
        case 6:
          if (under_way.erase(Step::kFinish) > 0) core.OnFinished();
          break;
        case 7:
          if (!core.sends_by_link()) Push(random.Below(2 * kMaxWaiting), &core);
          break;
        case 8:
          if (side == Side::kWorker && random.Below(40) == 0) core.End(absl::OkStatus());
          break;
      }
      proceed();
      if (HasFatalFailure()) return;
    }
  }
}

}  // namespace
}  // namespace rubato
