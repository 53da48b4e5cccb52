#include "server/shard/shard_protocol.h"

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Two blocks of one number each; an update adds the gradient.
class Numbers : public ShardValues {
 public:
  explicit Numbers(bool take_time) : take_time_(take_time) {}

  size_t held() const { return held_.size(); }

  absl::StatusOr<Range> Open(const proto::View&) override { return Range{0, 2}; }
  absl::StatusOr<Range> GoOn(const proto::View&) override {
    held_.clear();
    return Range{0, 2};
  }
  size_t BlockSize(int64_t) const override { return 1; }
  size_t slots() const override { return 0; }
  PayloadId Arrive(const Frame&, const ReceivedValues& values) override {
    values.CopyTo(absl::MakeSpan(&held_[++last_], 1));
    return last_;
  }
  void EndArrival() override {}
  void Release(PayloadId payload) override { ASSERT_EQ(held_.erase(payload), 1u); }
  bool TakesTime(int64_t) override { return take_time_; }
  void Sum(const shard_action::Sum& sum) override {
    held_.at(sum.payload) += held_.at(sum.other);
    Release(sum.other);
  }
  Block Apply(const shard_action::Apply& apply) override {
    values_[apply.block] += held_.at(apply.payload);
    Release(apply.payload);
    return {absl::MakeConstSpan(&values_[apply.block], 1), {}};
  }
  void Skip(const shard_action::Skip& skip) override { Release(skip.payload); }
  std::optional<int64_t> Measure(const shard_action::Measure&, SumOfSquares*) override {
    return std::nullopt;
  }
  Payload Read(const shard_action::Send& send, Frame* frame) override {
    return HeadedCopy(send.block, frame);
  }
  std::vector<Payload> Copy(int64_t block) override {
    Frame unused;
    return {HeadedCopy(block, &unused)};
  }
  void Restore(int64_t block, uint32_t, const ReceivedValues& values) override {
    values.CopyTo(absl::MakeSpan(&values_[block], 1));
  }

 private:
  Payload HeadedCopy(int64_t block, Frame* frame) {
    const auto value = std::make_shared<const float>(values_[block]);
    const Payload payload(value, absl::MakeConstSpan(value.get(), 1));
    *frame = HeaderOf(*frame, payload);
    return payload;
  }

  const bool take_time_;
  float values_[2] = {0, 0};
  std::map<PayloadId, float> held_;
  PayloadId last_ = 0;
};

class ShardProtocolTest : public ::testing::Test {
 protected:
  explicit ShardProtocolTest(bool take_time = false) { Begin(take_time); }

  // A new shard.
  void Begin(bool take_time, std::optional<KeptShard> kept = std::nullopt) {
    auto numbers = std::make_unique<Numbers>(take_time);
    numbers_ = numbers.get();
    shard_.emplace(
        std::move(numbers),
        [this](const ShardOutcome& outcome) {
          if (const auto* said = std::get_if<shard_outcome::Said>(&outcome)) {
            outcomes_.push_back(said->message.ShortDebugString());
          } else if (const auto* sent = std::get_if<shard_outcome::Sent>(&outcome)) {
            outcomes_.push_back(absl::StrCat("block ", sent->frame.block, " v", sent->frame.version,
                                             ": ", sent->payload.values()[0]));
          } else if (const auto* updated = std::get_if<shard_outcome::Updated>(&outcome)) {
            outcomes_.push_back(absl::StrCat("updated ", updated->block, " v", updated->version,
                                             ": ", updated->parameters[0]));
          } else if (const auto* write = std::get_if<shard_outcome::WritePart>(&outcome)) {
            outcomes_.push_back(absl::StrCat("write ", write->blocks.size(), " blocks of snapshot ",
                                             write->snapshot, " to ", write->folder));
          } else if (const auto* forget = std::get_if<shard_outcome::ForgetPart>(&outcome)) {
            outcomes_.push_back(absl::StrCat("forget ", forget->snapshot));
          } else if (const auto* read = std::get_if<shard_outcome::ReadPart>(&outcome)) {
            outcomes_.push_back(
                absl::StrCat("read ", read->blocks.size(), " blocks of ", read->path));
          } else {
            outcomes_.push_back("refused");
          }
        },
        BuiltInPolicy, std::move(kept));
  }

