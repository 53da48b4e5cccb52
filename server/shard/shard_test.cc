// Long because all modes are told through one fixture of a shard on symbols.
#include "server/shard/shard.h"

#include <map>
#include <string>

#include "common/base/status_matchers.h"
#include "common/space/modes.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// Runs actions at once on symbolic payloads, so that a block's "parameters" are the text of all
// that went into them.
class SymbolicShard {
 public:
  explicit SymbolicShard(const proto::Mode& mode, int workers, int64_t leaves,
                         PolicyFactory policies = BuiltInPolicy)
      : shard_({0, 2}, std::move(policies)) {
    view_.set_number(1);
    *view_.mutable_mode() = mode;
    view_.set_leaves(leaves);
    view_.set_until_step(1000);
    for (int rank = 0; rank < workers; ++rank) Join(rank, 1);
  }

  void Join(int rank, uint32_t incarnation) {
    proto::Member* member = view_.add_members();
    member->set_rank(rank);
    member->set_incarnation(incarnation);
  }

  void SetUntil(int64_t until) { view_.set_until_step(until); }

  void Open() {
    ShardActions actions;
    shard_.OnView(view_, &actions);
    Run(actions);
  }

  // The view as it is now holds.
  void Open(uint32_t number, int64_t from_step) {
    view_.set_number(number);
    view_.set_from_step(from_step);
    Open();
  }

  void Close(uint32_t number) {
    Do([&](ShardActions* actions) { shard_.OnClose(number, actions); });
  }

  absl::Status Push(int worker, int64_t clock, Range node, const std::string& text,
                    int64_t read_version = 0, int64_t block = 0, uint32_t view = 1,
                    uint32_t lineage = 0) {
    Contribution contribution;
    contribution.view = view;
    contribution.lineage = lineage;
    contribution.worker = worker;
    contribution.incarnation = 1;
    contribution.clock = clock;
    contribution.unit = last_payload_;  // each its own
    contribution.node = node;
    contribution.samples = contribution.weight = node.empty() ? 1 : node.size();
    contribution.read_version = read_version;
    const PayloadId id = ++last_payload_;
    payloads_[id] = text;
    ShardActions actions;
    absl::Status status = shard_.OnPush(block, contribution, id, &actions);
    if (!status.ok()) payloads_.erase(id);
    Run(actions);
    return status;
  }

  absl::Status Pull(uint64_t puller, int worker, int64_t clock, uint32_t view = 1,
                    bool retire = false) {
    struct Pull pull;
    pull.puller = puller;
    pull.worker = worker;
    pull.view = view;
    pull.clock = clock;
    pull.retire = retire;
    ShardActions actions;
    absl::Status status = shard_.OnPull(pull, {0, 1}, &actions);
    Run(actions);
    return status;
  }

  // "puller: version staleness parameters" of each answer so far.
  std::vector<std::string> sent;
  std::vector<std::string> events;  // snapshots and questions
  // Calls the shard and runs what it says.
  template <typename Call>
  void Do(Call call) {
    ShardActions actions;
    call(&actions);
    Run(actions);
  }
  proto::View& view() { return view_; }
  std::string parameters[2], previous[2];
  std::vector<int64_t> samples_before;
  size_t held_payloads() const { return payloads_.size(); }
  Shard& shard() { return shard_; }

 private:
  void Run(ShardActions actions) {
    for (size_t i = 0; i < actions.size(); ++i) {
      const ShardAction action = actions[i];  // a copy: more may be appended
      std::visit([&](const auto& what) { Do(what, &actions); }, action);
    }
  }

