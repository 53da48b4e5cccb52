#include "server/shard.h"

#include <map>
#include <string>

#include "common/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Runs actions at once on symbolic payloads, so that a block's "parameters" are the text of all
// that went into them.
class SymbolicShard {
 public:
  explicit SymbolicShard(proto::View::Mode mode, int workers, int64_t leaves) : shard_({0, 2}) {
    view_.set_number(1);
    view_.set_mode(mode);
    view_.set_leaves(leaves);
    for (int rank = 0; rank < workers; ++rank) view_.add_members()->set_rank(rank);
  }

  void Open() {
    ShardActions actions;
    shard_.OnView(view_, &actions);
    Run(actions);
  }

  absl::Status Push(int worker, int64_t clock, Range node, const std::string& text,
                    int64_t read_version = 0, int64_t block = 0, uint32_t view = 1) {
    Contribution contribution;
    contribution.view = view;
    contribution.worker = worker;
    contribution.clock = clock;
    contribution.unit = last_payload_;  // each its own
    contribution.node = node;
    contribution.samples = node.empty() ? 1 : node.size();
    contribution.read_version = read_version;
    const PayloadId id = ++last_payload_;
    payloads_[id] = text;
    ShardActions actions;
    absl::Status status = shard_.OnPush(block, contribution, id, &actions);
    if (!status.ok()) payloads_.erase(id);
    Run(actions);
    return status;
  }

  absl::Status Pull(uint64_t puller, int worker, int64_t clock) {
    ShardActions actions;
    absl::Status status = shard_.OnPull(puller, worker, {0, 1}, clock, &actions);
    Run(actions);
    return status;
  }

  // "puller: version staleness parameters" of each answer so far.
  std::vector<std::string> sent;
  std::vector<std::string> events;  // snapshots and verdicts
  // Calls the shard and runs what it says.
  template <typename Call>
  void Do(Call call) {
    ShardActions actions;
    call(&actions);
    Run(actions);
  }
  proto::View& view() { return view_; }
  std::string parameters[2];
  std::vector<int64_t> samples_before;
  size_t held_payloads() const { return payloads_.size(); }
  Shard& shard() { return shard_; }

 private:
  void Run(ShardActions actions) {
    for (size_t i = 0; i < actions.size(); ++i) {
      const ShardAction action = actions[i];
      switch (action.kind) {
        case ShardAction::Kind::kSum: {
          // Addition is commutative: its text is the same from either side.
          const auto [low, high] =
              std::minmax(payloads_.at(action.payload), payloads_.at(action.other));
          payloads_[action.payload] = "(" + low + "+" + high + ")";
          payloads_.erase(action.other);
          shard_.OnChanged(action.block, &actions);
          break;
        }
        case ShardAction::Kind::kApply:
          parameters[action.block] +=
              payloads_.at(action.payload) + "/" + std::to_string(action.samples) + " ";
          samples_before.push_back(action.samples_before);
          payloads_.erase(action.payload);
          shard_.OnChanged(action.block, &actions);
          break;
        case ShardAction::Kind::kSend:
          sent.push_back(std::to_string(action.puller) + ": v" + std::to_string(action.version) +
                         " s" + std::to_string(action.staleness) + " " + parameters[action.block]);
          break;
        case ShardAction::Kind::kDrop:
          payloads_.erase(action.payload);
          break;
        case ShardAction::Kind::kMeasure:
          shard_.OnChanged(action.block, &actions);
          break;
        case ShardAction::Kind::kMeasured:
          events.push_back("measured " + std::to_string(action.version - 1));
          break;
        case ShardAction::Kind::kSkip:
          payloads_.erase(action.payload);
          shard_.OnChanged(action.block, &actions);
          break;
        case ShardAction::Kind::kCopy:
          events.push_back("copy " + std::to_string(action.block) + " v" +
                           std::to_string(action.version) + " " + parameters[action.block]);
          break;
        case ShardAction::Kind::kCopied:
          events.push_back("copied " + std::to_string(action.snapshot));
          break;
        case ShardAction::Kind::kMissed:
          events.push_back("missed " + std::to_string(action.snapshot) + " at " +
                           std::to_string(action.version));
          break;
        case ShardAction::Kind::kHeld:
          events.push_back("held at " + std::to_string(action.version));
          break;
      }
    }
  }

  Shard shard_;
  proto::View view_;
  std::map<PayloadId, std::string> payloads_;
  PayloadId last_payload_ = 0;
};