  static constexpr uint64_t kKey = 77;

  // In sync; one worker.
  void Open(uint64_t restore_key = 0, uint64_t attempt = 0) {
    proto::CoordinatorMessage message;
    proto::View& view = *message.mutable_view();
    view.set_number(1);
    view.set_term(7);
    view.set_leaves(1);
    view.set_until_step(100);
    if (restore_key != 0) view.set_restore_key(restore_key);
    view.add_members()->set_incarnation(1);
    if (attempt != 0) view.mutable_members(0)->set_attempt(attempt);
    view.mutable_layout()->add_parameters()->add_shape(2);
    Tell(message);
    EXPECT_THAT(Taken(), ElementsAre("shard_opened { view: 1 }"));
  }

  void Tell(const proto::CoordinatorMessage& message) {
    RUBATO_EXPECT_OK(shard_->Handle(shard_event::Message{message}));
  }
  absl::Status Push(uint64_t step, float value, uint64_t block = 0) {
    Frame frame;
    frame.view = frame.incarnation = 1;
    frame.clock = step;
    frame.block = block;
    frame.samples = frame.weight = frame.end_leaf = 1;
    return shard_->Handle(shard_event::Arrival{7, frame, absl::MakeConstSpan(&value, 1)});
  }
  absl::Status Pull(uint32_t snapshot) {
    Frame frame;
    frame.kind = FrameKind::kPull;
    frame.worker = kObserver;
    frame.block_count = 2;
    frame.snapshot = snapshot;
    return shard_->Handle(shard_event::Arrival{7, frame, {}});
  }
  absl::Status RestoreBlock(uint64_t block, float value, uint64_t key = kKey) {
    Frame frame;
    frame.kind = FrameKind::kRestore;
    frame.worker = kObserver;
    frame.block = block;
    frame.unit = key;
    return shard_->Handle(shard_event::Arrival{7, frame, absl::MakeConstSpan(&value, 1)});
  }
  // What has come of events since the last call.
  std::vector<std::string> Taken() { return std::exchange(outcomes_, {}); }

  Numbers* numbers_;
  std::optional<ShardProtocol> shard_;

 private:
  std::vector<std::string> outcomes_;
};

TEST_F(ShardProtocolTest, BeforeTheFirstViewItReportsNothingAndRefusesFrames) {
  proto::CoordinatorMessage message;
  message.mutable_close()->set_view(1);
  Tell(message);
  EXPECT_THAT(Taken(), IsEmpty());
  message.mutable_report_request();
  Tell(message);
  EXPECT_THAT(Taken(), ElementsAre("shard_report { pushed_bytes: 0 pulled_bytes: 0 }"));
  EXPECT_THAT(Push(0, 1), IsError(absl::StatusCode::kFailedPrecondition, HasSubstr("not begun")));
  EXPECT_THAT(Taken(), ElementsAre("refused"));
}

TEST_F(ShardProtocolTest, WhatIsRefusedOrCountedBeforeIsNotHeld) {
  Open();
  EXPECT_THAT(Push(1, 1), IsError(absl::StatusCode::kInvalidArgument, HasSubstr("step 1")));
  EXPECT_THAT(Taken(), ElementsAre("refused"));
  RUBATO_EXPECT_OK(Push(0, 3));
  RUBATO_EXPECT_OK(Push(0, 4));
  EXPECT_THAT(Taken(), ElementsAre("updated 0 v1: 3"));
  EXPECT_EQ(numbers_->held(), 0u);
}

TEST_F(ShardProtocolTest, ASnapshotStaysAsItWasUntilItIsReleased) {
  Open();
  proto::CoordinatorMessage message;
  message.mutable_snapshot()->set_id(5);
  message.mutable_snapshot()->set_step(1);
  Tell(message);
  for (const uint64_t step : {0, 1}) {
    for (const uint64_t block : {0, 1}) RUBATO_EXPECT_OK(Push(step, 1 + block, block));
  }
  Taken();
  RUBATO_EXPECT_OK(Pull(5));
  EXPECT_THAT(Taken(), ElementsAre("block 0 v1: 1", "block 1 v1: 2"));
  message.mutable_release_snapshot()->set_id(5);
  Tell(message);
  EXPECT_THAT(Pull(5), IsError(absl::StatusCode::kNotFound, HasSubstr("snapshot 5")));
}