  void Do(const shard_action::Sum& sum, ShardActions* actions) {
    // Addition is commutative: its text is the same from either side.
    const auto [low, high] = std::minmax(payloads_.at(sum.payload), payloads_.at(sum.other));
    payloads_[sum.payload] = "(" + low + "+" + high + ")";
    payloads_.erase(sum.other);
    shard_.OnChanged(sum.block, actions);
  }
  void Do(const shard_action::Apply& apply, ShardActions* actions) {
    previous[apply.block] = parameters[apply.block];
    parameters[apply.block] +=
        payloads_.at(apply.payload) + "/" + std::to_string(apply.samples) + " ";
    samples_before.push_back(apply.samples_before);
    payloads_.erase(apply.payload);
    shard_.OnChanged(apply.block, actions);
  }
  void Do(const shard_action::Measure& measure, ShardActions* actions) {
    shard_.OnChanged(measure.block, actions);
  }
  void Do(const shard_action::Skip& skip, ShardActions* actions) {
    payloads_.erase(skip.payload);
    shard_.OnChanged(skip.block, actions);
  }
  void Do(const shard_action::Send& send, ShardActions*) {
    sent.push_back(std::to_string(send.puller) + ": v" + std::to_string(send.version) + " s" +
                   std::to_string(send.staleness) + " " +
                   (send.previous ? previous : parameters)[send.block]);
  }
  void Do(const shard_action::Drop& drop, ShardActions*) { payloads_.erase(drop.payload); }
  void Do(const shard_action::Ask& ask, ShardActions*) {
    events.push_back((ask.question.has_measured() ? "measured " : "asks ") +
                     std::to_string(ask.question.unit()));
  }
  void Do(const shard_action::Copy& copy, ShardActions*) {
    events.push_back("copy " + std::to_string(copy.block) + " v" + std::to_string(copy.version) +
                     " " + parameters[copy.block]);
  }
  void Do(const shard_action::Copied& copied, ShardActions*) {
    events.push_back("copied " + std::to_string(copied.snapshot));
  }
  void Do(const shard_action::Missed& missed, ShardActions*) {
    events.push_back("missed " + std::to_string(missed.snapshot) + " at " +
                     std::to_string(missed.version));
  }
  void Do(const shard_action::Closed&, ShardActions*) {
    events.push_back("closed at " + std::to_string(shard_.State().highest));
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
    SymbolicShard shard(SyncMode(), 3, 4);
    shard.Open();
    for (int i : order) RUBATO_ASSERT_OK(shard.Push(i, 0, nodes[i].first, nodes[i].second));
    EXPECT_EQ(shard.parameters[0], "((a+b)+c)/4 ");
    EXPECT_EQ(shard.held_payloads(), 0u);
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST(SyncShardTest, APullWaitsForItsVersionAndGetsExactlyThat) {
  SymbolicShard shard(SyncMode(), 2, 2);
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
  SymbolicShard shard(SyncMode(), 2, 2);
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
  SymbolicShard shard(SyncMode(), 1, 1);
  shard.Open();
  RUBATO_ASSERT_OK(shard.Push(0, 0, {0, 1}, "a", 0, /*block=*/1));
  EXPECT_EQ(shard.shard().ledger(0).version, 0);
  EXPECT_EQ(shard.shard().ledger(1).version, 1);
}

TEST(SyncShardTest, RefusesWhatNoHonestWorkerSends) {
  SymbolicShard shard(SyncMode(), 2, 4);
  shard.Open();
  EXPECT_THAT(shard.Push(0, 1, {0, 4}, "x"),
              IsError(absl::StatusCode::kInvalidArgument, HasSubstr("open step is 0")));
  EXPECT_THAT(shard.Push(0, 0, {1, 3}, "x"),
              IsError(absl::StatusCode::kInvalidArgument, HasSubstr("no node")));
  EXPECT_THAT(shard.Push(2, 0, {0, 4}, "x"),
              IsError(absl::StatusCode::kInvalidArgument, HasSubstr("worker 2")));
  EXPECT_THAT(shard.Push(0, 0, {0, 4}, "x", 0, 9),
              IsError(absl::StatusCode::kInvalidArgument, HasSubstr("block 9")));
  EXPECT_THAT(shard.Pull(0, 5, 0),
              IsError(absl::StatusCode::kInvalidArgument, HasSubstr("worker 5")));
  EXPECT_EQ(shard.parameters[0], "");
}

TEST(ShardTest, AContributionOfAnotherLineageChangesNothing) {
  for (const proto::Mode& mode : {SyncMode(), AsyncMode()}) {
    SymbolicShard shard(mode, 1, 1);
    RUBATO_ASSERT_OK(shard.Pull(3, kObserver, 0));
    shard.view().set_lineage(2);
    shard.Open(2, 0);
    RUBATO_ASSERT_OK(shard.Push(0, 0, {0, 1}, "old", 0, 0, /*view=*/1, /*lineage=*/1));
    // But not in this view, or of one that this shard has shown nobody anything of.
    for (const auto& [view, lineage] : {std::pair(2u, 1u), {1u, 3u}, {3u, 3u}}) {
      EXPECT_THAT(shard.Push(0, 0, {0, 1}, "x", 0, 0, view, lineage),
                  IsError(absl::StatusCode::kInvalidArgument, HasSubstr("of lineage")));
    }
    EXPECT_EQ(shard.parameters[0], "");
    EXPECT_EQ(shard.held_payloads(), 0u);
  }
}

TEST(AsyncShardTest, AppliesOnArrivalAndCountsStalenessPerBlock) {
  SymbolicShard shard(AsyncMode(), 2, 1);
  shard.Open();
  RUBATO_ASSERT_OK(shard.Push(0, 0, {0, 1}, "a", /*read_version=*/0));
  RUBATO_ASSERT_OK(shard.Push(1, 0, {0, 1}, "b", /*read_version=*/0));
  RUBATO_ASSERT_OK(shard.Pull(1, 1, 1));
  EXPECT_EQ(shard.sent.back(), "1: v2 s1 a/1 b/1 ");
  RUBATO_ASSERT_OK(shard.Push(1, 1, {0, 1}, "c", /*read_version=*/2));
  EXPECT_EQ(shard.shard().ledger(0).staleness_sum, 1);
  EXPECT_EQ(shard.shard().ledger(0).staleness_max, 1);
  EXPECT_THAT(shard.shard().ledger(0).staleness_counts, ElementsAre(2, 1));
  EXPECT_EQ(shard.shard().ledger(0).version, 3);
  EXPECT_THAT(shard.samples_before, ElementsAre(0, 1, 2));
}

TEST(AsyncShardTest, AClockIsCountedOnceAndAPullSeesItsOwn) {
  SymbolicShard shard(AsyncMode(), 1, 1);
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

TEST(ShardTest, OnlyAMemberContributesWhateverViewItNames) {
  for (const proto::Mode& mode : {SyncMode(), AsyncMode()}) {
    SymbolicShard shard(mode, 1, 1);
    shard.Open();
    for (const uint32_t view : {1, 2, 1000}) {
      EXPECT_THAT(shard.Push(/*worker=*/7, 0, {0, 1}, "x", 0, 0, view),
                  IsError(absl::StatusCode::kInvalidArgument, HasSubstr("no member")));
    }
    // It has heard of the next view before this shard.
    RUBATO_EXPECT_OK(shard.Push(0, 0, {0, 1}, "a", 0, 0, /*view=*/2));
  }
}

TEST(ShardTest, NobodyIsTwoViewsAhead) {
  SymbolicShard shard(AsyncMode(), 1, 1);
  shard.Open();
  RUBATO_EXPECT_OK(shard.Pull(3, 0, 0, /*view=*/2));
  EXPECT_THAT(shard.Push(0, 0, {0, 1}, "x", 0, 0, /*view=*/3),
              IsError(absl::StatusCode::kInvalidArgument, HasSubstr("view 3")));
  EXPECT_THAT(shard.Pull(3, 0, 0, /*view=*/3),
              IsError(absl::StatusCode::kInvalidArgument, HasSubstr("view 3")));
  RUBATO_EXPECT_OK(shard.Pull(3, kObserver, 0, /*view=*/3));
}

// Nobody waits for a clock in sync.
TEST(SyncShardTest, NobodyRetires) {
  SymbolicShard shard(SyncMode(), 1, 1);
  shard.Open();
  EXPECT_THAT(shard.Pull(3, 0, 0, 1, /*retire=*/true),
              IsError(absl::StatusCode::kInvalidArgument, HasSubstr("retires")));
}

TEST(ShardTest, ObserversNeitherContributeNorRetire) {
  for (const proto::Mode& mode : {SyncMode(), AsyncMode()}) {
    SymbolicShard shard(mode, 1, 1);
    shard.Open();
    for (const uint32_t view : {0, 1, 2}) {
      EXPECT_FALSE(shard.Push(static_cast<int>(kObserver), 0, {0, 1}, "x", 0, 0, view).ok());
    }
    EXPECT_FALSE(shard.Pull(3, kObserver, 0, 1, /*retire=*/true).ok());
  }
}

TEST(SyncShardTest, AStepIsSummedByThoseToWhomTheViewGrantsIt) {
  SymbolicShard shard(SyncMode(), 2, 4);
  proto::Assignment* const assignment = shard.view().add_assignments();
  for (const int rank : {0, 1}) {
    proto::Grant* const grant = assignment->add_grants();
    grant->set_rank(rank);
    grant->set_first_leaf(2 * rank);
    grant->set_end_leaf(2 * rank + 2);
  }
  shard.Open();
  for (const Range node : {Range{2, 4}, {2, 3}, {0, 4}}) {
    EXPECT_THAT(shard.Push(0, 0, node, "x"),
                IsError(absl::StatusCode::kInvalidArgument, HasSubstr("grants to others")));
  }
  RUBATO_EXPECT_OK(shard.Push(0, 0, {0, 2}, "a"));
  // One more of it is late, whoever sends it.
  RUBATO_EXPECT_OK(shard.Push(1, 0, {0, 2}, "a"));
  RUBATO_EXPECT_OK(shard.Push(1, 0, {2, 3}, "b"));
  RUBATO_EXPECT_OK(shard.Push(1, 0, {3, 4}, "c"));
  EXPECT_EQ(shard.shard().ledger(0).version, 1);
}

TEST(AsyncShardTest, RefusesAContributionOfBeforeTheLineage) {
  SymbolicShard shard(AsyncMode(), 1, 1);
  shard.view().set_origin_unit(1);
  shard.Open();
  EXPECT_THAT(shard.Push(0, 0, {0, 1}, "x", /*read_version=*/1),
              IsError(absl::StatusCode::kInvalidArgument, HasSubstr("begin with 1")));
}

TEST(AsyncShardTest, RefusesAContributionThatNobodyIsGiven) {
  SymbolicShard shard(AsyncMode(), 1, 1);
  shard.SetUntil(0);
  shard.Open();
  EXPECT_THAT(shard.Push(0, 0, {0, 1}, "a"),
              IsError(absl::StatusCode::kInvalidArgument, HasSubstr("end before 0")));
}

// However often a stream asks for what never comes, it waits once.
TEST(WaitingPullsTest, AStreamWaitsOnceForABlock) {
  WaitingPulls waiting({0, 1});
  for (int64_t clock = 0; clock < 1000; ++clock) {
    for (const uint64_t puller : {1, 2}) {
      Pull pull;
      pull.puller = puller;
      pull.clock = clock;
      EXPECT_TRUE(waiting.Add(0, pull));
    }
  }
  std::vector<int64_t> clocks;
  waiting.Answer(
      0, [](const Pull&) { return true; }, [&](const Pull& pull) { clocks.push_back(pull.clock); });
  EXPECT_THAT(clocks, ElementsAre(999, 999));
}

TEST(ShardTest, APullForWhichThereIsNoRoomIsRefused) {
  SymbolicShard shard(SyncMode(), 1, 1);
  shard.Open();
  for (uint64_t puller = 0; puller < WaitingPulls::kMost; ++puller) {
    RUBATO_ASSERT_OK(shard.Pull(puller, kObserver, 1));
  }
  EXPECT_THAT(
      shard.Pull(WaitingPulls::kMost, 0, 1),
      IsError(absl::StatusCode::kResourceExhausted, "65600 others wait for block 0 already"));
}

TEST(ShardTest, ForgetsThePullsOfAPullerThatIsGone) {
  SymbolicShard shard(SyncMode(), 1, 1);
  shard.Open();
  RUBATO_ASSERT_OK(shard.Pull(4, 0, 1));
  RUBATO_ASSERT_OK(shard.Pull(5, 0, 1));
  shard.shard().OnPullerGone(4);
  RUBATO_ASSERT_OK(shard.Push(0, 0, {0, 1}, "a"));
  EXPECT_THAT(shard.sent, ElementsAre("5: v1 s0 a/1 "));
}

// Opens an async view of one worker, which pushes `count` contributions: payloads 1, 2, ...
void PushOnArrival(int count, Shard* shard, ShardActions* actions) {
  proto::View view;
  view.set_number(1);
  *view.mutable_mode() = AsyncMode();
  view.set_leaves(1);
  view.add_members()->set_incarnation(1);
  shard->OnView(view, actions);
  for (int clock = 0; clock < count; ++clock) {
    Contribution contribution;
    contribution.view = contribution.incarnation = 1;
    contribution.clock = contribution.unit = clock;
    contribution.samples = contribution.weight = 1;
    RUBATO_ASSERT_OK(shard->OnPush(0, contribution, clock + 1, actions));
  }
}

// A second action that changes a block is not given before the first is done.
TEST(ShardTest, KeepsOneChangeOfABlockOutstanding) {
  Shard shard({0, 1});
  ShardActions actions;
  PushOnArrival(3, &shard, &actions);
  for (int applied = 1; applied <= 3; ++applied) {
    ASSERT_EQ(actions.size(), 1u);
    EXPECT_EQ(std::get<shard_action::Apply>(actions[0]).payload, static_cast<PayloadId>(applied));
    actions.clear();
    shard.OnChanged(0, &actions);
    EXPECT_EQ(shard.ledger(0).version, applied);
  }
  EXPECT_THAT(actions, IsEmpty());
}

// Else what it said of its blocks would not stay true until the next view.
TEST(ViewTest, OnArrivalAShardIsClosedWhenWhatItAppliesIsDone) {
  Shard shard({0, 1});
  ShardActions actions;
  PushOnArrival(2, &shard, &actions);
  ASSERT_EQ(actions.size(), 1u);  // the first is being applied
  actions.clear();
  shard.OnClose(1, &actions);
  EXPECT_THAT(actions, IsEmpty());
  shard.OnChanged(0, &actions);
  ASSERT_EQ(actions.size(), 1u);  // and not the second
  EXPECT_TRUE(std::holds_alternative<shard_action::Closed>(actions[0]));
  EXPECT_EQ(shard.State().highest, 1);
  EXPECT_EQ(shard.State().units.by_all.below(), 1);
}

TEST(SnapshotTest, InSyncEachBlockIsCopiedWhenItReachesTheStep) {
  SymbolicShard shard(SyncMode(), 1, 1);
  shard.Open();
  shard.Do([&](auto* a) { shard.shard().OnSnapshot(1, 2, a); });
  for (int step = 0; step < 3; ++step) {
    RUBATO_ASSERT_OK(shard.Push(0, step, {0, 1}, "a" + std::to_string(step)));
  }
  EXPECT_THAT(shard.events, ElementsAre("copy 0 v2 a0/1 a1/1 "));  // block 1 has not moved
  for (int step = 0; step < 3; ++step) {
    RUBATO_ASSERT_OK(shard.Push(0, step, {0, 1}, "b" + std::to_string(step), 0, 1));
  }
  EXPECT_THAT(shard.events,
              ElementsAre("copy 0 v2 a0/1 a1/1 ", "copy 1 v2 b0/1 b1/1 ", "copied 1"));
  shard.Do([&](auto* a) { shard.shard().OnSnapshot(2, 2, a); });
  EXPECT_EQ(shard.events.back(), "missed 2 at 3");
}

TEST(SnapshotTest, AVersionThatIsBeingWrittenOverIsMissed) {
  Shard shard({0, 1});
  proto::View view;
  view.set_number(1);
  *view.mutable_mode() = SyncMode();
  view.set_leaves(1);
  view.set_until_step(10);
  view.add_members()->set_incarnation(1);
  ShardActions actions;
  shard.OnView(view, &actions);
  Contribution contribution;
  contribution.view = contribution.incarnation = 1;
  contribution.node = {0, 1};
  contribution.samples = contribution.weight = 1;
  RUBATO_ASSERT_OK(shard.OnPush(0, contribution, 1, &actions));
  ASSERT_TRUE(std::holds_alternative<shard_action::Apply>(actions.back()));
  shard.OnSnapshot(1, 0, &actions);
  EXPECT_TRUE(std::holds_alternative<shard_action::Missed>(actions.back()));
  shard.OnSnapshot(2, 1, &actions);
  shard.OnChanged(0, &actions);
  EXPECT_TRUE(std::holds_alternative<shard_action::Copied>(actions.back()));
}

// A lineage that ends before the step, for whatever mode comes, is the end of the snapshot: the
// coordinator waits for it no more, and a copy would only take memory.
TEST(SnapshotTest, OneThatWasAnnouncedIsForgottenWithItsLineage) {
  for (const proto::Mode& mode : {AsyncMode(), SyncMode()}) {
    SymbolicShard shard(SyncMode(), 1, 1);
    shard.Open();
    shard.Do([&](auto* a) { shard.shard().OnSnapshot(1, 2, a); });
    for (const int64_t block : {0, 1}) RUBATO_ASSERT_OK(shard.Push(0, 0, {0, 1}, "a", 0, block));
    *shard.view().mutable_mode() = mode;
    shard.view().set_lineage(1);
    shard.view().set_origin_unit(1);
    shard.view().mutable_members(0)->set_start_clock(1);
    shard.Open(2, 1);
    for (const int64_t block : {0, 1}) {
      RUBATO_ASSERT_OK(shard.Push(0, 1, {0, 1}, "b", 1, block, /*view=*/2, /*lineage=*/1));
    }
    EXPECT_EQ(shard.shard().ledger(0).version, 2);
    EXPECT_THAT(shard.events, IsEmpty()) << ModeName(mode);
    shard.Do([&](auto* a) { shard.shard().OnSnapshot(2, 2, a); });
    EXPECT_THAT(shard.events, ElementsAre("copy 0 v2 a/1 b/1 ", "copy 1 v2 a/1 b/1 ", "copied 2"));
  }
}

TEST(SnapshotTest, OnArrivalTheShardIsCopiedAsItIs) {
  SymbolicShard shard(AsyncMode(), 1, 1);
  shard.Open();
  RUBATO_ASSERT_OK(shard.Push(0, 0, {0, 1}, "a0"));
  shard.Do([&](auto* a) { shard.shard().OnSnapshot(1, 0, a); });
  RUBATO_ASSERT_OK(shard.Push(0, 1, {0, 1}, "a1"));
  EXPECT_THAT(shard.events, ElementsAre("copy 0 v1 a0/1 ", "copy 1 v0 ", "copied 1"));
  EXPECT_EQ(shard.parameters[0], "a0/1 a1/1 ");
}

proto::Decision MakeDecision(int64_t step, bool apply, double factor) {
  proto::Decision decision;
  decision.set_unit(step);
  decision.mutable_verdict()->set_apply(apply);
  decision.mutable_verdict()->set_factor(factor);
  return decision;
}

TEST(DecisionTest, AStepWaitsUntilAllBlocksAreMeasuredAndTheDecisionIsThere) {
  SymbolicShard shard(SyncMode(), 1, 1);
  shard.view().set_verdict_steps(true);
  shard.Open();
  RUBATO_ASSERT_OK(shard.Push(0, 0, {0, 1}, "a0"));
  EXPECT_THAT(shard.events, IsEmpty());
  RUBATO_ASSERT_OK(shard.Push(0, 0, {0, 1}, "b0", 0, 1));
  EXPECT_THAT(shard.events, ElementsAre("measured 0"));
  EXPECT_EQ(shard.parameters[0], "");
  shard.Do([&](auto* a) { shard.shard().OnDecision(MakeDecision(0, true, 0.5), a); });
  EXPECT_EQ(shard.parameters[0], "a0/1 ");
  EXPECT_EQ(shard.parameters[1], "b0/1 ");
  // A step that is left out counts but changes nothing, and is no update of the optimizer's.
  RUBATO_ASSERT_OK(shard.Push(0, 1, {0, 1}, "a1"));
  RUBATO_ASSERT_OK(shard.Push(0, 1, {0, 1}, "b1", 0, 1));
  shard.Do([&](auto* a) { shard.shard().OnDecision(MakeDecision(1, false, 1), a); });
  shard.Do(
      [&](auto* a) { shard.shard().OnDecision(MakeDecision(1, true, 1), a); });  // a second copy
  EXPECT_EQ(shard.parameters[0], "a0/1 ");
  EXPECT_EQ(shard.shard().ledger(0).version, 2);
  EXPECT_EQ(shard.shard().ledger(0).skipped, 1);
  EXPECT_EQ(shard.held_payloads(), 0u);
}

// Another shard may not have heard it, and the next term asks those that have.
TEST(DecisionTest, OneThatComesAgainIsStillKnown) {
  SymbolicShard shard(SyncMode(), 1, 1);
  shard.view().set_verdict_steps(true);
  shard.Open();
  RUBATO_ASSERT_OK(shard.Push(0, 0, {0, 1}, "a0"));
  RUBATO_ASSERT_OK(shard.Push(0, 0, {0, 1}, "b0", 0, 1));
  for (int copy = 0; copy < 2; ++copy) {
    shard.Do([&](auto* a) { shard.shard().OnDecision(MakeDecision(0, true, 0.5), a); });
    EXPECT_EQ(shard.shard().ledger(0).version, 1);
    EXPECT_EQ(shard.shard().decisions().count({0, /*is_verdict=*/true}), 1u) << copy;
  }
}

// What its policy leaves out is the contribution of unit 1; of the others it asks.
class AsksOnArrival : public Arrivals {
 public:
  explicit AsksOnArrival(const proto::View& view) : Arrivals(view) {}

  NextChange Next(const ShardTerms& terms, BlockLedger* ledger) const override {
    for (const BlockLedger::Pending& pending : ledger->queue) {
      const int64_t unit = pending.contribution.unit;
      if (unit != 1 && terms.DecisionOn(unit) == nullptr && terms.asked.count(unit) == 0) {
        return {NextChange::Kind::kAsk, unit};
      }
    }
    const NextChange next = Arrivals::Next(terms, ledger);
    if (next.kind != NextChange::Kind::kApply) return next;
    const int64_t unit = ledger->queue.front().contribution.unit;
    if (unit == 1) return {NextChange::Kind::kSkip};
    return terms.DecisionOn(unit) == nullptr ? NextChange() : next;
  }
};

TEST(DecisionTest, OnArrivalEachContributionHasItsOwnAndWaitsForItsTurn) {
  SymbolicShard shard(AsyncMode(), 3, 1, [](const proto::View& view) {
    return std::make_unique<AsksOnArrival>(view);
  });
  shard.Open();
  const auto decide = [&](int64_t unit) {
    proto::Decision decision;
    decision.set_unit(unit);
    shard.Do([&](auto* a) { shard.shard().OnDecision(decision, a); });
  };
  RUBATO_ASSERT_OK(shard.Push(0, 0, {0, 1}, "a0"));
  RUBATO_ASSERT_OK(shard.Push(1, 0, {0, 1}, "b0"));
  RUBATO_ASSERT_OK(shard.Push(2, 0, {0, 1}, "c0"));
  EXPECT_THAT(shard.events, ElementsAre("asks 0", "asks 2"));
  decide(2);
  EXPECT_EQ(shard.parameters[0], "");
  decide(0);
  EXPECT_EQ(shard.parameters[0], "a0/1 c0/1 ");
  EXPECT_EQ(shard.shard().ledger(0).version, 3);
  // What a policy leaves out by itself is no update of the optimizer's either.
  EXPECT_EQ(shard.shard().ledger(0).skipped, 1);
  EXPECT_EQ(shard.held_payloads(), 0u);
  // Another view asks once more, as the answer may be lost on this side only.
  RUBATO_ASSERT_OK(shard.Push(0, 1, {0, 1}, "a1"));
  shard.Open(2, 0);
  EXPECT_THAT(shard.events, ElementsAre("asks 0", "asks 2", "asks 3", "asks 3"));
}

// From Close to Open a step that is open may end, but nobody sees what comes of it: else a worker
// would begin the next step with the old division of its micro-batches.
TEST(ViewTest, AClosedShardEndsItsOpenStepAndShowsItToNobody) {
  SymbolicShard shard(SyncMode(), 1, 1);
  shard.Open();
  RUBATO_ASSERT_OK(shard.Push(0, 0, {0, 1}, "a0"));
  shard.Close(1);
  EXPECT_THAT(shard.events, ElementsAre("closed at 1"));
  shard.Close(1);  // a second copy
  EXPECT_EQ(shard.events.size(), 1u);
  RUBATO_ASSERT_OK(shard.Push(0, 1, {0, 1}, "a1"));
  RUBATO_ASSERT_OK(shard.Push(0, 2, {0, 1}, "a2"));
  EXPECT_EQ(shard.parameters[0], "a0/1 a1/1 ");
  RUBATO_ASSERT_OK(shard.Pull(7, 0, 2));
  EXPECT_THAT(shard.sent, IsEmpty());
  // The next view: the worker asks anew, and what it has sent to steps beyond counts no more.
  shard.Open(2, 2);
  EXPECT_THAT(shard.sent, IsEmpty());
  RUBATO_ASSERT_OK(shard.Pull(7, 0, 2, /*view=*/2));
  EXPECT_EQ(shard.sent.back(), "7: v2 s0 a0/1 a1/1 ");
}

TEST(ViewTest, AnOlderViewCountsForItsStepsOnly) {
  SymbolicShard shard(SyncMode(), 2, 2);
  shard.Open();
  RUBATO_ASSERT_OK(shard.Push(0, 0, {0, 1}, "a"));
  shard.Close(1);
  shard.Open(2, 1);
  RUBATO_ASSERT_OK(shard.Push(1, 0, {1, 2}, "b", 0, 0, /*view=*/1));
  EXPECT_EQ(shard.parameters[0], "(a+b)/2 ");
  RUBATO_ASSERT_OK(shard.Push(1, 1, {1, 2}, "old", 0, 0, /*view=*/1));
  RUBATO_ASSERT_OK(shard.Push(0, 1, {0, 2}, "new", 0, 0, /*view=*/2));
  EXPECT_EQ(shard.parameters[0], "(a+b)/2 new/2 ");
  shard.Open(1, 0);  // an older view that comes late
  EXPECT_EQ(shard.shard().view(), 2u);
}

// A worker died after it had sent its part to some shards: those who take over see the version of
// that step, which the block keeps until the next step's first contribution.
TEST(ViewTest, ASurvivorReadsTheVersionBefore) {
  SymbolicShard shard(SyncMode(), 2, 2);
  shard.Open();
  RUBATO_ASSERT_OK(shard.Push(0, 0, {0, 1}, "a"));
  RUBATO_ASSERT_OK(shard.Push(1, 0, {1, 2}, "b"));
  shard.Close(1);
  shard.view().mutable_members()->RemoveLast();
  shard.Open(2, 2);
  RUBATO_ASSERT_OK(shard.Pull(7, 0, 0, /*view=*/2));
  EXPECT_EQ(shard.sent.back(), "7: v0 s0 ");
  RUBATO_ASSERT_OK(shard.Push(0, 0, {1, 2}, "b", 0, 0, /*view=*/2));  // again, by the other
  RUBATO_ASSERT_OK(shard.Pull(7, 0, 1, /*view=*/2));
  EXPECT_EQ(shard.sent.back(), "7: v1 s0 (a+b)/2 ");
  RUBATO_ASSERT_OK(shard.Push(0, 1, {0, 1}, "c", 0, 0, /*view=*/2));
  // Step 0 is done everywhere: who asks for its version is told so by a later one.
  RUBATO_ASSERT_OK(shard.Pull(7, 0, 0, /*view=*/2));
  EXPECT_EQ(shard.sent.back(), "7: v1 s0 (a+b)/2 ");
}

TEST(ViewTest, APullOfAViewToComeWaitsForIt) {
  SymbolicShard shard(SyncMode(), 1, 1);
  shard.Open();
  shard.Close(1);
  RUBATO_ASSERT_OK(shard.Pull(7, 1, 0, /*view=*/2));
  EXPECT_THAT(shard.sent, IsEmpty());
  shard.Join(1, 1);
  shard.Open(2, 1);
  EXPECT_THAT(shard.sent, ElementsAre("7: v0 s0 "));
}

// What was held back by the close changes the block only after those who waited have got what it
// was when they were answered.
TEST(ViewTest, AnEarlyPullGetsTheVersionThatItIsTold) {
  SymbolicShard shard(AsyncMode(), 1, 1);
  shard.Open();
  shard.Close(1);
  RUBATO_ASSERT_OK(shard.Push(0, 0, {0, 1}, "a"));
  RUBATO_ASSERT_OK(shard.Pull(7, 1, 0, /*view=*/2));
  shard.Join(1, 1);
  shard.Open(2, 0);
  EXPECT_THAT(shard.sent, ElementsAre("7: v0 s0 "));
  EXPECT_EQ(shard.parameters[0], "a/1 ");
}

TEST(ViewTest, OnArrivalWhatALostWorkerSentCountsIfItWasAppliedBeforeTheClose) {
  SymbolicShard shard(AsyncMode(), 2, 1);
  shard.Open();
  RUBATO_ASSERT_OK(shard.Push(0, 0, {0, 1}, "a"));  // unit 0
  RUBATO_ASSERT_OK(shard.Push(1, 0, {0, 1}, "b"));  // unit 1
  shard.Close(1);
  RUBATO_ASSERT_OK(shard.Push(0, 1, {0, 1}, "c"));  // unit 2
  RUBATO_ASSERT_OK(shard.Push(1, 1, {0, 1}, "d"));  // unit 3
  EXPECT_EQ(shard.parameters[0], "a/1 b/1 ");
  const ShardState state = shard.shard().State();
  EXPECT_THAT(state.units.Partial(), ElementsAre(0, 1));  // block 1 has nothing
  EXPECT_EQ(state.units.by_all.below(), 0);
  shard.view().mutable_members()->RemoveLast();
  shard.Open(2, 0);
  EXPECT_EQ(shard.parameters[0], "a/1 b/1 c/1 ");
  EXPECT_EQ(shard.held_payloads(), 0u);
  RUBATO_ASSERT_OK(shard.Push(1, 1, {0, 1}, "late"));
  EXPECT_EQ(shard.parameters[0], "a/1 b/1 c/1 ");
}

// The next view is made of what the shard said when it was closed: a worker that went on meanwhile
// would be given the clock of before, and wait for good for an update that is in the block already.
TEST(ViewTest, OnArrivalWhatABlockHoldsAlreadyMovesNoClockBehindTheClose) {
  SymbolicShard shard(AsyncMode(), 1, 1);
  shard.Open();
  shard.shard().OnLeftOut(0);
  shard.Close(1);
  RUBATO_ASSERT_OK(shard.Push(0, 0, {0, 1}, "a"));  // unit 0
  RUBATO_ASSERT_OK(shard.Pull(0, 0, 1, 1, /*retire=*/true));
  EXPECT_EQ(shard.shard().ledger(0).clocks[0].applied, 0);
  EXPECT_THAT(shard.sent, IsEmpty());
  shard.Open(2, 0);
  RUBATO_ASSERT_OK(shard.Pull(0, 0, 1, 2, /*retire=*/true));
  EXPECT_EQ(shard.shard().ledger(0).clocks[0].applied, 1);
  EXPECT_THAT(shard.sent, SizeIs(1));
  EXPECT_EQ(shard.parameters[0], "");
}

TEST(ViewTest, AReturnedWorkerBeginsAtTheClockOfItsView) {
  SymbolicShard shard(AsyncMode(), 1, 1);
  shard.Open();
  RUBATO_ASSERT_OK(shard.Push(0, 0, {0, 1}, "a"));
  shard.Close(1);
  shard.view().mutable_members(0)->set_incarnation(2);
  shard.view().mutable_members(0)->set_start_clock(7);
  shard.Open(2, 0);
  RUBATO_ASSERT_OK(shard.Push(0, 1, {0, 1}, "of the one before"));
  EXPECT_EQ(shard.parameters[0], "a/1 ");
  EXPECT_EQ(shard.shard().ledger(0).clocks[0].accepted, 7);
}

// Clocks of updates so far; worker 0 is the fast one.
TEST(BoundedTest, AWorkerIsAtMostSoManyClocksAhead) {
  for (const int64_t staleness : {0, 1, 3}) {
    SymbolicShard shard(BoundedMode(staleness), 2, 1);
    shard.Open();
    for (int64_t clock = 0; clock < 6; ++clock) {
      RUBATO_ASSERT_OK(shard.Pull(7, 0, clock));
      // The other is at clock 0: c - min <= s.
      EXPECT_EQ(shard.sent.size() == static_cast<size_t>(clock) + 1, clock <= staleness);
      if (clock > staleness) break;
      RUBATO_ASSERT_OK(shard.Push(0, clock, {0, 1}, "a"));
    }
    const size_t before = shard.sent.size();
    RUBATO_ASSERT_OK(shard.Push(1, 0, {0, 1}, "b"));
    EXPECT_EQ(shard.sent.size(), before + 1);
  }
}

TEST(BoundedTest, NobodyWaitsForAWorkerThatIsGoneOrHasNothingLeftToDo) {
  for (const bool gone : {true, false}) {
    SymbolicShard shard(BoundedMode(0), 3, 1);
    shard.Open();
    for (int worker : {0, 1}) RUBATO_ASSERT_OK(shard.Push(worker, 0, {0, 1}, "a"));
    RUBATO_ASSERT_OK(shard.Pull(7, 0, 1));
    EXPECT_THAT(shard.sent, IsEmpty());  // for worker 2
    if (gone) {
      shard.Close(1);
      shard.view().mutable_members()->RemoveLast();
      shard.Open(2, 0);
      RUBATO_ASSERT_OK(shard.Pull(7, 0, 1, /*view=*/2));
    } else {
      RUBATO_ASSERT_OK(shard.Pull(9, 2, 0, 1, /*retire=*/true));
      EXPECT_EQ(shard.sent[0].substr(0, 2), "7:");
    }
    EXPECT_FALSE(shard.sent.empty());
  }
}

TEST(ShardTest, WhatWillNotComeLeavesNoGap) {
  SymbolicShard shard(AsyncMode(), 1, 1);
  shard.Open();
  RUBATO_ASSERT_OK(shard.Push(0, 0, {0, 1}, "a"));  // unit 0
  shard.shard().OnLeftOut(1);
  EXPECT_EQ(shard.shard().ledger(0).units.below(), 2);
  EXPECT_EQ(shard.shard().ledger(0).version, 1);
}

}  // namespace
}  // namespace rubato
