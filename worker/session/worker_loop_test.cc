// Long because a worker's whole life is told through one fixture, mode by mode.
#include "worker/session/worker_loop.h"

#include <string>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/space/modes.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

using ::testing::ElementsAre;

// Batches of 4 samples in V micro-batches, 10 samples an epoch: three steps an epoch.
proto::Job MakeJob(int prefetch = 0) {
  proto::Job job;
  job.mutable_train()->set_batch_size(4);
  job.mutable_train()->set_micro_batches(4);
  job.mutable_cluster()->mutable_workers()->set_start(2);
  job.mutable_evaluation()->mutable_every()->set_epochs(1);
  job.mutable_data()->set_prefetch(prefetch);
  return job;
}

void Grant(int rank, Range leaves, proto::Assignment* assignment) {
  if (leaves.empty()) return;
  proto::Grant* grant = assignment->add_grants();
  grant->set_rank(rank);
  grant->set_first_leaf(leaves.begin);
  grant->set_end_leaf(leaves.end);
}

// Two workers, of which this one has rank 1.
proto::View MakeView(const proto::Mode& mode, Range mine, int64_t until_step = 4) {
  proto::View view;
  view.set_number(1);
  view.set_lineage(1);
  *view.mutable_mode() = mode;
  view.set_leaves(OnArrival(mode) ? 2 : 4);
  view.set_samples_per_epoch(10);
  view.set_from_step(0);
  view.set_until_step(until_step);
  for (int rank = 0; rank < 2; ++rank) {
    proto::Member* member = view.add_members();
    member->set_rank(rank);
    member->set_incarnation(1);
    member->set_start_clock(0);
  }
  if (!OnArrival(mode)) {
    Grant(1, mine, view.add_assignments());
    Grant(0, {0, mine.begin}, view.mutable_assignments(0));
  }
  view.set_your_rank(1);
  return view;
}

std::string Text(const WorkerLoop::Pull& pull) {
  return absl::StrCat(pull.observer ? "observe " : pull.retire ? "retire " : "pull ", pull.clock);
}
std::string Text(const WorkerLoop::RequestWork& request) {
  return request.count == 1 ? "request" : absl::StrCat("request ", request.count);
}
std::string Text(const WorkerLoop::Test& test) {
  return absl::StrCat(test.is_final ? "test " : "evaluate ", test.unit);
}
std::string Text(const WorkerLoop::ReadAhead& read) {
  return absl::StrCat("read ", read.unit, " leaves ", read.leaves.begin, "-", read.leaves.end);
}
std::string Text(const WorkerLoop::Compute& compute) {
  const auto join = [](std::string* out, const Range& node) {
    absl::StrAppend(out, node.begin, "-", node.end);
  };
  return absl::StrCat(compute.early ? "early " : "", "compute ", compute.unit, " clock ",
                      compute.clock, " nodes ", absl::StrJoin(compute.nodes, ",", join));
}
std::string Text(const WorkerLoop::SayIdle& idle) { return absl::StrCat("idle ", idle.applied); }
std::string Text(const WorkerLoop::Leave&) { return "leave"; }

// A loop and the number of its last pull.
class Loop {
 public:
  explicit Loop(int prefetch = 0) : loop_(MakeJob(prefetch)) {}

  std::vector<std::string> View(const proto::View& view) {
    return Do([&](auto* a) { loop_.OnView(view, a); });
  }
  std::vector<std::string> Parameters(bool passed = false) {
    return Do([&](auto* a) { loop_.OnParameters(pull_, passed, a); });
  }
  std::vector<std::string> SomeParameters() {
    return Do([&](auto* a) { loop_.OnSomeParameters(pull_, a); });
  }
  void Interrupted() { loop_.OnInterrupted(); }
  std::vector<std::string> OldParameters() {
    return Do([&](auto* a) { loop_.OnParameters(pull_ - 1, false, a); });
  }
  std::vector<std::string> Work(int64_t unit, bool evaluates = false) {
    proto::Work work;
    if (unit >= 0) work.set_contribution(unit);
    work.set_evaluate(evaluates);
    return Do([&](auto* a) { loop_.OnWork(work, a); });
  }
  // Several at once; below 0: there is no more.
  std::vector<std::string> Works(const std::vector<int64_t>& units) {
    proto::Work work;
    for (size_t i = 0; i < units.size(); ++i) {
      proto::Work* one = i == 0 ? &work : work.add_then();
      if (units[i] >= 0) one->set_contribution(units[i]);
    }
    return Do([&](auto* a) { loop_.OnWork(work, a); });
  }
  void SetAhead(int64_t ahead) { loop_.SetAhead(ahead); }
  std::vector<std::string> Sending() {
    return Do([&](auto* a) { loop_.OnSending(a); });
  }
  std::vector<std::string> Computed() {
    return Do([&](auto* a) { loop_.OnComputed(a); });
  }
  std::vector<std::string> Tested() {
    return Do([&](auto* a) { loop_.OnTested(a); });
  }
  std::vector<std::string> EndTests() {
    return Do([&](auto* a) { loop_.OnEndTests(a); });
  }
  std::vector<std::string> Leave() {
    return Do([&](auto* a) { loop_.OnLeave(a); });
  }
  std::vector<std::string> Test(int64_t step, int64_t unit) {
    proto::EvaluationRequest request;
    request.set_step(step);
    request.set_unit(unit);
    return Do([&](auto* a) { loop_.OnEvaluationRequest(request, a); });
  }