// On their data stream the values may overtake the message that announces them, or it them.
// The first one is written, or another shard has missed its part.
TEST_F(ShardProtocolTest, ANewSnapshotTakesThePlaceOfTheOneBefore) {
  Open();
  for (const uint32_t id : {5, 6}) {
    Taken();
    proto::CoordinatorMessage message;
    message.mutable_snapshot()->set_id(id);
    message.mutable_snapshot()->set_step(0);
    message.mutable_snapshot()->set_parts_folder("folder");
    Tell(message);
    EXPECT_EQ(Taken()[0].substr(0, 8), id == 6 ? "forget 5" : "snapshot");
    RUBATO_EXPECT_OK(Pull(id));
  }
  EXPECT_THAT(Pull(5), IsError(absl::StatusCode::kNotFound, HasSubstr("snapshot 5")));
}

TEST_F(ShardProtocolTest, IsRestoredWhenAllValuesAndTheirAnnouncementAreThere) {
  for (const int before : {0, 1, 2}) {
    Begin(/*take_time=*/false);
    Open(kKey);
    proto::CoordinatorMessage message;
    for (int64_t block = 0; block < 2; ++block) {
      proto::BlockState* state = message.mutable_restore()->add_blocks();
      state->set_block(block);
      state->set_version(4);
    }
    uint64_t block = 0;
    for (int i = 0; i < 3; ++i) {
      EXPECT_THAT(Taken(), IsEmpty());
      if (i == before) {
        Tell(message);
      } else {
        RUBATO_EXPECT_OK(RestoreBlock(block, 10 + block));
        ++block;
      }
    }
    EXPECT_THAT(Taken(), ElementsAre("shard_restored { }"));
    EXPECT_THAT(RestoreBlock(0, 1), IsError(absl::StatusCode::kInvalidArgument,
                                            HasSubstr("nothing is being restored")));
    Taken();
    RUBATO_EXPECT_OK(Pull(0));
    EXPECT_THAT(Taken(), ElementsAre("block 0 v4: 10", "block 1 v4: 11"));
  }
}

TEST_F(ShardProtocolTest, ItsPartIsWrittenWhereItIsToldUntilItIsReleased) {
  Begin(/*take_time=*/false);
  Open();
  proto::CoordinatorMessage snapshot;
  snapshot.mutable_snapshot()->set_id(1);
  snapshot.mutable_snapshot()->set_step(0);
  snapshot.mutable_snapshot()->set_parts_folder("/parts");
  Tell(snapshot);
  const std::vector<std::string> taken = Taken();
  ASSERT_EQ(taken.size(), 2u);
  EXPECT_THAT(taken[0], HasSubstr("snapshot_copied")) << "the coordinator hears of that first";
  EXPECT_EQ(taken[1], "write 2 blocks of snapshot 1 to /parts");
  proto::CoordinatorMessage release;
  release.mutable_release_snapshot()->set_id(1);
  Tell(release);
  EXPECT_THAT(Taken(), ElementsAre("forget 1"));
  Tell(release);
  EXPECT_THAT(Taken(), IsEmpty());
}

TEST_F(ShardProtocolTest, WhatItIsToldTwiceToReadItReadsOnce) {
  Begin(/*take_time=*/false);
  Open(kKey);
  proto::CoordinatorMessage message;
  message.mutable_restore()->set_path("/checkpoint");
  for (int64_t block = 0; block < 2; ++block) {
    message.mutable_restore()->add_blocks()->set_block(block);
  }
  Tell(message);
  EXPECT_THAT(Taken(), ElementsAre("read 2 blocks of /checkpoint"));
  Tell(message);
  EXPECT_THAT(Taken(), IsEmpty());
  RUBATO_EXPECT_OK(RestoreBlock(0, 1));
  RUBATO_EXPECT_OK(RestoreBlock(1, 1));
  EXPECT_THAT(Taken(), ElementsAre("shard_restored { }"));
  Tell(message);
  EXPECT_THAT(Taken(), IsEmpty());
}

