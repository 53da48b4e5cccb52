#include "worker/worker_loop.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

using ::testing::ElementsAre;

// Two workers, V micro-batches, 10 samples an epoch in batches of 4: three steps an epoch.
proto::View MakeView(proto::View::Mode mode, int64_t leaves, Range mine, int64_t until_step = 4) {
  proto::View view;
  view.set_number(1);
  view.set_mode(mode);
  view.set_leaves(leaves);
  view.set_samples_per_epoch(10);
  view.set_evaluate_every(3);
  view.set_from_step(0);
  view.set_until_step(until_step);
  for (int rank = 0; rank < 2; ++rank) {
    proto::Member* member = view.add_members();
    member->set_rank(rank);
    member->set_incarnation(1);
    member->set_start_clock(0);
  }
  view.mutable_members(1)->set_first_leaf(mine.begin);
  view.mutable_members(1)->set_end_leaf(mine.end);
  view.set_your_rank(1);
  return view;
}

std::string Text(const WorkerAction& action) {
  switch (action.kind) {
    case WorkerAction::Kind::kPull:
      return absl::StrCat(action.observer ? "observe " : "pull ", action.clock);
    case WorkerAction::Kind::kRequestWork:
      return "request";
    case WorkerAction::Kind::kEvaluate:
      return absl::StrCat(action.is_final ? "test " : "evaluate ", action.unit);
    case WorkerAction::Kind::kCompute:
      return absl::StrCat("compute ", action.unit, " clock ", action.clock, " nodes ",
                          absl::StrJoin(action.nodes, ",", [](std::string* out, const Range& node) {
                            absl::StrAppend(out, node.begin, "-", node.end);
                          }));
    case WorkerAction::Kind::kReadAhead:
      return absl::StrCat("read ", action.unit, " leaves ", action.leaves.begin, "-",
                          action.leaves.end);
    case WorkerAction::Kind::kFinish:
      return "finish";
  }
  return "";
}

// The actions of the event that `call` raises.
template <typename Call>
std::vector<std::string> Do(Call call) {
  WorkerActions actions;
  call(&actions);
  std::vector<std::string> texts;
  for (const WorkerAction& action : actions) texts.push_back(Text(action));
  return texts;
}

TEST(WorkerLoopTest, InSyncTakesEveryStepInTurnAndSeesTheEnd) {
  WorkerLoop loop(4, 4);
  const proto::View view = MakeView(proto::View::MODE_SYNC, 4, {1, 4}, 2);
  EXPECT_THAT(Do([&](auto* a) { loop.OnView(view, a); }), ElementsAre("pull 0"));
  EXPECT_THAT(Do([&](auto* a) { loop.OnParameters(a); }),
              ElementsAre("compute 0 clock 0 nodes 1-2,2-4"));
  EXPECT_THAT(Do([&](auto* a) { loop.OnComputed(a); }), ElementsAre("pull 1"));
  EXPECT_THAT(Do([&](auto* a) { loop.OnParameters(a); }),
              ElementsAre("compute 1 clock 1 nodes 1-2,2-4"));
  EXPECT_THAT(Do([&](auto* a) { loop.OnComputed(a); }), ElementsAre("pull 2"));
  EXPECT_THAT(Do([&](auto* a) { loop.OnParameters(a); }), ElementsAre("finish"));
}

TEST(WorkerLoopTest, TheOwnerOfTheFirstMicroBatchTestsAtTheEndOfAnEpoch) {
  for (const Range mine : {Range{0, 2}, Range{2, 4}}) {
    WorkerLoop loop(4, 4);
    const proto::View view = MakeView(proto::View::MODE_SYNC, 4, mine);
    std::vector<std::string> all = Do([&](auto* a) { loop.OnView(view, a); });
    for (int step = 0; step < 4; ++step) {
      for (const std::string& text : Do([&](auto* a) { loop.OnParameters(a); }))
        all.push_back(text);
      for (const std::string& text : Do([&](auto* a) { loop.OnComputed(a); })) all.push_back(text);
    }
    // Three steps make an epoch.
    EXPECT_EQ(std::count(all.begin(), all.end(), "evaluate 3"), mine.begin == 0 ? 1 : 0);
  }
}

TEST(WorkerLoopTest, ASpareWorkerWaitsForTheEnd) {
  WorkerLoop loop(4, 4);
  const proto::View view = MakeView(proto::View::MODE_SYNC, 4, {4, 4});
  EXPECT_THAT(Do([&](auto* a) { loop.OnView(view, a); }), ElementsAre("pull 4"));
  EXPECT_THAT(Do([&](auto* a) { loop.OnParameters(a); }), ElementsAre("finish"));
}

