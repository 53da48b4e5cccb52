// Workers that die, leave, freeze, are cut off, hang or join, in each mode: the others go on, shard
// 0 says who and why, and the final parameters hold every sample once; in sync, to the bits of the
// job that nobody disturbed.
#include "tests/membership.h"

#include <signal.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int64_t kSome = 40;  // steps that show that training goes on

class MembershipTest : public MembershipJob, public testing::WithParamInterface<std::string> {
 protected:
  void BeginJob(int workers, const Arguments& more = {}) {
    Begin({absl::StrCat("consistency=", GetParam())}, workers, more);
  }

  void StopAndJudge() {
    ASSERT_TRUE(AwaitSteps(kSome));
    Stop();
    GetParam() == "sync" ? ExpectBitsOfTheUndisturbed() : ExpectEveryContributionOnce();
  }
};

TEST_P(MembershipTest, OthersGoOnWithoutOneThatIsKilled) {
  BeginJob(3);
  const pid_t pid = worker(1).pid();
  worker(1).Signal(SIGKILL);
  EXPECT_TRUE(AwaitSaid(absl::StrCat("pid ", pid, ") is gone: its connection broke at step ")));
  StopAndJudge();
  EXPECT_EQ(Summary("run")["workers_lost"], 1);
  EXPECT_EQ(Summary("run")["workers_left"], 0);
}

TEST_P(MembershipTest, OneThatIsToldToEndLeaves) {
  BeginJob(3);
  const pid_t pid = worker(1).pid();
  worker(1).Signal(SIGTERM);
  EXPECT_EQ(worker(1).Wait().code, 143);
  EXPECT_THAT(worker(1).err(), EndsWith("\nleft: interrupted by SIGTERM\n"));
  EXPECT_TRUE(AwaitSaid(absl::StrCat("pid ", pid, ") leaves: interrupted by SIGTERM")));
  StopAndJudge();
  EXPECT_EQ(Summary("run")["workers_lost"], 0);
  EXPECT_EQ(Summary("run")["workers_left"], 1);
}

TEST_P(MembershipTest, OneThatFreezesIsToldSoAndJoinsAnew) {
  BeginJob(3);
  const pid_t pid = worker(1).pid();
  worker(1).Signal(SIGSTOP);
  EXPECT_TRUE(AwaitSaid(
      absl::StrCat("pid ", pid, ") was not heard of for 875ms (cluster.lease: 1s) at step ")));
  EXPECT_TRUE(AwaitSteps(kSome));
  worker(1).Signal(SIGCONT);
  EXPECT_TRUE(AwaitText(worker(1).err_path(), "joins anew", worker(1)));
  EXPECT_TRUE(AwaitMembers(3));
  EXPECT_THAT(worker(1).err(), HasSubstr("taken for dead: it was not heard of for 875ms"));
  StopAndJudge();
  EXPECT_EQ(worker(1).Wait().code, 0);
}

TEST_P(MembershipTest, AFurtherOneJoins) {
  BeginJob(2);
  const Process& joiner = AddWorker();
  EXPECT_TRUE(AwaitSaid(absl::StrCat("pid ", joiner.pid(), ") joins")));
  EXPECT_TRUE(AwaitMembers(3));
  StopAndJudge();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(worker(i).Wait().code, 0);
}

TEST_P(MembershipTest, OneThatIsCutOffIsTakenForDeadAndComesBack) {
  BeginJob(2);
  Process& cut = AddCuttableWorker();
  EXPECT_TRUE(AwaitMembers(3));
  EXPECT_TRUE(AwaitSteps(kSome));
  Cut();
  EXPECT_TRUE(AwaitSaid(absl::StrCat("pid ", cut.pid(), ") was not heard of for 875ms")));
  EXPECT_TRUE(AwaitSteps(10));  // not for so long that it gives up
  Heal();
  EXPECT_TRUE(AwaitText(cut.err_path(), "joins anew", cut));
  EXPECT_TRUE(AwaitMembers(3));
  StopAndJudge();
  EXPECT_EQ(cut.Wait().code, 0);
}

TEST_P(MembershipTest, OneThatHangsWhileItsHeartGoesOnIsNamedAsSuch) {
  BeginJob(2, {"cluster.stall_timeout=2s"});
  const Process& hung = AddWorker({"RUBATO_TEST_HANG_AT_UNIT=1"});
  EXPECT_TRUE(AwaitSaid(absl::StrCat(
      "pid ", hung.pid(),
      ") is alive but has been at one thing for 2s (cluster.stall_timeout) at step ")));
  StopAndJudge();
}

// It has heard nobody meanwhile, which is nobody's fault.
TEST_P(MembershipTest, ACoordinatorThatWasFrozenForLessThanTheLeaseEvictsNobody) {
  BeginJob(2, {"cluster.lease=5s"});
  shard_0().Signal(SIGSTOP);
  absl::SleepFor(absl::Seconds(3));
  shard_0().Signal(SIGCONT);
  ASSERT_TRUE(AwaitSteps(kSome));
  EXPECT_EQ(View()["view"], 1) << View();
  StopAndJudge();
  EXPECT_THAT(shard_0().err(), Not(HasSubstr("warning: worker")));
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(worker(i).Wait().code, 0);
    EXPECT_THAT(worker(i).err(), Not(HasSubstr("joins anew")));
  }
}

TEST_P(MembershipTest, TooFewWorkersPauseTheJobUntilOthersCome) {
  BeginJob(2, {"cluster.workers.min=2"});
  worker(0).Signal(SIGKILL);
  EXPECT_TRUE(AwaitSaid("1 of at least 2 workers (cluster.workers.min) are here"));
  const nlohmann::json status = Status();
  EXPECT_EQ(status["state"], "paused");
  EXPECT_THAT(status["waits"].dump(), HasSubstr("training waits for 1 more worker "));
  AddWorker();
  EXPECT_TRUE(AwaitSaid("goes on at step "));
  StopAndJudge();
}

TEST_P(MembershipTest, AllMayDie) {
  BeginJob(2);
  for (int i = 0; i < 2; ++i) worker(i).Signal(SIGKILL);
  EXPECT_TRUE(AwaitSaid("paused at step "));
  AddWorker();
  StopAndJudge();
}

INSTANTIATE_TEST_SUITE_P(, MembershipTest,
                         testing::Values("sync", "async", "{mode: bounded, staleness: 2}"),
                         [](const auto& info) {
                           return info.param[0] == '{' ? std::string("bounded") : info.param;
                         });

}  // namespace
}  // namespace rubato
