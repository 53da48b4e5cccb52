#include "worker/session/worker_session.h"

#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/exit_code.h"
#include "common/space/modes.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Session = WorkerSession;

// The lease is 5 s, of which 4.5 s of silence are borne, a start may take 20 s, which is a worker's
// patience. Two workers share two micro-batches of two samples a step; six values in three blocks
// on two shards.
proto::Job MakeJob() {
  proto::Job job;
  job.mutable_train()->set_batch_size(4);
  job.mutable_train()->set_micro_batches(2);
  job.mutable_cluster()->mutable_workers()->set_start(2);
  job.mutable_cluster()->set_lease(5);
  job.mutable_cluster()->set_start_timeout(20);
  job.mutable_evaluation()->mutable_every()->set_epochs(1);
  job.mutable_data()->set_prefetch(0);
  job.mutable_wire()->set_chunk(2 * sizeof(float));
  return job;
}

// This worker has rank 1 and the second micro-batch of each step.
proto::View MakeView() {
  proto::View view;
  view.set_number(7);
  view.set_lineage(3);
  *view.mutable_mode() = SyncMode();
  view.set_leaves(2);
  view.set_samples_per_epoch(40);
  view.set_until_step(9);
  view.mutable_layout()->add_parameters()->add_shape(6);
  Placement::Even(FlatSpace(6, 2), 2).AddTo(&view);
  for (int shard = 0; shard < 2; ++shard) {
    view.mutable_shards(shard)->set_address(absl::StrCat("host:", shard));
  }
  proto::Assignment* assignment = view.add_assignments();
  for (int rank = 0; rank < 2; ++rank) {
    proto::Member* member = view.add_members();
    member->set_rank(rank);
    member->set_incarnation(5);
    proto::Grant* grant = assignment->add_grants();
    grant->set_rank(rank);
    grant->set_first_leaf(rank);
    grant->set_end_leaf(rank + 1);
  }
  view.set_your_rank(1);
  return view;
}

std::string Text(const Session::Connect& connect) {
  return absl::StrCat(
      "connect for ", absl::FormatDuration(connect.patience),
      connect.servers.empty() ? "" : " if it reaches ", absl::StrJoin(connect.servers, " and "),
      connect.servers.empty() || connect.longest_mute > absl::ZeroDuration() ? ""
                                                                             : " after silence",
      connect.last_term == 0 ? "" : absl::StrCat(" after term ", connect.last_term),
      connect.again.ok() ? "" : " again: ", connect.again.message());
}
std::string Text(const Session::UseView&) { return "use view"; }
std::string Text(const Session::OpenStreams&) { return "open streams"; }
std::string Text(const Session::SendToCoordinator& send) {
  std::string text = send.message.ShortDebugString();
  while (absl::EndsWith(text, " ")) text.pop_back();
  return absl::StrCat("say ", text);
}
std::string Text(const Session::StartPull& start) {
  return absl::StrCat("pull ", start.pull.number, " at clock ", start.pull.clock);
}
std::string Text(const Session::SendFrame& send) {
  const Frame& frame = send.frame;
  return absl::StrCat("ask shard ", send.shard, " for ", frame.block_count, " from ", frame.block,
                      " in pull ", frame.unit, " of view ", frame.view);
}
std::string Text(const Session::Test& test) { return absl::StrCat("test ", test.unit); }
std::string Text(const Session::ReadAhead&) { return "read ahead"; }
std::string Text(const Session::Compute& compute) {
  return absl::StrCat(compute.early ? "early compute " : "compute ", compute.unit);
}
std::string Text(const Session::GiveValues& give) {
  return absl::StrCat("give ", give.values.begin, " to ", give.values.end);
}
std::string Text(const Session::Disconnect&) { return "disconnect"; }
std::string Text(const Session::End& end) {
  return absl::StrCat("end with ", ExitCode(end.status), ": ", end.status.message());
}

// A session and its clock, in seconds.
class SessionTest : public ::testing::Test {
 protected:
  SessionTest() { Restart(); }

  void Restart() { session_.emplace(MakeJob(), 6); }