TEST(WorkerLoopTest, OnArrivalNeedsBothParametersAndWorkInAnyOrder) {
  for (const bool work_first : {true, false}) {
    WorkerLoop loop(4, 4);
    const proto::View view = MakeView(proto::View::MODE_ASYNC, 2, {0, 0});
    EXPECT_THAT(Do([&](auto* a) { loop.OnView(view, a); }), ElementsAre("request", "pull 0"));
    proto::Work work;
    work.set_contribution(7);
    std::vector<std::string> first = Do([&](auto* a) {
      if (work_first) {
        loop.OnWork(work, a);
      } else {
        loop.OnParameters(a);
      }
    });
    EXPECT_TRUE(first.empty());
    // The next work is asked for before computing, so that it is there when it is wanted.
    EXPECT_THAT(Do([&](auto* a) {
                  if (work_first) {
                    loop.OnParameters(a);
                  } else {
                    loop.OnWork(work, a);
                  }
                }),
                ElementsAre("request", "compute 7 clock 0 nodes 0-2"));
    // Its clock counts its own contributions, not the job's.
    EXPECT_THAT(Do([&](auto* a) { loop.OnComputed(a); }), ElementsAre("pull 1"));
  }
}

TEST(WorkerLoopTest, OnArrivalFinishesOnlyWhenItsLastContributionIsApplied) {
  WorkerLoop loop(4, 4);
  const proto::View view = MakeView(proto::View::MODE_ASYNC, 2, {0, 0});
  Do([&](auto* a) { loop.OnView(view, a); });
  proto::Work work;
  work.set_contribution(0);
  Do([&](auto* a) { loop.OnWork(work, a); });
  Do([&](auto* a) { loop.OnParameters(a); });
  Do([&](auto* a) { loop.OnComputed(a); });
  EXPECT_TRUE(Do([&](auto* a) { loop.OnWork(proto::Work(), a); }).empty());  // no more
  EXPECT_THAT(Do([&](auto* a) { loop.OnParameters(a); }), ElementsAre("finish"));
}

TEST(WorkerLoopTest, InSyncAnnouncesEachStepOnceAndInOrder) {
  WorkerLoop loop(4, 4, /*prefetch=*/2);
  const proto::View view = MakeView(proto::View::MODE_SYNC, 4, {1, 4}, 4);
  EXPECT_THAT(Do([&](auto* a) { loop.OnView(view, a); }),
              ElementsAre("read 0 leaves 1-4", "read 1 leaves 1-4", "pull 0"));
  std::vector<std::string> all;
  for (int step = 0; step < 4; ++step) {
    for (const std::string& text : Do([&](auto* a) { loop.OnParameters(a); })) {
      all.push_back(text.substr(0, text.find(" clock")));
    }
    Do([&](auto* a) { loop.OnComputed(a); });
  }
  EXPECT_THAT(all, ElementsAre("read 2 leaves 1-4", "compute 0", "read 3 leaves 1-4", "compute 1",
                               "compute 2", "compute 3"));
}

TEST(WorkerLoopTest, OnArrivalAnnouncesTheContributionThatItIsGiven) {
  WorkerLoop loop(4, 4, /*prefetch=*/2);
  Do([&](auto* a) { loop.OnView(MakeView(proto::View::MODE_ASYNC, 2, {0, 0}), a); });
  proto::Work work;
  work.set_contribution(7);
  EXPECT_THAT(Do([&](auto* a) { loop.OnWork(work, a); }), ElementsAre("read 7 leaves 0-2"));
  EXPECT_THAT(Do([&](auto* a) { loop.OnParameters(a); }),
              ElementsAre("request", "compute 7 clock 0 nodes 0-2"));
  EXPECT_THAT(Do([&](auto* a) { loop.OnComputed(a); }), ElementsAre("pull 1"));
  EXPECT_THAT(Do([&](auto* a) { loop.OnWork(proto::Work(), a); }), ElementsAre());
}

TEST(WorkerLoopTest, EndsEarlyWhereverItStands) {
  proto::EndAt end_at;
  end_at.set_step(2);
  for (int steps = 0; steps <= 3; ++steps) {
    WorkerLoop loop(4, 4);
    const proto::View view = MakeView(proto::View::MODE_SYNC, 4, {1, 4}, 9);
    Do([&](auto* a) { loop.OnView(view, a); });
    for (int step = 0; step < steps; ++step) {
      Do([&](auto* a) { loop.OnParameters(a); });
      Do([&](auto* a) { loop.OnComputed(a); });
    }
    // Having computed step 2, whose sum is not applied any more, it waits for what will not come.
    std::vector<std::string> texts = Do([&](auto* a) { loop.OnEndAt(end_at, a); });
    for (int step = steps; step < 2; ++step) {
      EXPECT_TRUE(texts.empty());
      Do([&](auto* a) { loop.OnParameters(a); });
      Do([&](auto* a) { loop.OnComputed(a); });
    }
    if (steps <= 2) texts = Do([&](auto* a) { loop.OnParameters(a); });
    EXPECT_THAT(texts, ElementsAre("finish")) << steps;
  }
}

TEST(WorkerLoopTest, TestsTheFinalParametersWhenAsked) {
  WorkerLoop loop(4, 4);
  const proto::View view = MakeView(proto::View::MODE_SYNC, 4, {4, 4});
  Do([&](auto* a) { loop.OnView(view, a); });
  Do([&](auto* a) { loop.OnParameters(a); });
  proto::EvaluationRequest request;
  request.set_step(4);
  EXPECT_THAT(Do([&](auto* a) { loop.OnEvaluationRequest(request, a); }), ElementsAre("observe 4"));
  EXPECT_THAT(Do([&](auto* a) { loop.OnParameters(a); }), ElementsAre("test 4"));
}

}  // namespace
}  // namespace rubato