  bool waits_for_test() const { return loop_.waits_for_test(); }

 private:
  template <typename Call>
  std::vector<std::string> Do(Call call) {
    WorkerLoop::Actions actions;
    call(&actions);
    std::vector<std::string> texts;
    for (const WorkerLoop::Action& action : actions) {
      texts.push_back(std::visit([](const auto& what) { return Text(what); }, action));
      if (const auto* pull = std::get_if<WorkerLoop::Pull>(&action)) pull_ = pull->number;
    }
    return texts;
  }

  WorkerLoop loop_;
  uint64_t pull_ = 0;
};

TEST(WorkerLoopTest, InSyncTakesEveryStepInTurnAndSeesTheEnd) {
  Loop loop;
  EXPECT_THAT(loop.View(MakeView(SyncMode(), {1, 4}, 2)), ElementsAre("pull 0"));
  EXPECT_THAT(loop.Parameters(), ElementsAre("compute 0 clock 0 nodes 1-2,2-4"));
  EXPECT_THAT(loop.Computed(), ElementsAre("pull 1"));
  EXPECT_THAT(loop.Parameters(), ElementsAre("compute 1 clock 1 nodes 1-2,2-4"));
  EXPECT_THAT(loop.Computed(), ElementsAre("pull 2"));
  EXPECT_THAT(loop.Parameters(), ElementsAre("idle 2"));
}

TEST(WorkerLoopTest, TheOwnerOfTheFirstMicroBatchTestsAtTheEndOfAnEpoch) {
  for (const Range mine : {Range{0, 2}, Range{2, 4}}) {
    Loop loop;
    std::vector<std::string> all = loop.View(MakeView(SyncMode(), mine));
    for (int step = 0; step < 4; ++step) {
      for (const std::string& text : loop.Parameters()) all.push_back(text);
      for (const std::string& text : loop.Computed()) all.push_back(text);
    }
    // Three steps make an epoch.
    EXPECT_EQ(std::count(all.begin(), all.end(), "evaluate 3"), mine.begin == 0 ? 1 : 0);
  }
}

TEST(WorkerLoopTest, WhatALineageBeginsWithIsTestedIfTheViewSaysSo) {
  for (const bool tests : {false, true}) {
    Loop loop;
    proto::View view = MakeView(SyncMode(), {0, 2}, 6);
    view.set_origin_unit(3);
    view.set_origin_samples(10);
    view.set_from_step(3);
    view.set_tests_origin(tests);
    for (int rank = 0; rank < 2; ++rank) view.mutable_members(rank)->set_start_clock(3);
    EXPECT_THAT(loop.View(view), ElementsAre("pull 3"));
    EXPECT_EQ(loop.Parameters().front(), tests ? "evaluate 3" : "compute 3 clock 3 nodes 0-2");
  }
}

TEST(WorkerLoopTest, ASpareWorkerWaitsForTheEnd) {
  Loop loop;
  EXPECT_THAT(loop.View(MakeView(SyncMode(), {4, 4})), ElementsAre("pull 4"));
  EXPECT_THAT(loop.Parameters(), ElementsAre("idle 4"));
}

TEST(WorkerLoopTest, OnArrivalNeedsBothParametersAndWorkInAnyOrder) {
  for (const bool work_first : {true, false}) {
    Loop loop;
    EXPECT_THAT(loop.View(MakeView(AsyncMode(), {0, 0})), ElementsAre("request", "pull 0"));
    EXPECT_TRUE((work_first ? loop.Work(7) : loop.Parameters()).empty());
    // The next work is asked for before computing, so that it is there when it is wanted.
    EXPECT_THAT(work_first ? loop.Parameters() : loop.Work(7),
                ElementsAre("request", "compute 7 clock 0 nodes 0-2"));
    // Its clock counts its own contributions, not the job's.
    EXPECT_THAT(loop.Computed(), ElementsAre("pull 1"));
  }
}