  std::vector<std::string> Tell(const Session::Event& event) {
    std::vector<std::string> texts;
    for (const Session::Outcome& outcome : session_->Handle(event, absl::FromUnixSeconds(now_))) {
      texts.push_back(std::visit([](const auto& what) { return Text(what); }, outcome));
      if (const auto* start = std::get_if<Session::StartPull>(&outcome)) pull_ = start->pull.number;
      if (const auto* compute = std::get_if<Session::Compute>(&outcome)) compute_ = *compute;
    }
    return texts;
  }
  std::vector<std::string> Tell(const proto::View& view) {
    proto::CoordinatorMessage message;
    *message.mutable_view() = view;
    return Tell(FromCoordinator(message));
  }
  std::vector<std::string> Stop(int exit_code, bool evicted = false, bool refused = false) {
    proto::CoordinatorMessage message;
    message.mutable_stop()->set_exit_code(exit_code);
    message.mutable_stop()->set_reason("the reason");
    message.mutable_stop()->set_evicted(evicted);
    message.mutable_stop()->set_refused(refused);
    return Tell(FromCoordinator(message));
  }
  static Session::Event FromCoordinator(const proto::CoordinatorMessage& message) {
    return Session::FromCoordinator{std::make_shared<const proto::CoordinatorMessage>(message)};
  }
  std::vector<std::string> AllArrived(bool passed = false) {
    return Tell(Session::AllArrived{{pull_, passed, /*staleness=*/0}});
  }
  std::vector<std::string> CallBroke() {
    return Tell(Session::CallBroke{absl::UnavailableError("the call broke")});
  }
  std::vector<std::string> AskedToLeave() { return Tell(Session::AskedToLeave{InterruptedBy(15)}); }
  void BecomeMember() {
    Tell(Session::Started{});
    Tell(MakeView());
  }
  int64_t Deadline() const { return absl::ToUnixSeconds(session_->deadline()); }

  std::optional<WorkerSession> session_;
  int64_t now_ = 0;
  uint64_t pull_ = 0;
  Session::Compute compute_;
};

TEST_F(SessionTest, RegistersJoinsTheShardsOfItsViewAndComputes) {
  EXPECT_THAT(Tell(Session::Started{}), ElementsAre("connect for 20s"));
  EXPECT_FALSE(session_->is_member());
  EXPECT_THAT(Tell(MakeView()), ElementsAre("use view", "open streams", "pull 1 at clock 0",
                                            "ask shard 0 for 1 from 0 in pull 1 of view 7",
                                            "ask shard 1 for 2 from 1 in pull 1 of view 7"));
  EXPECT_TRUE(session_->is_member());
  EXPECT_THAT(AllArrived(), ElementsAre("compute 0"));
  Session::Computed computed;
  computed.progress.set_pushed_bytes(8);
  EXPECT_THAT(Tell(computed),
              ElementsAre("say progress { unit: 0 first_leaf: 1 staleness: 0 clock: 0 "
                          "pushed_bytes: 8 }",
                          "pull 2 at clock 1", "ask shard 0 for 1 from 0 in pull 2 of view 7",
                          "ask shard 1 for 2 from 1 in pull 2 of view 7"));
}

// One that computes on arrival, and is given all that it asks for at once.
class GivenSessionTest : public SessionTest {
 protected:
  GivenSessionTest() {
    BecomeMember();
    EXPECT_EQ(Open(4), 1);
  }
  // How many contributions it asks for where a lineage begins, or a contribution is computed, so
  // long after the last, and the next one begins; 0: it asks for none.
  int64_t Open(uint32_t lineage) {
    proto::View view = MakeView();
    view.set_number(view.number() + lineage);
    view.set_lineage(lineage);
    *view.mutable_mode() = AsyncMode();
    view.set_until_step(1000);
    proto::CoordinatorMessage message;
    *message.mutable_view() = view;
    int64_t asked = Asked(FromCoordinator(message));
    if (asked == 0) asked = Asked(Session::Computed{});  // what it has begun comes first
    Give(asked);
    EXPECT_EQ(Asked(Session::AllArrived{{pull_, false, 0}}), 1) << "it begins the first";
    Give(1);
    return asked;
  }
  int64_t Computed(absl::Duration after) {
    time_ += after;
    int64_t asked = Asked(Session::Computed{});
    asked += Asked(Session::AllArrived{{pull_, false, 0}});
    Give(asked);
    return asked;
  }
  // All that it asks for while it computes so many.
  std::vector<int64_t> Computed(int contributions, absl::Duration each) {
    std::vector<int64_t> asked;
    for (; contributions > 0; --contributions) {
      if (const int64_t count = Computed(each); count > 0) asked.push_back(count);
    }
    return asked;
  }

