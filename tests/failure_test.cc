// Processes that die, and processes that are told to end: what becomes of the run, and what it
// says. What becomes of a job without some of its workers: see membership_test.cc.
#include <signal.h>

#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/cluster.h"

namespace rubato {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// `rubato train` of two shards and two workers, in the midst of a job that has no end.
class LauncherFailureTest : public ClusterTest {
 protected:
  explicit LauncherFailureTest(int max_restarts = 3) {
    fs::create_directory(Path("run"));
    launcher_ = &StartTrain(
        "run", {absl::StrCat("cluster={servers: 2, workers: 2, address: '127.0.0.1:0', ",
                             "max_restarts: ", max_restarts, "}"),
                "metrics.every={steps: 20}", kForever});
    AwaitTraining("run", *launcher_);
    children_ = ChildrenOf(launcher_->pid());
    EXPECT_EQ(children_.size(), 4u);
  }

  const ProcessHandle& Child(absl::string_view command) const {
    for (const RunningChild& child : children_) {
      if (absl::StrContains(child.command, command)) return child.process;
    }
    ADD_FAILURE() << "no process " << command;
    return launcher_->handle();
  }

  void ExpectAllChildrenEnd() const {
    for (const RunningChild& child : children_) {
      EXPECT_TRUE(child.process.AwaitEnd()) << "still runs: " << child.command;
    }
  }

  Process* launcher_;
  std::vector<RunningChild> children_;
};

TEST_F(LauncherFailureTest, AWorkerThatIsKilledIsStartedAgain) {
  Child("--rank 1").Signal(SIGKILL);
  EXPECT_TRUE(AwaitText(Path("run/views.jsonl"), "{\"rank\":1,\"incarnation\":2}", *launcher_));
  EXPECT_THAT(launcher_->err(), HasSubstr("\nworker 1 ended: killed by signal 9 (SIGKILL); "
                                          "started again (1 of 3)\n"));
  launcher_->Signal(SIGINT);
  EXPECT_EQ(launcher_->Wait().code, 130);
  ExpectAllChildrenEnd();
}

// Where no process is started again; what becomes of servers that are, see recovery_test.cc.
class LastingFailureTest : public LauncherFailureTest {
 protected:
  LastingFailureTest() : LauncherFailureTest(/*max_restarts=*/0) {}
};

TEST_F(LastingFailureTest, NamesAShardThatIsKilled) {
  Child("--shard 1").Signal(SIGKILL);
  const Process::Result result = launcher_->Wait();
  ExpectAllChildrenEnd();
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.err, EndsWith("\nerror: server 1: killed by signal 9 (SIGKILL)\n"
                                   "log: run/logs/server-1.log\n"));
}

TEST_F(LastingFailureTest, AfterACheckpointItTellsHowToGoOn) {
  EXPECT_EQ(Start({"tools/rubato", "checkpoint", "run"}).Wait().code, 0);
  Child("--shard 1").Signal(SIGKILL);
  const Process::Result result = launcher_->Wait();
  ExpectAllChildrenEnd();
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.err, EndsWith("/tools/rubato train --resume run\n"));
}

TEST_F(LastingFailureTest, NamesShard0ThatIsKilled) {
  Child("--shard 0").Signal(SIGKILL);
  const Process::Result result = launcher_->Wait();
  ExpectAllChildrenEnd();
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.err, EndsWith("\nerror: server 0: killed by signal 9 (SIGKILL)\n"
                                   "log: run/logs/server-0.log\n"));
}

TEST_F(LauncherFailureTest, SigintEndsAllAndLeavesTheFiles) {
  launcher_->Signal(SIGINT);
  const Process::Result result = launcher_->Wait();
  ExpectAllChildrenEnd();
  EXPECT_EQ(result.code, 130);
  EXPECT_THAT(result.err, AllOf(HasSubstr("\ninterrupted: ending all processes\n"),
                                HasSubstr("\nfiles: run\ngo on with: ")));
  EXPECT_THAT(ReadText(Path("run/job.yaml")), HasSubstr("steps: 1000000000"));
  EXPECT_FALSE(Metrics("run", "train").empty());
  EXPECT_TRUE(fs::exists(Path("run/logs/worker-1.log")));
  EXPECT_FALSE(fs::exists(Path("run/parameters.safetensors")));
}

TEST_F(LauncherFailureTest, SigtermEndsAll) {
  launcher_->Signal(SIGTERM);
  const Process::Result result = launcher_->Wait();
  ExpectAllChildrenEnd();
  EXPECT_EQ(result.code, 143);
  EXPECT_FALSE(Metrics("run", "train").empty());
}

TEST_F(LauncherFailureTest, AProcessThatDoesNotAnswerIsEndedToo) {
  Child("--rank 0").Signal(SIGSTOP);
  launcher_->Signal(SIGINT);
  EXPECT_EQ(launcher_->Wait().code, 130);
  ExpectAllChildrenEnd();
}