// Others may wait for its clock: it says that nothing is left, and then waits for its own only.
TEST(WorkerLoopTest, OnArrivalIsIdleOnlyWhenItsLastContributionIsApplied) {
  Loop loop;
  loop.View(MakeView(AsyncMode(), {0, 0}));
  loop.Work(0);
  loop.Parameters();
  loop.Computed();
  EXPECT_THAT(loop.Work(-1), ElementsAre("retire 1"));
  EXPECT_TRUE(loop.OldParameters().empty());
  EXPECT_THAT(loop.Parameters(), ElementsAre("idle 1"));
  // Another's work, which was lost.
  EXPECT_THAT(loop.Work(5), ElementsAre("pull 1"));
  EXPECT_THAT(loop.Parameters(), ElementsAre("request", "compute 5 clock 1 nodes 0-2"));
}

TEST(WorkerLoopTest, InSyncAnnouncesEachStepOnceAndInOrder) {
  Loop loop(/*prefetch=*/2);
  EXPECT_THAT(loop.View(MakeView(SyncMode(), {1, 4}, 4)),
              ElementsAre("read 0 leaves 1-4", "read 1 leaves 1-4", "pull 0"));
  std::vector<std::string> all;
  for (int step = 0; step < 4; ++step) {
    for (const std::string& text : loop.Parameters()) {
      all.push_back(text.substr(0, text.find(" clock")));
    }
    loop.Computed();
  }
  EXPECT_THAT(all, ElementsAre("read 2 leaves 1-4", "compute 0", "read 3 leaves 1-4", "compute 1",
                               "compute 2", "compute 3"));
}

TEST(WorkerLoopTest, OnArrivalAnnouncesTheContributionThatItIsGiven) {
  Loop loop(/*prefetch=*/2);
  loop.View(MakeView(AsyncMode(), {0, 0}, 9));
  EXPECT_THAT(loop.Work(7), ElementsAre("read 7 leaves 0-2"));
  EXPECT_THAT(loop.Parameters(), ElementsAre("request", "compute 7 clock 0 nodes 0-2"));
}

// One that computes contribution 0, and has been given those as well.
Loop OneWithWork(const std::vector<int64_t>& units) {
  Loop loop;
  loop.View(MakeView(AsyncMode(), {0, 0}, 99));
  loop.Work(0);
  EXPECT_THAT(loop.Parameters(), ElementsAre("request", "compute 0 clock 0 nodes 0-2"));
  loop.SetAhead(4);
  loop.Works(units);
  return loop;
}

TEST(WorkerLoopTest, OnArrivalAsksForSeveralWhenFewerThanHalfAreLeft) {
  Loop loop = OneWithWork({7, 3, 8, 9});
  std::vector<std::string> all;
  for (int more = 0; more < 4; ++more) {
    EXPECT_EQ(loop.Computed().size(), 1u);
    for (const std::string& text : loop.Parameters()) all.push_back(text);
  }
  EXPECT_THAT(all,
              ElementsAre("compute 7 clock 1 nodes 0-2", "compute 3 clock 2 nodes 0-2", "request 3",
                          "compute 8 clock 3 nodes 0-2", "compute 9 clock 4 nodes 0-2"));
  // It has none left before the answer is here.
  EXPECT_THAT(loop.Computed(), ElementsAre("pull 5"));
  EXPECT_TRUE(loop.Parameters().empty());
  EXPECT_THAT(loop.Works({10, 11, 12}), ElementsAre("compute 10 clock 5 nodes 0-2"));
}

TEST(WorkerLoopTest, OnArrivalThereIsNoMoreWhenAllThatItWasGivenIsComputed) {
  Loop loop = OneWithWork({1, 2, -1});
  EXPECT_THAT(loop.Computed(), ElementsAre("pull 1"));
  EXPECT_THAT(loop.Parameters(), ElementsAre("compute 1 clock 1 nodes 0-2"));
  EXPECT_THAT(loop.Computed(), ElementsAre("pull 2"));
  EXPECT_THAT(loop.Parameters(), ElementsAre("compute 2 clock 2 nodes 0-2"));
  EXPECT_THAT(loop.Computed(), ElementsAre("retire 3"));
  EXPECT_THAT(loop.Parameters(), ElementsAre("idle 3"));
  // Another's work, which was lost.
  EXPECT_THAT(loop.Work(5), ElementsAre("request 3", "pull 3"));
  EXPECT_THAT(loop.Parameters(), ElementsAre("compute 5 clock 3 nodes 0-2"));
}

TEST(WorkerLoopTest, LeavesToOthersWhatItWasGivenAndHasNotBegun) {
  Loop loop = OneWithWork({1, 2, 3, 4});
  EXPECT_TRUE(loop.Leave().empty());
  EXPECT_THAT(loop.Computed(), ElementsAre("retire 1"));
  EXPECT_THAT(loop.Parameters(), ElementsAre("leave"));
}