 private:
  int64_t Asked(const Session::Event& event) {
    int64_t asked = 0;
    for (const Session::Outcome& outcome : session_->Handle(event, time_)) {
      if (const auto* start = std::get_if<Session::StartPull>(&outcome)) pull_ = start->pull.number;
      const auto* send = std::get_if<Session::SendToCoordinator>(&outcome);
      if (send != nullptr && send->message.has_work_request()) {
        asked += send->message.work_request().count();
        EXPECT_NE(send->message.work_request().has_count(), asked == 1);
      }
    }
    return asked;
  }
  void Give(int64_t count) {
    if (count == 0) return;
    proto::CoordinatorMessage message;
    proto::Work* work = message.mutable_work();
    work->set_contribution(unit_++);
    while (--count > 0) work->add_then()->set_contribution(unit_++);
    EXPECT_EQ(Asked(FromCoordinator(message)), 0);
  }

  absl::Time time_ = absl::FromUnixSeconds(1);
  int64_t unit_ = 0;
};

TEST_F(GivenSessionTest, WhereContributionsTakeLongItAsksForEach) {
  EXPECT_THAT(Computed(9, absl::Milliseconds(2.6)), ElementsAre(1, 1, 1, 1, 1, 1, 1, 1, 1));
}

// Five milliseconds of work.
TEST_F(GivenSessionTest, WhereTheyAreShortItAsksForSeveralAtOnce) {
  // From the second one on it knows how long they take.
  EXPECT_THAT(Computed(9, absl::Milliseconds(1)), ElementsAre(1, 4, 3, 3));
}

TEST_F(GivenSessionTest, HoweverShortTheyAreItAsksForNoMoreThanItMayHave) {
  EXPECT_THAT(Computed(25, absl::Microseconds(1)), ElementsAre(1, 15, 9, 9));
}

TEST_F(GivenSessionTest, FollowsWhatTheyTakeAndForgetsItWithTheLineage) {
  Computed(20, absl::Milliseconds(1));
  // One that takes long costs it a while; those that take long for good make it ask for each.
  Computed(absl::Milliseconds(50));
  EXPECT_THAT(Computed(5, absl::Milliseconds(1)), ElementsAre(1, 1, 1));
  EXPECT_EQ(Computed(60, absl::Milliseconds(1)).back(), 3);
  const std::vector<int64_t> longer = Computed(60, absl::Milliseconds(100));
  EXPECT_EQ(longer.back(), 1);
  EXPECT_GT(longer.size(), 50u);
  Computed(60, absl::Milliseconds(1));
  EXPECT_EQ(Open(6), 1);
}

TEST_F(SessionTest, ASumIsNamedByItsWorkersViewAndWeighsItsSamples) {
  BecomeMember();
  AllArrived();
  const Frame push = session_->PushOf(compute_, {1, 2});
  EXPECT_EQ(push.kind, FrameKind::kPush);
  EXPECT_EQ(push.worker, 1u);
  EXPECT_EQ(push.incarnation, 5u);
  EXPECT_EQ(push.view, 7u);
  EXPECT_EQ(push.lineage, 3u);
  EXPECT_EQ(push.node(), (Range{1, 2}));
  EXPECT_EQ(push.samples, 2u);
}

TEST_F(SessionTest, OneThatWasTakenForDeadJoinsAnewAtOnce) {
  BecomeMember();
  AllArrived();
  EXPECT_THAT(Stop(1, /*evicted=*/true),
              ElementsAre("disconnect",
                          "connect for 20s if it reaches host:0 and host:1 again: the reason"));
  EXPECT_THAT(AllArrived(), IsEmpty());  // of what it took part in before
  EXPECT_THAT(Tell(MakeView()).size(), 5u);
}

TEST_F(SessionTest, TellsInWhichTermItHasTakenPartLast) {
  Tell(Session::Started{});
  proto::View view = MakeView();
  for (const uint32_t term : {3, 4}) {
    view.set_term(term);
    Tell(view);
    EXPECT_THAT(Stop(1, /*evicted=*/true).back(), HasSubstr(absl::StrCat(" after term ", term)));
  }
}