TEST_F(LauncherFailureTest, NothingIsLeftWhenItIsKilled) {
  launcher_->Signal(SIGKILL);
  EXPECT_EQ(launcher_->Wait().code, -SIGKILL);
  ExpectAllChildrenEnd();
}

TEST_F(ClusterTest, ARunThatWouldPauseForEverEnds) {
  fs::create_directory(Path("run"));
  Process& train = StartTrain(
      "run", {"cluster={servers: 2, workers: {start: 2, min: 2}, address: '127.0.0.1:0', "
              "max_restarts: 0}",
              kForever});
  ASSERT_TRUE(AwaitTraining("run", train));
  for (const RunningChild& child : ChildrenOf(train.pid())) {
    if (absl::StrContains(child.command, "--rank 0")) child.process.Signal(SIGKILL);
  }
  const Process::Result result = train.Wait();
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("worker 0 ended: killed by signal 9 (SIGKILL); not started "
                              "again, cluster.max_restarts is 0; log: "),
                    HasSubstr("\nerror: too few workers are left to go on: 1 of at least "
                              "2 (cluster.workers.min), and none may be started again")));
}

// Its own workers would notice, and end; the one that has joined by hand is not its child.
TEST_F(ClusterTest, ARunWithoutWorkersOfItsOwnEndsAShard0ThatIsFrozen) {
  fs::create_directory(Path("run"));
  Process& train = StartTrain(
      "run", {"cluster={workers: {start: 1, max: 2}, address: '127.0.0.1:0', max_restarts: 0, "
              "lease: 1s}",
              kForever});
  ASSERT_TRUE(AwaitTraining("run", train));
  const std::string address = ReadText(Path("run/address"));
  Process& guest = Start({"/usr/bin/env", "-u", "RUBATO_KEY", "RUBATO_KEY_FILE=run/worker-key",
                          fs::absolute("worker/rubato-worker").string(), "--config", "run/job.yaml",
                          "--set", "cluster.address=" + address.substr(0, address.find('\n'))});
  ASSERT_TRUE(AwaitText(guest.err_path(), "takes part", guest));
  const std::vector<RunningChild> children = ChildrenOf(train.pid());
  for (const RunningChild& child : children) {
    if (absl::StrContains(child.command, "--rank 0")) child.process.Signal(SIGKILL);
  }
  ASSERT_TRUE(AwaitText(train.err_path(), "worker 0 ended: killed by signal 9", train));
  for (const RunningChild& child : children) {
    if (absl::StrContains(child.command, "--shard 0")) child.process.Signal(SIGSTOP);
  }
  const Process::Result result = train.Wait();
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.err, HasSubstr("server 0 stands still for 875ms (cluster.lease: 1s): killed"));
  EXPECT_NE(guest.Wait().code, 0);
}

// The same processes started by hand, where nobody would start a server again: each must find its
// end by itself.
class ByHandFailureTest : public ClusterTest {
 protected:
  ByHandFailureTest() {
    fs::create_directory(Path("run"));
    std::vector<std::string> set = {"cluster.servers=2", "cluster.workers=2",
                                    "cluster.max_restarts=0", "metrics.every={steps: 20}",
                                    kForever};
    shard_0_ = &StartServer(0, set, {"--run-dir", "run", "--listen", "127.0.0.1:0"});
    address_ = AwaitAddress("run", *shard_0_);
    set.push_back("cluster.address=" + address_);
    shard_1_ = &StartServer(1, set);
    worker_0_ = &StartWorker(set, {"--rank", "0"});
    worker_1_ = &StartWorker(set, {"--rank", "1"});
    AwaitTraining("run", *shard_0_);
  }

  // That each ends with 1 and a last line that contains `why`: as its own error, or as that of
  // another.
  static void ExpectFailure(const std::vector<Process*>& processes, const std::string& why) {
    for (Process* process : processes) {
      const Process::Result result = process->Wait();
      EXPECT_EQ(result.code, 1);
      const std::string last = result.err.substr(result.err.rfind("\n", result.err.size() - 2) + 1);
      EXPECT_THAT(last,
                  AllOf(AnyOf(StartsWith("error: "), StartsWith("stopped: ")), HasSubstr(why)));
    }
  }

  std::string address_;
  Process *shard_0_, *shard_1_, *worker_0_, *worker_1_;
};

TEST_F(ByHandFailureTest, AllNameAShardThatIsKilled) {
  shard_1_->Signal(SIGKILL);
  ExpectFailure({shard_0_, worker_0_, worker_1_}, "shard 1 ");
  EXPECT_THAT(shard_0_->err(), HasSubstr(absl::StrCat("pid ", shard_1_->pid(), ") is gone")));
}

TEST_F(ByHandFailureTest, AllNameShard0ThatIsKilled) {
  shard_0_->Signal(SIGKILL);
  ExpectFailure({shard_1_, worker_0_, worker_1_}, "shard 0");
  for (Process* process : {shard_1_, worker_0_, worker_1_}) {
    EXPECT_THAT(process->err(), HasSubstr(address_));
  }
}