TEST(WorkerLoopTest, WhatItWasGivenLastsThroughViewsAndEndsWithTheLineage) {
  Loop loop = OneWithWork({1, 2, 3, 4});
  proto::View view = MakeView(AsyncMode(), {0, 0}, 99);
  view.set_number(2);
  view.mutable_members(1)->clear_start_clock();
  EXPECT_TRUE(loop.View(view).empty());
  EXPECT_THAT(loop.Computed(), ElementsAre("pull 1"));
  EXPECT_THAT(loop.Parameters(), ElementsAre("compute 1 clock 1 nodes 0-2"));
  view.set_number(3);
  view.set_lineage(2);
  loop.View(view);
  EXPECT_THAT(loop.Computed(), ElementsAre("request", "pull 0"));
  EXPECT_TRUE(loop.Parameters().empty());
  EXPECT_THAT(loop.Work(9), ElementsAre("request", "compute 9 clock 0 nodes 0-2"));
}

TEST(WorkerLoopTest, OnArrivalEachIsAnnouncedOnceWhereOneIsReadAhead) {
  Loop loop(/*prefetch=*/1);
  const proto::View view = MakeView(AsyncMode(), {0, 0}, 99);
  loop.View(view);
  EXPECT_THAT(loop.Work(0), ElementsAre("read 0 leaves 0-2"));
  loop.Parameters();
  loop.SetAhead(4);
  EXPECT_THAT(loop.Works({1, 2, 3}), ElementsAre("read 1 leaves 0-2"));
  loop.Computed();
  EXPECT_THAT(loop.Parameters(), ElementsAre("read 2 leaves 0-2", "compute 1 clock 1 nodes 0-2"));
  loop.Computed();
  // In the next view of the lineage somebody else reads.
  proto::View next = view;
  next.set_number(2);
  EXPECT_THAT(loop.View(next), ::testing::Contains("read 2 leaves 0-2"));
}

TEST(WorkerLoopTest, OnArrivalAnnouncesTheFirstOfThoseThatItIsGivenEachOnce) {
  Loop loop(/*prefetch=*/2);
  loop.View(MakeView(AsyncMode(), {0, 0}, 99));
  EXPECT_THAT(loop.Work(0), ElementsAre("read 0 leaves 0-2"));
  EXPECT_THAT(loop.Parameters(), ElementsAre("request", "compute 0 clock 0 nodes 0-2"));
  loop.SetAhead(4);
  EXPECT_THAT(loop.Works({1, 2, 3, 4}), ElementsAre("read 1 leaves 0-2", "read 2 leaves 0-2"));
  std::vector<std::string> all;
  for (int more = 0; more < 4; ++more) {
    loop.Computed();
    for (const std::string& text : loop.Parameters()) all.push_back(text);
    if (more == 2) {
      for (const std::string& text : loop.Works({5, 6, 7})) all.push_back(text);
    }
  }
  EXPECT_THAT(all,
              ElementsAre("read 3 leaves 0-2", "compute 1 clock 1 nodes 0-2", "read 4 leaves 0-2",
                          "compute 2 clock 2 nodes 0-2", "request 3", "compute 3 clock 3 nodes 0-2",
                          "read 5 leaves 0-2", "read 6 leaves 0-2", "compute 4 clock 4 nodes 0-2"));
}

// Worker 0 is lost; step 0 may be open somewhere, so that its micro-batches are needed at version
// 0.
proto::View WithoutTheOther(int64_t until_step = 4) {
  proto::View view = MakeView(SyncMode(), {2, 4}, until_step);
  view.set_number(2);
  view.mutable_members()->DeleteSubrange(0, 1);
  view.set_from_step(2);
  view.mutable_assignments(0)->mutable_grants(1)->set_rank(1);
  Grant(1, {0, 4}, view.add_assignments());
  view.mutable_assignments(1)->set_from_step(2);
  return view;
}

TEST(WorkerLoopTest, TakesOverALostWorkersMicroBatchesAtTheirVersion) {
  Loop loop;
  loop.View(MakeView(SyncMode(), {2, 4}));
  loop.Parameters();
  EXPECT_THAT(loop.Computed(), ElementsAre("pull 1"));
  EXPECT_THAT(loop.View(WithoutTheOther()), ElementsAre("pull 0"));
  EXPECT_TRUE(loop.OldParameters().empty());
  EXPECT_THAT(loop.Parameters(), ElementsAre("compute 0 clock 0 nodes 0-2"));
  EXPECT_THAT(loop.Computed(), ElementsAre("pull 1"));
  // The division of step 1 is still the old one: two sums, as others may have one of them.
  EXPECT_THAT(loop.Parameters(), ElementsAre("compute 1 clock 1 nodes 2-4"));
  EXPECT_THAT(loop.Computed(), ElementsAre("compute 1 clock 1 nodes 0-2"));
  EXPECT_THAT(loop.Computed(), ElementsAre("pull 2"));
  EXPECT_THAT(loop.Parameters(), ElementsAre("compute 2 clock 2 nodes 0-4"));
}