TEST_F(SessionTest, OneThatDoesNotFitTheJobEnds) {
  Tell(Session::Started{});
  EXPECT_THAT(Stop(1, /*evicted=*/false, /*refused=*/true),
              ElementsAre("disconnect", "end with 1: the reason"));
  EXPECT_THAT(Tell(MakeView()), IsEmpty());
}

// Its place is still held by what it was before.
TEST_F(SessionTest, OneThatIsRefusedWhenItComesBackTriesAgainAWhileLater) {
  BecomeMember();
  AllArrived();
  CallBroke();
  EXPECT_THAT(Stop(1, /*evicted=*/false, /*refused=*/true), ElementsAre("disconnect"));
  EXPECT_EQ(session_->deadline(), absl::FromUnixSeconds(0) + absl::Milliseconds(200));
  EXPECT_THAT(Tell(Session::DeadlinePassed{}), IsEmpty());  // not yet
  now_ = 1;
  EXPECT_THAT(Tell(Session::DeadlinePassed{}),
              ElementsAre("connect for 20s if it reaches host:0 and host:1 again: the reason"));
  EXPECT_THAT(Stop(2, /*evicted=*/false, /*refused=*/true),
              ElementsAre("disconnect", "end with 2: the reason"));
}

// Also where nobody is there to end it, as for a script that began by itself.
TEST_F(SessionTest, OneWhoseLossIsNotFiniteEndsWithItsJob) {
  for (const bool is_told : {true, false}) {
    Restart();
    BecomeMember();
    AllArrived();
    Tell(Session::Diverged{"the loss is nan"});
    const std::vector<std::string> end =
        is_told ? Stop(1, /*evicted=*/false, /*refused=*/true) : CallBroke();
    ASSERT_FALSE(end.empty());
    EXPECT_THAT(end.back(), HasSubstr("end with 1: the ")) << is_told;
  }
}

TEST_F(SessionTest, GivesUpWhenItHasHadNoParametersForItsPatience) {
  BecomeMember();
  AllArrived();
  now_ = 100;
  EXPECT_THAT(
      CallBroke().back(),
      "connect for 20s if it reaches host:0 and host:1 after silence again: the call broke");
  now_ = 119;
  Tell(MakeView());
  EXPECT_THAT(
      CallBroke().back(),
      "connect for 20s if it reaches host:0 and host:1 after silence again: the call broke");
  now_ = 120;
  EXPECT_THAT(CallBroke().back(), "end with 1: the call broke");
}

TEST_F(SessionTest, ParametersRenewItsPatience) {
  BecomeMember();
  AllArrived();
  now_ = 100;
  CallBroke();
  Tell(MakeView());
  AllArrived();
  now_ = 119;
  EXPECT_THAT(
      CallBroke().back(),
      "connect for 20s if it reaches host:0 and host:1 after silence again: the call broke");
  now_ = 138;
  EXPECT_THAT(CallBroke(),
              ElementsAre("say failure { exit_code: 1 reason: \"the call broke\" }", "disconnect"));
  now_ = 139;
  Tell(Session::DeadlinePassed{});
  EXPECT_THAT(CallBroke().back(), "end with 1: the call broke");
}

// The job pauses, or gathers: whoever has registered is sent a view when there is one.
TEST_F(SessionTest, WaitingForAViewIsNoAttemptToTakePart) {
  BecomeMember();
  AllArrived();
  now_ = 100;
  CallBroke();
  now_ = 115;
  Tell(Session::Registered{});
  now_ = 300;
  EXPECT_THAT(CallBroke(),
              ElementsAre("say failure { exit_code: 1 reason: \"the call broke\" }", "disconnect"));
  now_ = 301;
  EXPECT_THAT(Tell(Session::DeadlinePassed{}),
              ElementsAre("connect for 20s if it reaches host:0 and host:1 after silence again: "
                          "the call broke"));
}

// One with nothing to compute, where there are more workers than micro-batches, has none in sync.
TEST_F(SessionTest, SoDoesATimeAsAMember) {
  BecomeMember();
  now_ = 100;
  CallBroke();
  Tell(MakeView());
  now_ = 200;
  EXPECT_THAT(
      CallBroke().back(),
      "connect for 20s if it reaches host:0 and host:1 after silence again: the call broke");
  Tell(MakeView());
  now_ = 211;  // a stream to nobody breaks within a lease and a second
  CallBroke();
  Tell(MakeView());
  now_ = 220;
  EXPECT_THAT(CallBroke().back(), "end with 1: the call broke");
}