TEST_F(ShardProtocolTest, NothingIsRestoredInAJobThatDoesNotBeginSo) {
  Open();
  for (const uint64_t key : {uint64_t{0}, uint64_t{1}, kKey}) {
    EXPECT_THAT(RestoreBlock(0, 1e6, key), IsError(absl::StatusCode::kInvalidArgument,
                                                   HasSubstr("nothing is being restored")));
  }
  proto::CoordinatorMessage message;
  message.mutable_restore()->add_blocks()->set_version(4);
  Tell(message);
  Taken();
  RUBATO_EXPECT_OK(Pull(0));
  EXPECT_THAT(Taken(), ElementsAre("block 0 v0: 0", "block 1 v0: 0"));
}

TEST_F(ShardProtocolTest, OnlyWhoHasTheKeyRestoresAndEachBlockOnce) {
  Open(kKey);
  proto::CoordinatorMessage message;
  for (int64_t block = 0; block < 2; ++block) {
    message.mutable_restore()->add_blocks()->set_block(block);
  }
  Tell(message);
  EXPECT_THAT(RestoreBlock(0, 1e6, 0),
              IsError(absl::StatusCode::kInvalidArgument, HasSubstr("nothing is being restored")));
  RUBATO_EXPECT_OK(RestoreBlock(0, 10));
  EXPECT_THAT(RestoreBlock(0, 1e6),
              IsError(absl::StatusCode::kInvalidArgument, HasSubstr("restored already")));
  EXPECT_THAT(Taken(), ElementsAre("refused", "refused")) << "block 1 is missing";
  RUBATO_EXPECT_OK(RestoreBlock(1, 11));
  EXPECT_THAT(Taken(), ElementsAre("shard_restored { }"));
  RUBATO_EXPECT_OK(Pull(0));
  EXPECT_THAT(Taken(), ElementsAre("block 0 v0: 10", "block 1 v0: 11"));
}

// As a recording that is none, or who is no coordinator, might have them.
TEST_F(ShardProtocolTest, RefusesViewsThatNoJobHas) {
  const auto answer = [this](absl::FunctionRef<void(proto::View*)> change) {
    proto::CoordinatorMessage message;
    proto::View& view = *message.mutable_view();
    view.set_number(1);
    view.set_leaves(1);
    view.add_members()->set_incarnation(1);
    view.mutable_layout()->add_parameters()->add_shape(2);
    change(&view);
    Tell(message);
    return Taken();
  };
  EXPECT_THAT(answer([](proto::View* view) { view->clear_layout(); }),
              ElementsAre(HasSubstr("view 1 has no parameters")));
  EXPECT_THAT(answer([](proto::View* view) { view->clear_leaves(); }),
              ElementsAre(HasSubstr("view 1 has units of 0 micro-batches")));
  EXPECT_THAT(answer([](proto::View* view) { view->set_origin_unit(-1); }),
              ElementsAre(HasSubstr("number -1")));
  EXPECT_THAT(answer([](proto::View* view) { view->clear_number(); }),
              ElementsAre(HasSubstr("a view has no number")));
  for (const int rank : {-1, 1 << 16}) {
    EXPECT_THAT(answer([&](proto::View* view) { view->mutable_members(0)->set_rank(rank); }),
                ElementsAre(HasSubstr(absl::StrCat("a member of rank ", rank))));
  }
  Open();
}

TEST_F(ShardProtocolTest, RefusesNumbersThatCannotBe) {
  Open();
  for (const uint64_t number : {(uint64_t{1} << 50) + 1, uint64_t{1} << 63, ~uint64_t{0}}) {
    for (uint64_t Frame::*field : {&Frame::clock, &Frame::version, &Frame::unit}) {
      for (const FrameKind kind : {FrameKind::kPush, FrameKind::kPull, FrameKind::kRetire}) {
        // A pull shows an attempt there, which is any number.
        if (field == &Frame::version && kind != FrameKind::kPush) continue;
        Frame frame;
        frame.kind = kind;
        frame.view = frame.incarnation = frame.samples = frame.weight = frame.end_leaf =
            frame.block_count = 1;
        frame.*field = number;
        const float value = 1;
        EXPECT_THAT(shard_->Handle(shard_event::Arrival{7, frame, absl::MakeConstSpan(&value, 1)}),
                    IsError(absl::StatusCode::kInvalidArgument, HasSubstr("expected at most")));
      }
    }
  }
}