TEST(WorkerLoopTest, NothingIsPulledAheadWhileTheStepNeedsMoreOfIt) {
  Loop loop;
  loop.View(MakeView(SyncMode(), {2, 4}));
  loop.Parameters();
  EXPECT_THAT(loop.Sending(), ElementsAre("pull 1"));
  EXPECT_TRUE(loop.Computed().empty()) << "it is under way";
  // The view makes it pull the step's parameters again, which others have replaced here.
  EXPECT_THAT(loop.View(WithoutTheOther()), ElementsAre("pull 0"));
  EXPECT_TRUE(loop.OldParameters().empty());
  EXPECT_THAT(loop.Parameters(), ElementsAre("compute 0 clock 0 nodes 0-2"));
  EXPECT_THAT(loop.Sending(), ElementsAre("pull 1"));
  EXPECT_TRUE(loop.Computed().empty());
  EXPECT_THAT(loop.Parameters(), ElementsAre("compute 1 clock 1 nodes 2-4"));
  EXPECT_TRUE(loop.Sending().empty()) << "its other part is computed with the same parameters";
  EXPECT_THAT(loop.Computed(), ElementsAre("compute 1 clock 1 nodes 0-2"));
  EXPECT_THAT(loop.Sending(), ElementsAre("pull 2"));
  EXPECT_TRUE(loop.Computed().empty());
  EXPECT_THAT(loop.SomeParameters(), ElementsAre("early compute 2 clock 2 nodes 0-4"));
}

TEST(WorkerLoopTest, OnArrivalNothingIsPulledAhead) {
  Loop loop;
  loop.View(MakeView(AsyncMode(), {}));
  loop.Work(7);
  loop.Parameters();
  EXPECT_TRUE(loop.Sending().empty());
  EXPECT_THAT(loop.Computed(), ElementsAre("pull 1"));
}

TEST(WorkerLoopTest, WhatIsPulledAheadIsOfTheViewAndTheTestThatFollow) {
  Loop loop;
  loop.View(MakeView(SyncMode(), {2, 4}, /*until_step=*/1));
  loop.Parameters();
  EXPECT_THAT(loop.Sending(), ElementsAre("pull 1"));
  EXPECT_TRUE(loop.Computed().empty());
  EXPECT_THAT(loop.Parameters(), ElementsAre("idle 1"));
  EXPECT_THAT(loop.Test(1, 1), ElementsAre("observe 1"));
  EXPECT_THAT(loop.Parameters(), ElementsAre("test 1"));

  Loop other;
  other.View(MakeView(SyncMode(), {2, 4}));
  other.Parameters();
  EXPECT_THAT(other.Sending(), ElementsAre("pull 1"));
  EXPECT_TRUE(other.Computed().empty());
  proto::View next = MakeView(SyncMode(), {2, 4});
  next.set_number(2);
  next.set_lineage(2);
  EXPECT_THAT(other.View(next), ElementsAre("pull 0")) << "another lineage begins from nothing";
}

TEST(WorkerLoopTest, OneThatLeavesFinishesWhatItHasPulledAheadFor) {
  Loop loop;
  loop.View(MakeView(SyncMode(), {2, 4}));
  loop.Parameters();
  loop.Sending();
  loop.Computed();
  EXPECT_TRUE(loop.Leave().empty()) << "others may need it until the step is done";
  EXPECT_THAT(loop.Parameters(), ElementsAre("leave"));
}

// Two views, one soon after the other: the first gave it something from step 3 on, which nobody
// else will compute, before the second divided the steps from 4 on.
TEST(WorkerLoopTest, OneThatJoinsBeginsWithTheFirstStepThatItHasBeenGrantedSomethingOf) {
  Loop loop;
  proto::View view = MakeView(SyncMode(), {0, 0}, 100);
  view.mutable_assignments(0)->set_from_step(2);
  Grant(0, {0, 4}, view.mutable_assignments(0));
  for (const int64_t from_step : {3, 4}) {
    proto::Assignment* assignment = view.add_assignments();
    assignment->set_from_step(from_step);
    Grant(0, {0, 2}, assignment);
    Grant(1, {2, 4}, assignment);
  }
  EXPECT_THAT(loop.View(view), ElementsAre("pull 3"));
  EXPECT_THAT(loop.Parameters(), ElementsAre("compute 3 clock 3 nodes 2-4"));
  EXPECT_THAT(loop.Computed(), ElementsAre("pull 4"));
}