// Nor is a call that breaks at once a wait, however long it took until it stood.
TEST_F(SessionTest, RegisteringInVainDoesNotRenewItsPatience) {
  BecomeMember();
  AllArrived();
  now_ = 100;
  CallBroke();
  for (now_ = 104; now_ < 120; now_ += 4) {
    Tell(Session::Registered{});
    EXPECT_EQ(CallBroke().back(), "disconnect");
    now_ += 1;
    Tell(Session::DeadlinePassed{});
  }
  Tell(Session::Registered{});
  EXPECT_THAT(CallBroke().back(), "end with 1: the call broke");
}

TEST_F(SessionTest, WhyItWasLeftAloneSaysMoreThanThatNobodyAnswers) {
  const Session::NotConnected silence{absl::DeadlineExceededError("nobody answers")};
  BecomeMember();
  CallBroke();
  EXPECT_THAT(Tell(silence), ElementsAre("end with 1: the call broke"));
  Restart();
  BecomeMember();
  CallBroke();
  EXPECT_THAT(Tell(Session::NotConnected{absl::UnavailableError("nobody listens any more")}),
              ElementsAre("end with 1: the call broke"));
  Restart();
  Tell(Session::Started{});
  EXPECT_THAT(Tell(silence), ElementsAre("end with 1: nobody answers"));
}

// With what keep-alive takes, a lease and a second at most: the others wait meanwhile.
TEST_F(SessionTest, AfterABrokenStreamTheCoordinatorHasAMomentToEndTheJob) {
  const Session::StreamBroke broke{absl::UnavailableError("a stream broke")};
  BecomeMember();
  now_ = 10;
  EXPECT_THAT(Tell(broke), IsEmpty());
  const absl::Time deadline = session_->deadline();
  EXPECT_EQ(deadline, absl::FromUnixSeconds(10) + absl::Milliseconds(100));
  EXPECT_THAT(Tell(broke), IsEmpty());
  EXPECT_EQ(session_->deadline(), deadline);
  const Session::Event answered = Session::DeadlinePassed{absl::FromUnixSeconds(6)};
  EXPECT_THAT(session_->Handle(answered, deadline), IsEmpty());
  EXPECT_EQ(session_->deadline(), absl::FromUnixSeconds(10) + absl::Milliseconds(400));
  now_ = 11;
  // No computation begins any more.
  EXPECT_THAT(Tell(Session::SomeArrived{pull_}), IsEmpty());
  EXPECT_THAT(Tell(Session::DeadlinePassed{absl::FromUnixSeconds(11)}),
              ElementsAre("say failure { exit_code: 1 reason: \"a stream broke\" }", "disconnect",
                          "connect for 20s if it reaches host:0 and host:1 again: a stream broke"));
  EXPECT_EQ(session_->deadline(), absl::InfiniteFuture());
  Tell(MakeView());
  Tell(broke);
  EXPECT_THAT(Stop(1), ElementsAre("disconnect", "end with 1: the reason"));
}

class BreakingSessionTest : public SessionTest {
 protected:
  // A second after it has become a member.
  std::vector<std::string> Fail() {
    Tell(Session::StreamBroke{absl::UnavailableError("a stream broke")});
    now_ += 1;
    return Tell(Session::DeadlinePassed{absl::FromUnixSeconds(now_)});
  }
  absl::Duration pause() const { return session_->deadline() - absl::FromUnixSeconds(now_); }
  void JoinAnew() {
    now_ = absl::ToUnixSeconds(
        absl::Ceil(session_->deadline() - absl::UnixEpoch(), absl::Seconds(1)) + absl::UnixEpoch());
    EXPECT_THAT(Tell(Session::DeadlinePassed{}), ElementsAre(kConnect));
    Tell(MakeView());
  }

  const std::string kConnect =
      "connect for 20s if it reaches host:0 and host:1 again: a stream broke";
};