// A stream is its worker's, and a member has one: whoever else has a worker's key pushes, pulls and
// retires in its own name.
TEST_F(ShardProtocolTest, NobodySpeaksInAnothersName) {
  Open();
  RUBATO_EXPECT_OK(Push(0, 1));
  Frame frame;
  frame.view = frame.incarnation = frame.samples = frame.weight = frame.end_leaf =
      frame.block_count = 1;
  const float value = 1;
  const auto send = [&](uint64_t stream) {
    return shard_->Handle(shard_event::Arrival{stream, frame, absl::MakeConstSpan(&value, 1)});
  };
  for (const FrameKind kind : {FrameKind::kPush, FrameKind::kPull, FrameKind::kRetire}) {
    frame.kind = kind;
    EXPECT_THAT(send(8),
                IsError(absl::StatusCode::kInvalidArgument, HasSubstr("has another stream")));
    frame.worker = 1;
    EXPECT_THAT(send(7),
                IsError(absl::StatusCode::kInvalidArgument, HasSubstr("that of worker 0")));
    frame.worker = 0;
  }
  EXPECT_EQ(numbers_->held(), 0u);
  RUBATO_EXPECT_OK(Pull(0)) << "the final test is read on a worker's own stream";
  RUBATO_EXPECT_OK(Push(1, 1)) << "its own stream goes on";
  RUBATO_EXPECT_OK(shard_->Handle(shard_event::StreamGone{7}));
  frame.kind = FrameKind::kPull;
  RUBATO_EXPECT_OK(send(8)) << "it is gone";
}

TEST_F(ShardProtocolTest, NobodySpeaksInTheNameOfAMemberThatHasNotSpoken) {
  Open(/*restore_key=*/0, /*attempt=*/77);
  Frame frame;
  frame.view = frame.incarnation = frame.samples = frame.weight = frame.end_leaf =
      frame.block_count = 1;
  const float value = 1;
  const auto send = [&](uint64_t stream, FrameKind kind, uint64_t version) {
    frame.kind = kind;
    frame.version = version;
    return shard_->Handle(shard_event::Arrival{stream, frame, absl::MakeConstSpan(&value, 1)});
  };
  for (const FrameKind kind : {FrameKind::kPush, FrameKind::kPull, FrameKind::kRetire}) {
    EXPECT_THAT(send(8, kind, 0),
                IsError(absl::StatusCode::kInvalidArgument, HasSubstr("has not shown")));
  }
  RUBATO_EXPECT_OK(send(7, FrameKind::kPull, 77));
  RUBATO_EXPECT_OK(send(7, FrameKind::kPush, 0));
}

// Their mean would be a division by zero, and the end of the block's parameters.
TEST_F(ShardProtocolTest, RefusesSumsOfNoSamples) {
  for (const proto::Mode::Name mode : {proto::Mode::NAME_SYNC, proto::Mode::NAME_ASYNC}) {
    Begin(/*take_time=*/false);
    proto::CoordinatorMessage message;
    proto::View& view = *message.mutable_view();
    view.set_number(1);
    view.mutable_mode()->set_mode(mode);
    view.set_leaves(1);
    view.set_until_step(100);
    view.add_members()->set_incarnation(1);
    view.mutable_layout()->add_parameters()->add_shape(2);
    Tell(message);
    Frame frame;
    frame.view = frame.incarnation = frame.end_leaf = 1;
    const float value = 1;
    EXPECT_THAT(shard_->Handle(shard_event::Arrival{7, frame, absl::MakeConstSpan(&value, 1)}),
                IsError(absl::StatusCode::kInvalidArgument, HasSubstr("0 samples")));
    EXPECT_EQ(numbers_->held(), 0u);
  }
}