// Worker 1 joined for step 1; steps 0 and 1 are still open when the next view comes, whose own
// division begins at step 2, where the lineage ends.
TEST(WorkerLoopTest, FindsItsWorkBetweenTheFirstAssignmentAndTheLast) {
  Loop loop;
  proto::View view = MakeView(SyncMode(), {2, 4}, /*until_step=*/2);
  view.mutable_assignments(0)->clear_grants();
  Grant(0, {0, 4}, view.mutable_assignments(0));
  for (const int step : {1, 2}) {
    proto::Assignment* assignment = view.add_assignments();
    assignment->set_from_step(step);
    Grant(0, {0, 2}, assignment);
    Grant(1, {2, 4}, assignment);
  }
  EXPECT_THAT(loop.View(view), ElementsAre("pull 1"));
  EXPECT_THAT(loop.Parameters(), ElementsAre("compute 1 clock 1 nodes 2-4"));
  EXPECT_THAT(loop.Computed(), ElementsAre("pull 2"));
}

TEST(WorkerLoopTest, AViewThatComesWhileItComputesTakesEffectAfterwards) {
  Loop loop;
  loop.View(MakeView(SyncMode(), {2, 4}));
  loop.Parameters();
  EXPECT_TRUE(loop.View(WithoutTheOther()).empty());
  // The parameters are still there.
  EXPECT_THAT(loop.Computed(), ElementsAre("compute 0 clock 0 nodes 0-2"));
}

TEST(WorkerLoopTest, AStepThatIsDoneEverywhereNeedsNobodyAnyMore) {
  Loop loop;
  loop.View(MakeView(SyncMode(), {2, 4}));
  loop.Parameters();
  loop.Computed();
  loop.View(WithoutTheOther());
  EXPECT_THAT(loop.Parameters(/*passed=*/true), ElementsAre("pull 1"));
}

TEST(WorkerLoopTest, EndsEarlyWhereverItStands) {
  for (int steps = 0; steps <= 2; ++steps) {
    Loop loop;
    loop.View(MakeView(SyncMode(), {1, 4}, 9));
    for (int step = 0; step < steps; ++step) {
      loop.Parameters();
      loop.Computed();
    }
    proto::View view = MakeView(SyncMode(), {1, 4}, 2);
    view.set_number(2);
    EXPECT_THAT(loop.View(view), ElementsAre(absl::StrCat("pull ", steps)));
    for (int step = steps; step < 2; ++step) {
      loop.Parameters();
      loop.Computed();
    }
    EXPECT_THAT(loop.Parameters(), ElementsAre("idle 2")) << steps;
  }
}

TEST(WorkerLoopTest, BeginsAnotherLineageFromNothing) {
  Loop loop;
  loop.View(MakeView(SyncMode(), {1, 4}, 2));
  for (int step = 0; step < 2; ++step) {
    loop.Parameters();
    loop.Computed();
  }
  EXPECT_THAT(loop.Parameters(), ElementsAre("idle 2"));
  proto::View view = MakeView(BoundedMode(0), {0, 0}, 9);
  view.set_number(2);
  view.set_lineage(2);
  view.set_origin_unit(2);
  view.set_origin_samples(8);
  EXPECT_THAT(loop.View(view), ElementsAre("request", "pull 0"));
  loop.Work(2);
  EXPECT_THAT(loop.Parameters(), ElementsAre("request", "compute 2 clock 0 nodes 0-2"));
}

TEST(WorkerLoopTest, LeavesWhenWhatItHasBegunIsDone) {
  Loop sync;
  sync.View(MakeView(SyncMode(), {1, 4}));
  sync.Parameters();
  EXPECT_TRUE(sync.Leave().empty());
  EXPECT_THAT(sync.Computed(), ElementsAre("pull 1"));
  EXPECT_THAT(sync.Parameters(), ElementsAre("leave")) << "the step is done everywhere";
  Loop on_arrival;
  on_arrival.View(MakeView(AsyncMode(), {0, 0}));
  on_arrival.Work(0);
  on_arrival.Parameters();
  EXPECT_TRUE(on_arrival.Leave().empty());
  EXPECT_THAT(on_arrival.Computed(), ElementsAre("retire 1"));
  EXPECT_THAT(on_arrival.Parameters(), ElementsAre("leave"));
}