// Each attempt costs the others two views, and the coordinator reaches the shard that it does not.
TEST_F(BreakingSessionTest, OneWhoseStreamsBreakSoonJoinsAnewMoreAndMoreSeldom) {
  BecomeMember();
  now_ = 100;
  EXPECT_EQ(Fail().back(), kConnect);  // at once: the cut may have healed
  Tell(MakeView());
  for (const int64_t milliseconds : {200, 400, 800, 1600, 3200, 5000, 5000}) {
    AllArrived();  // of shards that it reaches: the other may have no blocks
    EXPECT_EQ(Fail().back(), "disconnect");
    EXPECT_EQ(pause(), absl::Milliseconds(milliseconds));
    JoinAnew();
  }
  now_ += 5;
  EXPECT_EQ(Fail().back(), kConnect);  // it had its place
  Tell(MakeView());
  Fail();
  EXPECT_EQ(pause(), absl::Milliseconds(200));
  JoinAnew();
  Tell(Session::StreamBroke{absl::UnavailableError("a stream broke")});
  EXPECT_THAT(Stop(1, /*evicted=*/true).back(), HasSubstr("connect for 20s"));  // it is told why
}

TEST_F(BreakingSessionTest, NoPauseIsLongerThanItsPatience) {
  BecomeMember();
  now_ = 100;
  Fail();  // at 101
  Tell(MakeView());
  now_ += 2;
  for (int i = 0; i < 5; ++i) {
    Fail();
    JoinAnew();
  }
  Fail();
  EXPECT_EQ(now_, 118);
  EXPECT_EQ(session_->deadline(), absl::FromUnixSeconds(121));
  JoinAnew();
  EXPECT_EQ(Fail().back(), "end with 1: a stream broke");
}

// The coordinator is frozen: nobody tells why the stream has broken.
TEST_F(SessionTest, ForACoordinatorThatTheHeartHasNotHeardNothingIsWaitedFor) {
  BecomeMember();
  now_ = 10;
  Tell(Session::StreamBroke{absl::UnavailableError("a stream broke")});
  const Session::Event silent = Session::DeadlinePassed{absl::FromUnixSeconds(5)};
  EXPECT_FALSE(session_->Handle(silent, session_->deadline()).empty());
  EXPECT_FALSE(session_->is_member());
}

// Its streams may break before its call does, which would say so.
TEST_F(SessionTest, BearsNoMoreSilenceOfServersThatTheHeartbeatHasNotHeard) {
  const Session::StreamBroke broke{absl::UnavailableError("a stream broke")};
  const auto longest_mute = [&](absl::Time heard_at) {
    Restart();
    now_ = 0;
    BecomeMember();
    AllArrived();
    now_ = 10;
    Tell(broke);
    now_ = 11;
    Session::Connect connect;
    const Session::Event passed = Session::DeadlinePassed{heard_at};
    for (const Session::Outcome& outcome : session_->Handle(passed, absl::FromUnixSeconds(now_))) {
      if (const auto* it = std::get_if<Session::Connect>(&outcome)) connect = *it;
    }
    EXPECT_THAT(connect.servers, ElementsAre("host:0", "host:1"));
    return connect.longest_mute;
  };
  EXPECT_EQ(longest_mute(absl::FromUnixSeconds(11)), absl::Seconds(4.5));
  EXPECT_EQ(longest_mute(absl::FromUnixSeconds(9)), absl::Seconds(2.5));
  EXPECT_EQ(longest_mute(absl::FromUnixSeconds(5)), absl::ZeroDuration());
  EXPECT_EQ(longest_mute(absl::InfinitePast()), absl::ZeroDuration());
}

TEST_F(SessionTest, LeavesWhenItsStepIsDone) {
  BecomeMember();
  AllArrived();
  EXPECT_THAT(AskedToLeave(), IsEmpty());
  EXPECT_EQ(Deadline(), 30);
  EXPECT_THAT(Tell(Session::Computed{}),
              ElementsAre(HasSubstr("say progress"), HasSubstr("pull 2 at clock 1"), testing::_,
                          testing::_));
  EXPECT_THAT(AllArrived(),
              ElementsAre("say leave { reason: \"interrupted by SIGTERM\" applied: 1 }"));
  EXPECT_THAT(Stop(0), ElementsAre("disconnect", "end with 143: interrupted by SIGTERM"));
}