TEST_F(ByHandFailureTest, AllNameAShardThatIsFrozen) {
  shard_1_->Signal(SIGSTOP);
  ExpectFailure({shard_0_, worker_0_, worker_1_}, "shard 1 ");
}

TEST_F(ByHandFailureTest, AllNameShard0ThatIsFrozen) {
  shard_0_->Signal(SIGSTOP);
  ExpectFailure({shard_1_, worker_0_, worker_1_}, "shard 0");
}

// One thread of a process stands still while the others go on.
TEST_F(ByHandFailureTest, AllNameAShardThatIsStuck) {
  const StoppedThread engine(shard_1_->pid(), "engine");
  ExpectFailure({shard_0_, worker_0_, worker_1_}, "shard 1 ");
  EXPECT_THAT(shard_0_->err(), HasSubstr("failed: this server is stuck: its engine has done "
                                         "nothing for most of cluster.lease (5s)"));
  ExpectFailure({shard_1_}, "this server is stuck");
}

TEST_F(ByHandFailureTest, AllNameAShardWhoseThreadOfSharedMemoryIsStuck) {
  ASSERT_TRUE(AwaitText(worker_0_->err_path(), "shares memory with a server shard=1", *worker_0_));
  const StoppedThread link(shard_1_->pid(), "link");
  ExpectFailure({shard_0_, worker_0_, worker_1_}, "shard 1 ");
  ExpectFailure({shard_1_}, "this server is stuck");
}

TEST_F(ByHandFailureTest, AllNameShard0ThatIsStuck) {
  const StoppedThread engine(shard_0_->pid(), "engine");
  ExpectFailure({shard_1_, worker_0_, worker_1_}, "shard 0");
  ExpectFailure({shard_0_}, "this server is stuck");
}

// It has opened its first view, and the only worker, which is frozen, never sends it anything.
TEST_F(ClusterTest, AShardThatIsStuckBeforeItHasGotAnythingSaysSo) {
  fs::create_directory(Path("run"));
  std::vector<std::string> set = {"cluster={servers: 2, workers: {start: 1}, max_restarts: 0}",
                                  kForever};
  Process& shard_0 = StartServer(0, set, {"--run-dir", "run", "--listen", "127.0.0.1:0"});
  set.push_back("cluster.address=" + AwaitAddress("run", shard_0));
  Process& worker = StartWorker(set);
  ASSERT_TRUE(AwaitText(shard_0.err_path(), "waiting for shard 1\n", shard_0));
  worker.Signal(SIGSTOP);
  Process& shard_1 = StartServer(1, set);
  ASSERT_TRUE(AwaitText(shard_0.err_path(), "training begins", shard_0));
  const StoppedThread engine(shard_1.pid(), "engine");
  EXPECT_EQ(shard_1.Wait().code, 1);
  EXPECT_THAT(shard_1.err(), HasSubstr("this server is stuck"));
  EXPECT_EQ(shard_0.Wait().code, 1);
  EXPECT_THAT(shard_0.err(), HasSubstr("shard 1 "));
}

// Without it no lease is judged.
TEST_F(ByHandFailureTest, AllNameShard0WhoseCoordinatorIsStuck) {
  const StoppedThread ticks(shard_0_->pid(), "rubato-server");
  ExpectFailure({shard_1_, worker_0_, worker_1_}, "shard 0");
  ExpectFailure({shard_0_}, "this server is stuck");
}

TEST_F(ByHandFailureTest, AnInterruptedShardEndsTheJob) {
  shard_1_->Signal(SIGINT);
  EXPECT_EQ(shard_1_->Wait().code, 130);
  ExpectFailure({shard_0_, worker_0_, worker_1_}, "shard 1 ");
}

TEST_F(ByHandFailureTest, Shard0ThatIsInterruptedEndsTheJob) {
  shard_0_->Signal(SIGINT);
  EXPECT_EQ(shard_0_->Wait().code, 130);
  ExpectFailure({shard_1_, worker_0_, worker_1_}, "shard 0 ");
  EXPECT_THAT(worker_0_->err(), HasSubstr("interrupted by SIGINT"));
}

using WaitingTest = ClusterTest;

TEST_F(WaitingTest, ProcessesThatWaitForOthersHeedSignals) {
  const FreePort port;
  const std::vector<std::string> set = {"cluster.servers=2", "cluster.start_timeout=1h",
                                        "cluster.address=" + port.address()};
  Process& shard_1 = StartServer(1, set);
  AwaitText(shard_1.err_path(), "listening", shard_1);
  shard_1.Signal(SIGTERM);
  EXPECT_EQ(shard_1.Wait().code, 143);

  Process& shard_0 = StartServer(0, set);
  AwaitText(shard_0.err_path(), "listening", shard_0);
  shard_0.Signal(SIGINT);
  EXPECT_EQ(shard_0.Wait().code, 130);
}

}  // namespace
}  // namespace rubato