// They may be leaving too, and have not begun the step.
TEST(WorkerLoopTest, FinishesItsStepForOthersThatHaveLeft) {
  Loop loop;
  loop.View(MakeView(SyncMode(), {1, 2}));
  loop.Parameters();
  EXPECT_TRUE(loop.Leave().empty());
  EXPECT_THAT(loop.Computed(), ElementsAre("pull 1"));
  proto::View view = MakeView(SyncMode(), {0, 4});
  view.set_number(2);
  EXPECT_THAT(loop.View(view), ElementsAre("pull 0"));
  EXPECT_THAT(loop.Parameters(), ElementsAre("compute 0 clock 0 nodes 0-4"));
  EXPECT_THAT(loop.Computed(), ElementsAre("pull 1"));
  EXPECT_THAT(loop.Parameters(), ElementsAre("leave"));
}

// What is still on its way to it is for others to do.
TEST(WorkerLoopTest, ComputesNothingOnceItHasLeft) {
  Loop sync;
  sync.View(MakeView(SyncMode(), {1, 4}));
  EXPECT_THAT(sync.Leave(), ElementsAre("leave"));
  EXPECT_TRUE(sync.Parameters().empty());
  Loop on_arrival;
  on_arrival.View(MakeView(AsyncMode(), {0, 0}));
  on_arrival.Parameters();
  EXPECT_THAT(on_arrival.Leave(), ElementsAre("leave"));
  EXPECT_TRUE(on_arrival.Work(0).empty());
}

TEST(WorkerLoopTest, TestsTheFinalParametersWhenAsked) {
  Loop loop;
  loop.View(MakeView(SyncMode(), {4, 4}));
  loop.Parameters();
  EXPECT_THAT(loop.Test(4, 9), ElementsAre("observe 4"));
  EXPECT_THAT(loop.Parameters(), ElementsAre("test 9"));
}

// Three steps make an epoch. This worker has pulled step 6, while the test at step 3 is under way.
Loop OneThatWaitsForItsTest() {
  Loop loop;
  loop.View(MakeView(SyncMode(), {0, 2}, 9));
  for (int step = 0; step < 6; ++step) {
    EXPECT_EQ(loop.Parameters().front() == "evaluate 3", step == 3);
    loop.Computed();
  }
  EXPECT_TRUE(loop.SomeParameters().empty());
  EXPECT_TRUE(loop.Parameters().empty());
  EXPECT_TRUE(loop.waits_for_test());
  return loop;
}

TEST(WorkerLoopTest, ATestThatIsDueWaitsForTheOneBefore) {
  Loop loop = OneThatWaitsForItsTest();
  EXPECT_THAT(loop.Tested(), ElementsAre("evaluate 6", "compute 6 clock 6 nodes 0-2"));
  EXPECT_FALSE(loop.waits_for_test());
  EXPECT_TRUE(loop.Tested().empty());
  EXPECT_THAT(loop.Computed(), ElementsAre("pull 7"));
}

TEST(WorkerLoopTest, OneThatWaitsForItsTestHearsWhatElseThereIs) {
  Loop leaving = OneThatWaitsForItsTest();
  EXPECT_THAT(leaving.Leave(), ElementsAre("leave"));
  Loop viewing = OneThatWaitsForItsTest();
  proto::View view = MakeView(SyncMode(), {0, 4}, 9);
  view.set_number(2);
  EXPECT_TRUE(viewing.View(view).empty());
  EXPECT_THAT(viewing.Tested(), ElementsAre("evaluate 6", "compute 6 clock 6 nodes 0-4"));
  Loop ending = OneThatWaitsForItsTest();
  view.set_until_step(6);
  EXPECT_THAT(ending.View(view), ElementsAre("idle 6"));
  EXPECT_FALSE(ending.waits_for_test());
}

TEST(WorkerLoopTest, WhereTestsHaveEndedItComputesWithoutThem) {
  Loop loop = OneThatWaitsForItsTest();
  EXPECT_THAT(loop.EndTests(), ElementsAre("compute 6 clock 6 nodes 0-2"));
  EXPECT_TRUE(loop.Tested().empty());
  loop.Computed();
  for (int step = 7; step < 9; ++step) {
    loop.Parameters();
    loop.Computed();
  }
  EXPECT_THAT(loop.Parameters(), ElementsAre("idle 9"));
}

TEST(WorkerLoopTest, OnArrivalATestThatIsDueWaitsToo) {
  Loop loop;
  loop.View(MakeView(AsyncMode(), {}));
  loop.Parameters();
  EXPECT_THAT(loop.Work(5, /*evaluates=*/true),
              ElementsAre("evaluate 5", "request", "compute 5 clock 0 nodes 0-2"));
  EXPECT_TRUE(loop.Work(10, /*evaluates=*/true).empty());
  loop.Computed();
  EXPECT_TRUE(loop.Parameters().empty());
  EXPECT_TRUE(loop.waits_for_test());
  EXPECT_THAT(loop.Tested(), ElementsAre("evaluate 10", "request", "compute 10 clock 1 nodes 0-2"));
}