// It owns the first micro-batch of each step, each of which is tested, and computes step 1.
class TestingSessionTest : public SessionTest {
 protected:
  TestingSessionTest() {
    proto::Job job = MakeJob();
    job.mutable_evaluation()->mutable_every()->set_steps(1);
    session_.emplace(job, 6);
    proto::View view = MakeView();
    view.set_your_rank(0);
    Tell(Session::Started{});
    Tell(view);
    AllArrived();
    Tell(Session::Computed{});
    EXPECT_THAT(AllArrived(), ElementsAre("test 1", "compute 1"));
  }
};

TEST_F(TestingSessionTest, ATestKnowsHowManyContributionsItsParametersHold) {
  Tell(Session::Computed{});
  Tell(Session::Tested{});
  const auto outcomes = session_->Handle(Session::AllArrived{{pull_, false, 0, /*version=*/7}},
                                         absl::FromUnixSeconds(now_));
  const auto* test = std::get_if<Session::Test>(&outcomes.front());
  ASSERT_NE(test, nullptr);
  EXPECT_EQ(test->unit, 2);
  EXPECT_EQ(test->version, 7);
}

// So the others wait neither for it nor for its test.
TEST_F(TestingSessionTest, OneThatIsToLeaveWorksOnUntilItsTestIsDone) {
  now_ = 100;
  EXPECT_THAT(AskedToLeave(), IsEmpty());
  EXPECT_THAT(Tell(Session::Computed{}),
              ElementsAre(HasSubstr("say progress"), "pull 3 at clock 2", HasSubstr("ask shard 0"),
                          HasSubstr("ask shard 1")));
  EXPECT_THAT(AllArrived(), IsEmpty()) << "the test of step 2 would wait for that of step 1";
  now_ = 110;
  EXPECT_THAT(Tell(Session::Tested{}),
              ElementsAre("say leave { reason: \"interrupted by SIGTERM\" applied: 2 }"));
  EXPECT_EQ(Deadline(), 130);
}

TEST_F(TestingSessionTest, OneThatIsToLeaveGivesUpATestThatTakesLong) {
  now_ = 100;
  AskedToLeave();
  EXPECT_EQ(Deadline(), 120);
  Tell(Session::Computed{});
  now_ = 120;
  EXPECT_THAT(Tell(Session::DeadlinePassed{}), IsEmpty()) << "its step is not done";
  EXPECT_THAT(AllArrived(),
              ElementsAre("say leave { reason: \"interrupted by SIGTERM\" applied: 2 }"));
  EXPECT_EQ(Deadline(), 130);
  now_ = 130;
  EXPECT_EQ(Tell(Session::DeadlinePassed{}).back(), "end with 143: interrupted by SIGTERM");
}

TEST_F(TestingSessionTest, TheFirstResultOfAFinalTestDoesNotEndIt) {
  Tell(Session::Tested{});
  proto::CoordinatorMessage message;
  message.mutable_evaluation_request()->set_step(2);
  message.mutable_evaluation_request()->set_unit(2);
  Tell(Session::Computed{});
  Tell(FromCoordinator(message));
  EXPECT_THAT(AllArrived(), ElementsAre("test 2"));
  EXPECT_THAT(AskedToLeave(), IsEmpty());
  EXPECT_THAT(Tell(Session::Tested{/*is_final=*/false}), IsEmpty());
  EXPECT_THAT(Tell(Session::Tested{/*is_final=*/true}), ElementsAre(HasSubstr("say leave")));
}

// In a pause nobody finishes it.
TEST_F(SessionTest, LeavesWhereItsStepDoesNotComeToItsEnd) {
  BecomeMember();
  AllArrived();
  AskedToLeave();
  Tell(Session::Computed{});
  now_ = 30;
  EXPECT_THAT(Tell(Session::DeadlinePassed{}),
              ElementsAre("say leave { reason: \"interrupted by SIGTERM\" applied: 0 }"));
  EXPECT_THAT(Stop(0), ElementsAre("disconnect", "end with 143: interrupted by SIGTERM"));
}

TEST_F(SessionTest, LeavesWithoutAnAnswerInTheEnd) {
  BecomeMember();
  EXPECT_THAT(AskedToLeave(), ElementsAre(HasSubstr("leave")));
  now_ = 30;
  EXPECT_THAT(Tell(Session::DeadlinePassed{}),
              ElementsAre("say failure { exit_code: 143 reason: \"interrupted by SIGTERM\" }",
                          "disconnect", "end with 143: interrupted by SIGTERM"));
}