TEST_F(ShardProtocolTest, SnapshotsAreForObservers) {
  Open();
  proto::CoordinatorMessage message;
  message.mutable_snapshot()->set_id(1);
  message.mutable_snapshot()->set_step(0);
  Tell(message);
  Frame frame;
  frame.kind = FrameKind::kPull;
  frame.view = frame.block_count = frame.snapshot = 1;
  EXPECT_THAT(shard_->Handle(shard_event::Arrival{7, frame, {}}),
              IsError(absl::StatusCode::kInvalidArgument, HasSubstr("asks for snapshot 1")));
}

class KeptShardProtocolTest : public ShardProtocolTest {
 protected:
  // The term is over; the next one begins, in which the view is `view`.
  void BeginTerm(const std::function<void(proto::View*)>& change) {
    std::optional<KeptShard> kept = shard_->TakeKept();
    ASSERT_TRUE(kept.has_value());
    state_ = kept->state;
    Begin(take_time_, std::move(kept));
    proto::CoordinatorMessage message;
    proto::View& view = *message.mutable_view();
    view.set_number(1);
    view.set_term(8);
    view.set_leaves(1);
    view.set_until_step(100);
    view.add_members()->set_incarnation(1);
    view.mutable_layout()->add_parameters()->add_shape(2);
    change(&view);
    Tell(message);
  }
  absl::Status PullStep(uint64_t step) {
    Frame frame;
    frame.kind = FrameKind::kPull;
    frame.view = 1;
    frame.clock = step;
    frame.block_count = 2;
    return shard_->Handle(shard_event::Arrival{7, frame, {}});
  }

  bool take_time_ = false;
  proto::KeptValues state_;  // of the term before
};

TEST_F(KeptShardProtocolTest, BlocksGoOnWhereTheyWereThoughOnlySomeHaveTakenTheStep) {
  Open();
  for (const uint64_t block : {0, 1}) RUBATO_EXPECT_OK(Push(0, 1 + block, block));
  RUBATO_EXPECT_OK(Push(1, 10));
  Taken();
  BeginTerm([](proto::View* view) {
    view->set_kept_term(7);
    view->set_origin_unit(1);
  });
  EXPECT_EQ(state_.view().term(), 7u);
  EXPECT_FALSE(state_.view().has_layout());
  ASSERT_EQ(state_.blocks_size(), 2);
  EXPECT_EQ(state_.blocks(0).version(), 2);
  EXPECT_EQ(state_.blocks(1).version(), 1);
  EXPECT_EQ(state_.blocks(1).samples(), 1);
  EXPECT_THAT(Taken(), ElementsAre("shard_opened { view: 1 }"));
  RUBATO_EXPECT_OK(PullStep(1));
  EXPECT_THAT(Taken(), ElementsAre(HasSubstr("block 0 v1"), "block 1 v1: 2"));
  RUBATO_EXPECT_OK(Push(1, 10));
  EXPECT_THAT(Taken(), IsEmpty()) << "it has taken the step";
  RUBATO_EXPECT_OK(Push(1, 20, 1));
  EXPECT_THAT(Taken(), ElementsAre("updated 1 v2: 22"));
  RUBATO_EXPECT_OK(Push(2, 100));
  EXPECT_THAT(Taken(), ElementsAre("updated 0 v3: 111"));
}

TEST_F(KeptShardProtocolTest, AViewThatDoesNotSaySoBeginsAnew) {
  Open();
  RUBATO_EXPECT_OK(Push(0, 1));
  Taken();
  BeginTerm([](proto::View*) {});
  Taken();
  RUBATO_EXPECT_OK(Pull(0));
  EXPECT_THAT(Taken(), ElementsAre("block 0 v0: 0", "block 1 v0: 0"));
}

TEST_F(KeptShardProtocolTest, OneOfAnotherTermIsAFailureAndNoEnd) {
  Open();
  BeginTerm([](proto::View* view) { view->set_kept_term(6); });
  const std::vector<std::string> taken = Taken();
  ASSERT_EQ(taken.size(), 1u);
  EXPECT_THAT(taken[0], HasSubstr("exit_code: 1 reason: \"view 1 goes on with the values of term "
                                  "6, which this shard has not kept\""));
}