TEST(WorkerLoopTest, TheFinalTestWaitsForTheOneBefore) {
  Loop loop = OneThatWaitsForItsTest();
  EXPECT_THAT(loop.Test(6, 9), ElementsAre("observe 6"));
  EXPECT_FALSE(loop.waits_for_test());
  EXPECT_TRUE(loop.Parameters().empty());
  EXPECT_THAT(loop.Tested(), ElementsAre("test 9"));
  EXPECT_TRUE(loop.Tested().empty());
}

TEST(WorkerLoopTest, BeginsWhenSomeParametersAreHere) {
  Loop loop(/*prefetch=*/1);
  EXPECT_THAT(loop.View(MakeView(SyncMode(), {2, 4}, 2)),
              ElementsAre("read 0 leaves 2-4", "pull 0"));
  EXPECT_THAT(loop.SomeParameters(), ElementsAre("early compute 0 clock 0 nodes 2-4"));
  EXPECT_THAT(loop.Parameters(), ElementsAre("read 1 leaves 2-4"));
  EXPECT_THAT(loop.Computed(), ElementsAre("pull 1"));
  EXPECT_THAT(loop.SomeParameters(), ElementsAre("early compute 1 clock 1 nodes 2-4"));
  EXPECT_TRUE(loop.Parameters().empty());
  EXPECT_THAT(loop.Computed(), ElementsAre("pull 2"));
  EXPECT_TRUE(loop.SomeParameters().empty());  // there is nothing to compute at the end
  EXPECT_THAT(loop.Parameters(), ElementsAre("idle 2"));
}

TEST(WorkerLoopTest, WhatWasBegunEarlyAndInterruptedIsAsIfItHadNotBeen) {
  Loop loop;
  loop.View(MakeView(SyncMode(), {1, 4}));
  EXPECT_THAT(loop.SomeParameters(), ElementsAre("early compute 0 clock 0 nodes 1-2,2-4"));
  loop.Interrupted();
  EXPECT_THAT(loop.SomeParameters(), ElementsAre("early compute 0 clock 0 nodes 1-2,2-4"));
  loop.Interrupted();
  EXPECT_THAT(loop.Parameters(/*passed=*/true), ElementsAre("pull 1"));
  EXPECT_THAT(loop.SomeParameters(), ElementsAre("early compute 1 clock 1 nodes 1-2,2-4"));
  loop.Interrupted();
  proto::View view = MakeView(SyncMode(), {2, 4});
  view.set_number(2);
  EXPECT_THAT(loop.View(view), ElementsAre("pull 1"));
  EXPECT_THAT(loop.SomeParameters(), ElementsAre("early compute 1 clock 1 nodes 2-4"));
  loop.Interrupted();
  EXPECT_THAT(loop.Leave(), ElementsAre("leave"));
  EXPECT_TRUE(loop.SomeParameters().empty());
}

TEST(WorkerLoopTest, OnArrivalAsksForMoreWorkOnlyWhenItsParametersAreAllHere) {
  Loop loop;
  EXPECT_THAT(loop.View(MakeView(AsyncMode(), {})), ElementsAre("request", "pull 0"));
  EXPECT_TRUE(loop.SomeParameters().empty());  // no work yet
  EXPECT_TRUE(loop.Work(7).empty());
  EXPECT_THAT(loop.SomeParameters(), ElementsAre("early compute 7 clock 0 nodes 0-2"));
  loop.Interrupted();  // and the work stays
  EXPECT_THAT(loop.SomeParameters(), ElementsAre("early compute 7 clock 0 nodes 0-2"));
  EXPECT_THAT(loop.Parameters(), ElementsAre("request"));
  EXPECT_TRUE(loop.Work(9).empty());
  EXPECT_THAT(loop.Computed(), ElementsAre("pull 1"));
  EXPECT_THAT(loop.SomeParameters(), ElementsAre("early compute 9 clock 1 nodes 0-2"));
}

// They are copied, so all must be there.
TEST(WorkerLoopTest, WaitsForAllParametersThatAreToBeTested) {
  Loop loop;
  loop.View(MakeView(SyncMode(), {0, 2}));
  for (int step = 0; step < 3; ++step) {
    EXPECT_EQ(loop.SomeParameters().size(), 1u);
    loop.Parameters();
    loop.Computed();
  }
  EXPECT_TRUE(loop.SomeParameters().empty());  // after three steps an epoch ends
  EXPECT_THAT(loop.Parameters(), ElementsAre("evaluate 3", "compute 3 clock 3 nodes 0-2"));
}

}  // namespace
}  // namespace rubato