TEST_F(SessionTest, LeavesAtOnceWhileItIsNoMember) {
  Tell(Session::Started{});
  EXPECT_THAT(AskedToLeave().back(), "end with 143: interrupted by SIGTERM");
  Restart();
  Tell(Session::Started{});
  CallBroke();  // it waits to join anew
  EXPECT_THAT(AskedToLeave(), ElementsAre("end with 143: interrupted by SIGTERM"));
}

TEST_F(SessionTest, LeavesItToTheCoordinatorToEndAJobThatDiverges) {
  BecomeMember();
  AllArrived();
  EXPECT_THAT(
      Tell(Session::Diverged{"the loss is inf"}),
      ElementsAre("say failure { exit_code: 1 reason: \"the loss is inf\" non_finite: true }"));
  EXPECT_EQ(Deadline(), 30);
  now_ = 30;
  EXPECT_THAT(Tell(Session::DeadlinePassed{}).back(), "end with 1: the loss is inf");
}

TEST_F(SessionTest, WhatWasBegunEarlyGoesOnWhenAllHasArrivedOrIsInterrupted) {
  BecomeMember();
  EXPECT_THAT(Tell(Session::SomeArrived{pull_}), ElementsAre("early compute 0"));
  EXPECT_THAT(Tell(Session::Interrupted{}), IsEmpty());
  EXPECT_THAT(Tell(Session::SomeArrived{pull_}), ElementsAre("early compute 0"));
  EXPECT_THAT(AllArrived(), IsEmpty());
  EXPECT_THAT(Tell(Session::Computed{}).front(), HasSubstr("say progress { unit: 0"));
  EXPECT_THAT(Tell(Session::SomeArrived{pull_}), ElementsAre("early compute 1"));
  EXPECT_THAT(Tell(Session::Interrupted{}), IsEmpty());
  EXPECT_THAT(AllArrived(/*passed=*/true).front(), "pull 3 at clock 2");
}

TEST_F(SessionTest, EndsIfPeersAreNotHonest) {
  Tell(Session::Started{});
  proto::View view = MakeView();
  view.set_your_rank(2);
  EXPECT_THAT(Tell(view).back(), HasSubstr("end with 1: the coordinator sent a view without"));
  Restart();
  Tell(Session::Started{});
  view = MakeView();
  view.mutable_shards(0)->set_end_block(0);
  EXPECT_THAT(Tell(view).back(), HasSubstr("end with 2: view 7 gives block 0 to no shard"));
  Restart();
  Tell(Session::Started{});
  view = MakeView();
  view.mutable_layout()->mutable_parameters(0)->set_shape(0, 5);
  EXPECT_THAT(Tell(view).back(), HasSubstr("end with 2: the coordinator sent a view of another"));
  Restart();
  BecomeMember();
  EXPECT_THAT(Tell(Session::Failed{absl::InternalError("shard 0 lies")}),
              ElementsAre("say failure { exit_code: 1 reason: \"shard 0 lies\" }", "disconnect",
                          "end with 1: shard 0 lies"));
}

TEST_F(SessionTest, OneWhoseComputationFailsEndsAtOnceWithItsCode) {
  BecomeMember();
  AllArrived();
  EXPECT_THAT(Tell(Session::Failed{absl::InvalidArgumentError("a weight of -1")}),
              ElementsAre("say failure { exit_code: 2 reason: \"a weight of -1\" }", "disconnect",
                          "end with 2: a weight of -1"));
}

TEST_F(SessionTest, GivesTheCoordinatorValuesToBeginWithIfThereAreSuch) {
  Tell(Session::Started{});
  Tell(Session::Registered{});
  const auto ask = [&](int64_t begin, int64_t end) {
    proto::CoordinatorMessage message;
    message.mutable_values_request()->set_begin(begin);
    message.mutable_values_request()->set_end(end);
    return Tell(FromCoordinator(message));
  };
  EXPECT_THAT(ask(2, 6), ElementsAre("give 2 to 6"));
  EXPECT_THAT(ask(2, 7), IsEmpty()) << "there are six";
  EXPECT_THAT(ask(-1, 2), IsEmpty());
  EXPECT_THAT(ask(2, 2), IsEmpty());
}

}  // namespace
}  // namespace rubato