TEST(SyncShardTest, SumsAlongTheTreeWhateverTheOrderOfArrival) {
  const std::vector<std::pair<Range, std::string>> nodes = {
      {{0, 1}, "a"}, {{1, 2}, "b"}, {{2, 4}, "c"}};
  std::vector<int> order = {0, 1, 2};
  do {
    SymbolicShard shard(proto::View::MODE_SYNC, 3, 4);
    shard.Open();
    for (int i : order) RUBATO_ASSERT_OK(shard.Push(i, 0, nodes[i].first, nodes[i].second));
    EXPECT_EQ(shard.parameters[0], "((a+b)+c)/4 ");
    EXPECT_EQ(shard.held_payloads(), 0u);
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST(SyncShardTest, APullWaitsForItsVersionAndGetsExactlyThat) {
  SymbolicShard shard(proto::View::MODE_SYNC, 2, 2);
  RUBATO_ASSERT_OK(shard.Pull(7, kObserver, 0));  // before the view: waits
  EXPECT_THAT(shard.sent, IsEmpty());
  shard.Open();
  EXPECT_THAT(shard.sent, ElementsAre("7: v0 s0 "));
  RUBATO_ASSERT_OK(shard.Push(0, 0, {0, 1}, "a"));
  RUBATO_ASSERT_OK(shard.Pull(0, 0, 1));
  EXPECT_EQ(shard.sent.size(), 1u);
  RUBATO_ASSERT_OK(shard.Push(1, 0, {1, 2}, "b"));
  EXPECT_EQ(shard.sent.back(), "0: v1 s0 (a+b)/2 ");
}

TEST(SyncShardTest, ANodeIsCountedOnceWhoeverSendsIt) {
  SymbolicShard shard(proto::View::MODE_SYNC, 2, 2);
  shard.Open();
  RUBATO_ASSERT_OK(shard.Push(0, 0, {0, 1}, "a"));
  RUBATO_ASSERT_OK(shard.Push(1, 0, {0, 1}, "again"));
  RUBATO_ASSERT_OK(shard.Push(1, 0, {0, 2}, "more"));  // covers leaf 0 a second time
  RUBATO_ASSERT_OK(shard.Push(1, 0, {1, 2}, "b"));
  RUBATO_ASSERT_OK(shard.Push(1, 0, {1, 2}, "late"));  // for a step that is done
  EXPECT_EQ(shard.parameters[0], "(a+b)/2 ");
  EXPECT_EQ(shard.shard().duplicates(), 3);
  EXPECT_EQ(shard.held_payloads(), 0u);
}

TEST(SyncShardTest, BlocksGoOnIndependently) {
  SymbolicShard shard(proto::View::MODE_SYNC, 1, 1);
  shard.Open();
  RUBATO_ASSERT_OK(shard.Push(0, 0, {0, 1}, "a", 0, /*block=*/1));
  EXPECT_EQ(shard.shard().ledger(0).version, 0);
  EXPECT_EQ(shard.shard().ledger(1).version, 1);
}

TEST(SyncShardTest, RefusesWhatNoHonestWorkerSends) {
  SymbolicShard shard(proto::View::MODE_SYNC, 2, 4);
  shard.Open();
  EXPECT_THAT(shard.Push(0, 1, {0, 4}, "x"),
              IsError(absl::StatusCode::kInvalidArgument, HasSubstr("open step is 0")));
  EXPECT_THAT(shard.Push(0, 0, {1, 3}, "x"),
              IsError(absl::StatusCode::kInvalidArgument, HasSubstr("no node")));
  EXPECT_THAT(shard.Push(2, 0, {0, 4}, "x"),
              IsError(absl::StatusCode::kInvalidArgument, HasSubstr("2 workers")));
  EXPECT_THAT(shard.Push(0, 0, {0, 4}, "x", 0, 9),
              IsError(absl::StatusCode::kInvalidArgument, HasSubstr("block 9")));
  EXPECT_THAT(shard.Pull(0, 5, 0),
              IsError(absl::StatusCode::kInvalidArgument, HasSubstr("worker 5")));
  EXPECT_EQ(shard.parameters[0], "");
}

TEST(ShardTest, AContributionOfAnotherViewChangesNothing) {
  for (proto::View::Mode mode : {proto::View::MODE_SYNC, proto::View::MODE_ASYNC}) {
    SymbolicShard shard(mode, 1, 1);
    RUBATO_ASSERT_OK(shard.Pull(3, kObserver, 0));
    shard.Open();
    RUBATO_ASSERT_OK(shard.Push(0, 0, {0, 1}, "old", 0, 0, /*view=*/0));
    EXPECT_EQ(shard.parameters[0], "");
    EXPECT_EQ(shard.held_payloads(), 0u);
  }
}

TEST(AsyncShardTest, AppliesOnArrivalAndCountsStalenessPerBlock) {
  SymbolicShard shard(proto::View::MODE_ASYNC, 2, 1);
  shard.Open();
  RUBATO_ASSERT_OK(shard.Push(0, 0, {0, 1}, "a", /*read_version=*/0));
  RUBATO_ASSERT_OK(shard.Push(1, 0, {0, 1}, "b", /*read_version=*/0));
  RUBATO_ASSERT_OK(shard.Pull(1, 1, 1));
  EXPECT_EQ(shard.sent.back(), "1: v2 s1 a/1 b/1 ");
  RUBATO_ASSERT_OK(shard.Push(1, 1, {0, 1}, "c", /*read_version=*/2));
  EXPECT_EQ(shard.shard().ledger(0).staleness_sum, 1);
  EXPECT_EQ(shard.shard().ledger(0).staleness_max, 1);
  EXPECT_EQ(shard.shard().ledger(0).version, 3);
  EXPECT_THAT(shard.samples_before, ElementsAre(0, 1, 2));
}

TEST(AsyncShardTest, AClockIsCountedOnceAndAPullSeesItsOwn) {
  SymbolicShard shard(proto::View::MODE_ASYNC, 1, 1);
  shard.Open();
  RUBATO_ASSERT_OK(shard.Pull(9, 0, 1));  // waits for clock 0
  EXPECT_THAT(shard.sent, IsEmpty());
  RUBATO_ASSERT_OK(shard.Push(0, 0, {0, 1}, "a"));
  RUBATO_ASSERT_OK(shard.Push(0, 0, {0, 1}, "a"));
  EXPECT_THAT(shard.sent, ElementsAre("9: v1 s0 a/1 "));
  EXPECT_EQ(shard.parameters[0], "a/1 ");
  EXPECT_THAT(shard.Push(0, 5, {0, 1}, "x"),
              IsError(absl::StatusCode::kInvalidArgument, HasSubstr("clock 5")));
}

TEST(ShardTest, ForgetsThePullsOfAPullerThatIsGone) {
  SymbolicShard shard(proto::View::MODE_SYNC, 1, 1);
  shard.Open();
  RUBATO_ASSERT_OK(shard.Pull(4, 0, 1));
  RUBATO_ASSERT_OK(shard.Pull(5, 0, 1));
  shard.shard().OnPullerGone(4);
  RUBATO_ASSERT_OK(shard.Push(0, 0, {0, 1}, "a"));
  EXPECT_THAT(shard.sent, ElementsAre("5: v1 s0 a/1 "));
}

// A second action that changes a block is not given before the first is done.
TEST(ShardTest, KeepsOneChangeOfABlockOutstanding) {
  Shard shard({0, 1});
  proto::View view;
  view.set_number(1);
  view.set_mode(proto::View::MODE_ASYNC);
  view.set_leaves(1);
  view.add_members();
  ShardActions actions;
  shard.OnView(view, &actions);
  for (int clock = 0; clock < 3; ++clock) {
    Contribution contribution;
    contribution.view = 1;
    contribution.clock = contribution.unit = clock;
    contribution.samples = 1;
    RUBATO_ASSERT_OK(shard.OnPush(0, contribution, clock + 1, &actions));
  }
  for (int applied = 1; applied <= 3; ++applied) {
    ASSERT_EQ(actions.size(), 1u);
    EXPECT_EQ(actions[0].payload, static_cast<PayloadId>(applied));
    actions.clear();
    shard.OnChanged(0, &actions);
    EXPECT_EQ(shard.ledger(0).version, applied);
  }
  EXPECT_THAT(actions, IsEmpty());
}

TEST(SnapshotTest, InSyncEachBlockIsCopiedWhenItReachesTheStep) {
  SymbolicShard shard(proto::View::MODE_SYNC, 1, 1);
  shard.Open();
  shard.Do([&](auto* a) { shard.shard().OnSnapshot(1, 2, false, a); });
  for (int step = 0; step < 3; ++step) {
    RUBATO_ASSERT_OK(shard.Push(0, step, {0, 1}, "a" + std::to_string(step)));
  }
  EXPECT_THAT(shard.events, ElementsAre("copy 0 v2 a0/1 a1/1 "));  // block 1 has not moved
  for (int step = 0; step < 3; ++step) {
    RUBATO_ASSERT_OK(shard.Push(0, step, {0, 1}, "b" + std::to_string(step), 0, 1));
  }
  EXPECT_THAT(shard.events,
              ElementsAre("copy 0 v2 a0/1 a1/1 ", "copy 1 v2 b0/1 b1/1 ", "copied 1"));
  shard.Do([&](auto* a) { shard.shard().OnSnapshot(2, 2, false, a); });
  EXPECT_EQ(shard.events.back(), "missed 2 at 3");
}

TEST(SnapshotTest, AHeldShardGoesNoFurtherThanItsOpenStep) {
  SymbolicShard shard(proto::View::MODE_SYNC, 1, 1);
  shard.Open();
  RUBATO_ASSERT_OK(shard.Push(0, 0, {0, 1}, "a0"));
  shard.Do([&](auto* a) { shard.shard().OnHold(a); });
  EXPECT_THAT(shard.events, ElementsAre("held at 1"));
  RUBATO_ASSERT_OK(shard.Push(0, 1, {0, 1}, "a1"));
  RUBATO_ASSERT_OK(shard.Push(0, 2, {0, 1}, "a2"));
  EXPECT_EQ(shard.parameters[0], "a0/1 a1/1 ");
  // Goes on, and the copy is of the step asked for.
  shard.Do([&](auto* a) { shard.shard().OnSnapshot(1, 2, false, a); });
  EXPECT_EQ(shard.events.back(), "copy 0 v2 a0/1 a1/1 ");
  EXPECT_EQ(shard.parameters[0], "a0/1 a1/1 a2/1 ");
}

TEST(SnapshotTest, AtTheEndNothingIsAppliedBeyondTheStep) {
  SymbolicShard shard(proto::View::MODE_SYNC, 1, 1);
  shard.Open();
  shard.Do([&](auto* a) { shard.shard().OnSnapshot(1, 1, /*end=*/true, a); });
  RUBATO_ASSERT_OK(shard.Push(0, 0, {0, 1}, "a0"));
  RUBATO_ASSERT_OK(shard.Push(0, 1, {0, 1}, "a1"));
  EXPECT_EQ(shard.parameters[0], "a0/1 ");
  EXPECT_EQ(shard.events.back(), "copy 0 v1 a0/1 ");
}

TEST(SnapshotTest, OnArrivalTheShardIsCopiedAsItIs) {
  SymbolicShard shard(proto::View::MODE_ASYNC, 1, 1);
  shard.Open();
  RUBATO_ASSERT_OK(shard.Push(0, 0, {0, 1}, "a0"));
  shard.Do([&](auto* a) { shard.shard().OnHold(a); });
  RUBATO_ASSERT_OK(shard.Push(0, 1, {0, 1}, "a1"));
  EXPECT_EQ(shard.parameters[0], "a0/1 ");
  shard.Do([&](auto* a) { shard.shard().OnSnapshot(1, 0, false, a); });
  EXPECT_THAT(shard.events, ElementsAre("held at 1", "copy 0 v1 a0/1 ", "copy 1 v0 ", "copied 1"));
  EXPECT_EQ(shard.parameters[0], "a0/1 a1/1 ");
}

TEST(VerdictTest, AStepWaitsUntilAllBlocksAreMeasuredAndTheVerdictIsThere) {
  SymbolicShard shard(proto::View::MODE_SYNC, 1, 1);
  shard.view().set_verdict_steps(true);
  shard.Open();
  RUBATO_ASSERT_OK(shard.Push(0, 0, {0, 1}, "a0"));
  EXPECT_THAT(shard.events, IsEmpty());
  RUBATO_ASSERT_OK(shard.Push(0, 0, {0, 1}, "b0", 0, 1));
  EXPECT_THAT(shard.events, ElementsAre("measured 0"));
  EXPECT_EQ(shard.parameters[0], "");
  shard.Do([&](auto* a) { shard.shard().OnVerdict(0, true, 0.5, a); });
  EXPECT_EQ(shard.parameters[0], "a0/1 ");
  EXPECT_EQ(shard.parameters[1], "b0/1 ");
  // A step that is left out counts but changes nothing, and is no update of the optimizer's.
  RUBATO_ASSERT_OK(shard.Push(0, 1, {0, 1}, "a1"));
  RUBATO_ASSERT_OK(shard.Push(0, 1, {0, 1}, "b1", 0, 1));
  shard.Do([&](auto* a) { shard.shard().OnVerdict(1, false, 1, a); });
  shard.Do([&](auto* a) { shard.shard().OnVerdict(1, true, 1, a); });  // a second copy
  EXPECT_EQ(shard.parameters[0], "a0/1 ");
  EXPECT_EQ(shard.shard().ledger(0).version, 2);
  EXPECT_EQ(shard.shard().ledger(0).skipped, 1);
  EXPECT_EQ(shard.held_payloads(), 0u);
}

}  // namespace
}  // namespace rubato