// The shard has closed its last view, and another one has opened the next, in another mode.
TEST_F(KeptShardProtocolTest, BlocksThatHaveNotHeardOfTheNextLineageAreWhereItBegins) {
  for (const proto::Mode::Name next : {proto::Mode::NAME_SYNC, proto::Mode::NAME_BOUNDED}) {
    Begin(/*take_time=*/false);
    proto::CoordinatorMessage message;
    proto::View& first = *message.mutable_view();
    first.set_number(1);
    first.set_term(7);
    first.mutable_mode()->set_mode(proto::Mode::NAME_ASYNC);
    first.set_leaves(1);
    first.set_until_step(2);
    first.add_members()->set_incarnation(1);
    first.mutable_layout()->add_parameters()->add_shape(2);
    Tell(message);
    RUBATO_EXPECT_OK(Push(0, 3));
    message.mutable_left_out()->set_unit(1);  // of two contributions
    Tell(message);
    Taken();
    BeginTerm([next](proto::View* view) {
      view->set_kept_term(7);
      view->mutable_mode()->set_mode(next);
      view->set_origin_unit(2);
    });
    Taken();
    EXPECT_EQ(shard_->core()->ledger(0).skipped, 1);
    EXPECT_EQ(shard_->core()->ledger(1).skipped, 2);
    EXPECT_EQ(shard_->core()->ledger(1).units.below(), 2);
    RUBATO_EXPECT_OK(Pull(0));
    EXPECT_THAT(Taken(), ElementsAre("block 0 v2: 3", "block 1 v2: 0"));
  }
}

TEST_F(KeptShardProtocolTest, ATermThatHasOnlyBeenToGoOnWithThemHasThemStill) {
  Open();
  RUBATO_EXPECT_OK(Push(0, 3));
  for (const int opened : {0, 1, 2}) {
    BeginTerm([opened](proto::View* view) {
      view->set_term(8 + opened);
      view->set_kept_term(7);
    });
    EXPECT_EQ(state_.view().kept_term(), opened == 0 ? 0 : 7);
  }
  EXPECT_EQ(shard_->core()->ledger(0).version, 1);
  EXPECT_EQ(shard_->core()->ledger(1).version, 0);
}

TEST_F(KeptShardProtocolTest, WhatIsUnderWayIsDoneFirst) {
  take_time_ = true;
  Begin(take_time_);
  Open();
  RUBATO_EXPECT_OK(Push(0, 3));
  EXPECT_THAT(Taken(), IsEmpty());
  BeginTerm([](proto::View* view) { view->set_kept_term(7); });
  EXPECT_EQ(state_.blocks(0).version(), 1);
  EXPECT_EQ(state_.blocks(1).version(), 0);
}

TEST_F(KeptShardProtocolTest, ValuesThatAreNotWholeAreNotKept) {
  Open(kKey);
  RUBATO_EXPECT_OK(RestoreBlock(0, 10));
  EXPECT_FALSE(shard_->TakeKept().has_value());
}

TEST_F(KeptShardProtocolTest, WithoutAViewTheyWaitForTheTermAfterThat) {
  Open();
  RUBATO_EXPECT_OK(Push(0, 1));
  std::optional<KeptShard> kept = shard_->TakeKept();
  Begin(/*take_time=*/false, std::move(kept));
  ASSERT_TRUE(shard_->kept().has_value());
  BeginTerm([](proto::View* view) { view->set_kept_term(7); });
  EXPECT_EQ(state_.blocks(0).version(), 1);
}

class SlowShardProtocolTest : public ShardProtocolTest {
 protected:
  SlowShardProtocolTest() : ShardProtocolTest(/*take_time=*/true) {}
};

TEST_F(SlowShardProtocolTest, AChangeThatTakesTimeIsMadeWhenItIsDue) {
  Open();
  RUBATO_EXPECT_OK(Push(0, 3));
  EXPECT_THAT(Taken(), IsEmpty());
  RUBATO_EXPECT_OK(shard_->Handle(shard_event::ChangeDue{0}));
  EXPECT_THAT(Taken(), ElementsAre("updated 0 v1: 3"));
}

}  // namespace
}  // namespace rubato
