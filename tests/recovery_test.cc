// Servers that die and come back: the job goes back to its last checkpoint and ends as one that
// nobody disturbed. What becomes of a job whose servers nobody starts again: see failure_test.cc.
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/cluster.h"
#include "tests/proxy.h"

namespace rubato {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

// Two shards, two workers, a checkpoint every 20 of 600 steps, each of which takes 6 ms and more
// where the job is disturbed: on a machine with other work, whoever does that comes late. Likewise
// the lease.
class RecoveryTest : public ClusterTest {
 protected:
  static constexpr int64_t kSteps = 600;

  RecoveryTest() { ComputeSlowly(); }
  ~RecoveryTest() override { unsetenv("RUBATO_TEST_COMPUTE_MS"); }

  static void ComputeSlowly() { setenv("RUBATO_TEST_COMPUTE_MS", "6", 1); }

  static std::vector<std::string> Settings(const std::string& mode) {
    return {"cluster={servers: 2, workers: 2, address: '127.0.0.1:0', lease: 2s}",
            "checkpoint={every: {steps: 20}, keep_last: 100}", "metrics.every={steps: 20}",
            "consistency=" + mode,
            absl::StrCat("train={batch_size: 64, micro_batches: 4, until: {steps: ", kSteps, "}}")};
  }

  // The digest of the job that nobody disturbs.
  std::string Undisturbed(const std::string& mode) {
    unsetenv("RUBATO_TEST_COMPUTE_MS");
    EXPECT_EQ(Train("undisturbed", Settings(mode)).code, 0);
    ComputeSlowly();
    return Summary("undisturbed")["digest"];
  }

  // Until the term has written so many checkpoints of its own, as shard 0 logs.
  static bool AwaitCheckpoints(const std::string& log, int term, const Process& process,
                               int count = 2) {
    return AwaitText(
        log,
        [term, count](const std::string& text) {
          size_t at = 0;
          for (int terms = 1; terms < term && at != std::string::npos; ++terms) {
            at = text.find(" training goes on at ", at + 1);
          }
          for (int checkpoints = 0; checkpoints < count && at != std::string::npos; ++checkpoints) {
            at = text.find(" checkpoint run/checkpoints/step-", at + 1);
          }
          return at != std::string::npos;
        },
        process);
  }

  // That all samples count once, whatever was trained in vain.
  void ExpectAccount(const std::string& run, int servers_lost) {
    const nlohmann::json summary = Summary(run), undisturbed = Summary("undisturbed");
    EXPECT_EQ(summary["servers_lost"], servers_lost);
    EXPECT_EQ(summary["samples"], undisturbed["samples"]);
    for (const nlohmann::json& block : summary["blocks"]) {
      EXPECT_EQ(block["samples"], undisturbed["samples"]);
    }
  }
};

// `rubato train`, whose processes are killed or frozen.
class TrainRecoveryTest : public RecoveryTest {
 protected:
  void StartRun(const std::string& mode) {
    fs::create_directory(Path("run"));
    launcher_ = &StartTrain("run", Settings(mode));
  }

  // Of the process whose command line has this, once the term has checkpoints. A later term is told
  // to go back as soon as it has one: the steps that are left may be too few for a second, where
  // the disk is slow.
  void SignalIn(int term, absl::string_view command, int signal) {
    ASSERT_TRUE(AwaitTraining("run", *launcher_));  // there are logs
    ASSERT_TRUE(
        AwaitCheckpoints(Path("run/logs/server-0.log"), term, *launcher_, term == 1 ? 2 : 1));
    for (const RunningChild& child : ChildrenOf(launcher_->pid())) {
      if (absl::StrContains(child.command, command)) child.process.Signal(signal);
    }
  }

  Process* launcher_ = nullptr;
};

TEST_F(TrainRecoveryTest, EachProcessMayBeKilledAndTheBitsAreThoseOfTheUndisturbedRun) {
  const std::string digest = Undisturbed("sync");
  StartRun("sync");
  SignalIn(1, "--shard 1", SIGKILL);
  SignalIn(2, "--shard 0", SIGKILL);
  SignalIn(3, "--rank 0", SIGKILL);
  ASSERT_TRUE(AwaitText(Path("run/views.jsonl"), "\"incarnation\":2}", *launcher_));
  SignalIn(3, "--shard 1", SIGKILL);
  const Process::Result result = launcher_->Wait();
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(Summary("run")["digest"], digest);
  EXPECT_EQ(Summary("run")["workers_lost"], 1);
  ExpectAccount("run", 3);
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("\nserver 1 ended: killed by signal 9 (SIGKILL); started again (1 of "
                              "3)\n"),
                    HasSubstr("\nserver 0 ended: killed by signal 9 (SIGKILL); started again (1 of "
                              "3)\n"),
                    HasSubstr("; the job goes back to run/checkpoints/step-"),
                    HasSubstr(" because shard 0, which coordinates the job, was lost; ")));
  EXPECT_THAT(ReadText(Path("run/views.jsonl")), HasSubstr("\"term\":4,\"view\":1,"));
}

TEST_F(TrainRecoveryTest, OfCheckpointsThoseStayThatTheJobKeepsWhicheverTermHasWrittenThem) {
  fs::create_directory(Path("run"));
  std::vector<std::string> settings = Settings("sync");
  settings.push_back("checkpoint.keep_last=1");
  launcher_ = &StartTrain("run", settings);
  SignalIn(1, "--shard 1", SIGKILL);
  EXPECT_EQ(launcher_->Wait().code, 0) << launcher_->err();
  EXPECT_EQ(Summary("run")["servers_lost"], 1);
  std::vector<std::string> left;
  for (const auto& entry : fs::directory_iterator(Path("run/checkpoints"))) {
    left.push_back(entry.path().filename().string());
  }
  EXPECT_THAT(left, ElementsAre("step-00000600"));
}

TEST_F(TrainRecoveryTest, OnArrivalEachSampleCountsOnce) {
  for (const std::string mode : {"async", "{mode: bounded, staleness: 2}"}) {
    fs::remove_all(Path("run"));
    fs::remove_all(Path("undisturbed"));
    Undisturbed(mode);
    StartRun(mode);
    SignalIn(1, "--shard 1", SIGKILL);
    SignalIn(2, "--shard 0", SIGKILL);
    const Process::Result result = launcher_->Wait();
    EXPECT_EQ(result.code, 0) << result.err;
    ExpectAccount("run", 2);
    EXPECT_GT(Summary("run")["test_accuracy"], 0.8);
  }
}

TEST_F(TrainRecoveryTest, AServerThatIsFrozenIsKilledAndStartedAgain) {
  const std::string digest = Undisturbed("sync");
  StartRun("sync");
  SignalIn(1, "--shard 1", SIGSTOP);
  SignalIn(2, "--shard 0", SIGSTOP);
  const Process::Result result = launcher_->Wait();
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(Summary("run")["digest"], digest);
  ExpectAccount("run", 2);
  EXPECT_THAT(result.err, AllOf(HasSubstr("\nserver 1 has not come back: killed\n"),
                                HasSubstr("\nserver 0 stands still for 1.75s (cluster.lease: 2s): "
                                          "killed\n")));
}

TEST_F(TrainRecoveryTest, WithoutACheckpointItBeginsAnew) {
  const std::string digest = Undisturbed("sync");
  fs::create_directory(Path("run"));
  std::vector<std::string> set = Settings("sync");
  set[1] = "checkpoint={}";
  launcher_ = &StartTrain("run", set);
  ASSERT_TRUE(AwaitTraining("run", *launcher_));
  for (const RunningChild& child : ChildrenOf(launcher_->pid())) {
    if (absl::StrContains(child.command, "--shard 1")) child.process.Signal(SIGKILL);
  }
  const Process::Result result = launcher_->Wait();
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("went back to step 0 (the beginning) because shard 1 "));
  EXPECT_EQ(Summary("run")["digest"], digest);
}

TEST_F(TrainRecoveryTest, AServerThatKeepsDyingEndsTheRunByName) {
  fs::create_directory(Path("run"));
  std::vector<std::string> set = Settings("sync");
  set[0] = "cluster={servers: 2, workers: 2, address: '127.0.0.1:0', max_restarts: 1}";
  set[4] = kForever;
  launcher_ = &StartTrain("run", set);
  SignalIn(1, "--shard 1", SIGKILL);
  SignalIn(2, "--shard 1", SIGKILL);
  const Process::Result result = launcher_->Wait();
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.err, AllOf(HasSubstr("started again (1 of 1)\n"),
                                HasSubstr("\nerror: server 1: killed by signal 9 (SIGKILL)\n"),
                                EndsWith("/tools/rubato train --resume run\n")));
}

// The same processes started by hand, as a person or a cluster does.
class ByHandRecoveryTest : public RecoveryTest {
 protected:
  void StartJob(const std::string& mode) {
    fs::create_directory(Path("run"));
    set_ = Settings(mode);
    set_.push_back("train.until={steps: 1000000}");
    shard_0_ = &StartServer(0, set_, {"--run-dir", "run", "--listen", "127.0.0.1:0"});
    set_.push_back("cluster.address=" + AwaitAddress("run", *shard_0_));
    shard_1_ = &StartServer(1, set_);
    workers_ = {&StartWorker(set_), &StartWorker(set_)};
    ASSERT_TRUE(AwaitCheckpoints(shard_0_->err_path(), 1, *shard_0_));
  }

  Process& StartShard0(const std::vector<std::string>& more = {}) {
    std::vector<std::string> set = set_;
    set.insert(set.end(), more.begin(), more.end());
    return StartServer(0, set, {"--run-dir", "run"});
  }

  std::string Rubato(const std::vector<std::string>& arguments) {
    std::vector<std::string> all = {"tools/rubato"};
    all.insert(all.end(), arguments.begin(), arguments.end());
    const Process::Result result = Start(all).Wait();
    EXPECT_EQ(result.code, 0) << result.err;
    return result.out;
  }

  std::vector<std::string> set_;
  Process *shard_0_ = nullptr, *shard_1_ = nullptr;
  std::vector<Process*> workers_;
};

TEST_F(ByHandRecoveryTest, StatusSaysForWhomTheOthersWaitAndAStopIsNotForgotten) {
  StartJob("sync");
  shard_1_->Signal(SIGKILL);
  ASSERT_TRUE(AwaitText(shard_0_->err_path(), "; the job goes back to ", *shard_0_));
  ASSERT_TRUE(AwaitText(shard_0_->err_path(), " is here; waiting for shard 1\n", *shard_0_));
  EXPECT_THAT(Rubato({"status", "run"}), HasSubstr("going on waits for shard 1"));
  // Asked while nobody can train, and outlives the coordinator too.
  EXPECT_THAT(Rubato({"stop", "run"}), HasSubstr("the job is stopping"));
  shard_0_->Signal(SIGKILL);
  shard_0_->Wait();
  Process& shard_0 = StartShard0();
  Process& shard_1 = StartServer(1, set_);
  for (Process* process : {&shard_0, &shard_1, workers_[0], workers_[1]}) {
    EXPECT_EQ(process->Wait().code, 0) << process->err();
  }
  EXPECT_EQ(Summary("run")["stopped"], "asked to");
  EXPECT_EQ(Summary("run")["servers_lost"], 2);
  EXPECT_GE(Summary("run")["steps"], 40);
}

TEST_F(ByHandRecoveryTest, AModeThatWasAskedForStays) {
  StartJob("sync");
  Rubato({"switch", "--mode", "bounded,staleness=2", "run"});
  ASSERT_TRUE(AwaitText(Path("run/views.jsonl"), "\"mode\":\"bounded, staleness 2\"", *shard_0_));
  shard_0_->Signal(SIGKILL);
  shard_0_->Wait();
  Process& shard_0 = StartShard0();
  ASSERT_TRUE(AwaitText(shard_0.err_path(), "training goes on at ", shard_0));
  const std::string status = Rubato({"status", "run"});
  EXPECT_THAT(status, HasSubstr("mode        bounded, staleness 2\n"));
  EXPECT_THAT(status, HasSubstr(absl::StrCat(" pid ", shard_0.pid(), "\n")));
  EXPECT_THAT(status, HasSubstr(absl::StrCat(" pid ", shard_1_->pid(), "\n")));
  Rubato({"stop", "run"});
  for (Process* process : {&shard_0, shard_1_, workers_[0], workers_[1]}) {
    EXPECT_EQ(process->Wait().code, 0) << process->err();
  }
}

TEST_F(ByHandRecoveryTest, ACoordinatorThatDiesBeforeItTrainsHasLostNothingMore) {
  StartJob("sync");
  shard_1_->Signal(SIGKILL);
  shard_0_->Signal(SIGKILL);
  shard_0_->Wait();
  std::vector<std::string> samples;
  for (int term = 2; term <= 3; ++term) {
    Process& shard_0 = StartShard0();
    ASSERT_TRUE(AwaitText(shard_0.err_path(), " is here; waiting for shard 1", shard_0));
    const auto state = nlohmann::json::parse(ReadText(Path("run/state.json")));
    EXPECT_EQ(state["term"], term);
    samples.push_back(state["samples"]);
    EXPECT_EQ(state["lasting"]["begun_term"], 1);
    shard_0.Signal(SIGKILL);
    shard_0.Wait();
  }
  EXPECT_EQ(samples[0], samples[1]) << "it is where the first term ended";
}

TEST_F(ByHandRecoveryTest, ADamagedCheckpointIsSetAsideForTheOneBefore) {
  StartJob("sync");
  shard_0_->Signal(SIGKILL);
  shard_0_->Wait();
  // Another job does not go on here.
  const Process::Result other = StartShard0({"optimizer.learning_rate=0.1"}).Wait();
  EXPECT_EQ(other.code, 2);
  EXPECT_THAT(other.err, HasSubstr("--run-dir run holds a run of another job: digests "));
  std::string newest;
  for (const auto& entry : fs::directory_iterator(Path("run/checkpoints"))) {
    newest = std::max(newest, entry.path().filename().string());
  }
  // As after a loss of power: one lacks a file, the other has bytes that were not written.
  fs::copy(Path("run/checkpoints/" + newest), Path("run/checkpoints/step-99999999"));
  fs::remove(Path("run/checkpoints/step-99999999/manifest.json"));
  std::ofstream(Path("run/checkpoints/" + newest + "/manifest.json"), std::ios::app) << "x";
  Process& shard_0 = StartShard0();
  ASSERT_TRUE(AwaitText(shard_0.err_path(), "training goes on at ", shard_0));
  EXPECT_TRUE(fs::exists(Path("run/checkpoints/damaged-" + newest)));
  EXPECT_TRUE(fs::exists(Path("run/checkpoints/damaged-step-99999999")));
  EXPECT_THAT(shard_0.err(), Not(HasSubstr("went back to step " + newest)));
  Rubato({"stop", "run"});
  EXPECT_EQ(shard_0.Wait().code, 0);
}

TEST_F(ByHandRecoveryTest, ARunsFolderIsHeldByOneServerOfItsJob) {
  StartJob("sync");
  const Process::Result second = StartShard0({"cluster.address=127.0.0.1:0"}).Wait();
  EXPECT_EQ(second.code, 2);
  EXPECT_THAT(second.err, HasSubstr("another server holds the run's folder run"));
  Rubato({"stop", "run"});
  EXPECT_EQ(shard_0_->Wait().code, 0);
  const Process::Result ended = StartShard0().Wait();
  EXPECT_EQ(ended.code, 2);
  EXPECT_THAT(ended.err, HasSubstr("holds a run already: run/summary.json exists"));
}

// It would begin the job anew in another folder, and the others would join it.
TEST_F(ByHandRecoveryTest, Shard0WithoutItsRunsFolderDoesNotBegin) {
  StartJob("sync");
  shard_0_->Signal(SIGKILL);
  shard_0_->Wait();
  const Process::Result astray = StartServer(0, set_).Wait();
  EXPECT_EQ(astray.code, 2);
  EXPECT_THAT(astray.err, HasSubstr(" has taken part in term 1 of this job, and this server would "
                                    "begin it anew: start shard 0 with --run-dir of the run "));
  EXPECT_TRUE(!fs::exists(Path("runs")) || fs::is_empty(Path("runs")));
  // They wait for the right one.
  Process& shard_0 = StartShard0();
  ASSERT_TRUE(AwaitText(shard_0.err_path(), "training goes on at ", shard_0));
  ASSERT_TRUE(AwaitText(Path("run/views.jsonl"), "\"term\":2,\"view\":1,", shard_0));
  Rubato({"stop", "run"});
  for (Process* process : {&shard_0, shard_1_, workers_[0], workers_[1]}) {
    EXPECT_EQ(process->Wait().code, 0) << process->err();
  }
}

TEST_F(ByHandRecoveryTest, WhoIsNotStartedAgainIsNamed) {
  set_ = Settings("sync");
  fs::create_directory(Path("run"));
  set_.push_back("train.until={steps: 1000000}");
  set_.push_back("cluster.start_timeout=3s");
  shard_0_ = &StartServer(0, set_, {"--run-dir", "run", "--listen", "127.0.0.1:0"});
  set_.push_back("cluster.address=" + AwaitAddress("run", *shard_0_));
  shard_1_ = &StartServer(1, set_);
  workers_ = {&StartWorker(set_), &StartWorker(set_)};
  ASSERT_TRUE(AwaitTraining("run", *shard_0_));
  shard_1_->Signal(SIGKILL);
  for (Process* process : {shard_0_, workers_[0], workers_[1]}) {
    EXPECT_EQ(process->Wait().code, 1);
    EXPECT_THAT(process->err(), HasSubstr("shard 1 did not come"));
  }
}

// Servers that are cut off, or stand still, and come back with all that they had.
class KeptRecoveryTest : public RecoveryTest {
 protected:
  // Shard 1 reaches shard 0 by a proxy, and nobody else does.
  void StartJob(const std::string& mode) {
    fs::create_directory(Path("run"));
    setenv("RUBATO_TEST_COMPUTE_MS", "15", 1);  // it outlasts a lease or two
    std::vector<std::string> set = Settings(mode);
    set.push_back("cluster.lease=1s");
    const Arguments record = {"--run-dir", "run", "--record", "run/record"};
    Arguments listens = record;
    listens.insert(listens.end(), {"--listen", "127.0.0.1:0"});
    shard_0_ = &StartServer(0, set, listens);
    const std::string address = AwaitAddress("run", *shard_0_);
    proxy_.SetTarget(address);
    proxy_.Mark();
    std::vector<std::string> cuttable = set;
    cuttable.push_back("cluster.address=" + proxy_.address());
    set.push_back("cluster.address=" + address);
    shard_1_ = &StartServer(1, cuttable, record);
    workers_ = {&StartWorker(set), &StartWorker(set)};
    ASSERT_TRUE(AwaitCheckpoints(shard_0_->err_path(), 1, *shard_0_));
  }

  // That it has ended after `lost` losses, nothing was trained in vain, and that it replays.
  void ExpectEnd(int lost) {
    for (Process* process : {shard_0_, shard_1_, workers_[0], workers_[1]}) {
      EXPECT_EQ(process->Wait().code, 0) << process->err();
    }
    ExpectAccount("run", lost);
    EXPECT_EQ(Summary("run")["samples_rolled_back"], 0);
    EXPECT_THAT(shard_0_->err(), HasSubstr("; all shards have kept their values, nothing is "
                                           "trained again"));
    EXPECT_THAT(shard_0_->err(), Not(HasSubstr("went back to step ")));
    EXPECT_THAT(ReadText(Path("run/views.jsonl")), HasSubstr("\"reason\":\"goes on after: "));
    const Process::Result replay = Start({"tools/rubato", "replay", "run"}).Wait();
    EXPECT_EQ(replay.code, 0) << replay.err;
    EXPECT_THAT(replay.out, AllOf(HasSubstr("bit for bit those of run"), Not(HasSubstr("early"))));
  }

  Proxy proxy_;
  Process *shard_0_ = nullptr, *shard_1_ = nullptr;
  std::vector<Process*> workers_;
};

TEST_F(KeptRecoveryTest, AShardThatIsCutOffFromTheCoordinatorLosesNothing) {
  for (const std::string mode : {"sync", "async", "{mode: bounded, staleness: 2}"}) {
    fs::remove_all(Path("run"));
    fs::remove_all(Path("undisturbed"));
    const std::string digest = Undisturbed(mode);
    StartJob(mode);
    proxy_.Cut();
    ASSERT_TRUE(AwaitText(shard_0_->err_path(), ", unless all have kept their values", *shard_0_));
    proxy_.Heal();
    ExpectEnd(1);
    if (mode == "sync") {
      EXPECT_EQ(Summary("run")["digest"], digest);
    }
  }
}

TEST_F(KeptRecoveryTest, NorDoesAServerThatStandsStillForLongerThanALease) {
  const std::string digest = Undisturbed("sync");
  StartJob("sync");
  shard_1_->Signal(SIGSTOP);
  ASSERT_TRUE(AwaitText(shard_0_->err_path(), ", unless all have kept their values", *shard_0_));
  shard_1_->Signal(SIGCONT);
  ASSERT_TRUE(AwaitCheckpoints(shard_0_->err_path(), 2, *shard_0_));
  shard_0_->Signal(SIGSTOP);
  const auto registers_again = [](const std::string& text) {
    const size_t first = text.find("registers again");
    return first != std::string::npos && text.find("registers again", first + 1) != text.npos;
  };
  ASSERT_TRUE(AwaitText(shard_1_->err_path(), registers_again, *shard_1_));
  shard_0_->Signal(SIGCONT);
  ExpectEnd(2);
  EXPECT_EQ(Summary("run")["digest"], digest);
}

// A process of its own coordinates, and dies.
class DedicatedRecoveryTest : public TrainRecoveryTest {
 protected:
  void StartRun(const std::string& mode) {
    fs::create_directory(Path("run"));
    setenv("RUBATO_TEST_COMPUTE_MS", "10", 1);
    std::vector<std::string> set = Settings(mode);
    set.push_back("cluster.dedicated_coordinator=true");
    launcher_ = &StartTrain("run", set);
  }

  // Once the term has checkpoints, as the coordinator logs.
  void KillCoordinatorIn(int term) {
    ASSERT_TRUE(AwaitTraining("run", *launcher_));
    ASSERT_TRUE(AwaitCheckpoints(Path("run/logs/coordinator-0.log"), term, *launcher_));
    for (const RunningChild& child : ChildrenOf(launcher_->pid())) {
      if (absl::StrContains(child.command, "--coordinator")) child.process.Signal(SIGKILL);
    }
  }
};

TEST_F(DedicatedRecoveryTest, ACoordinatorThatDiesCostsNothingThatWasTrained) {
  for (const std::string mode : {"sync", "async", "{mode: bounded, staleness: 2}"}) {
    fs::remove_all(Path("run"));
    fs::remove_all(Path("undisturbed"));
    const std::string digest = Undisturbed(mode);
    StartRun(mode);
    KillCoordinatorIn(1);
    KillCoordinatorIn(2);
    const Process::Result result = launcher_->Wait();
    EXPECT_EQ(result.code, 0) << result.err;
    ExpectAccount("run", 2);
    EXPECT_EQ(Summary("run")["samples_rolled_back"], 0);
    if (mode == "sync") {
      EXPECT_EQ(Summary("run")["digest"], digest);
    }
    EXPECT_THAT(
        result.err,
        AllOf(HasSubstr("\ncoordinator ended: killed by signal 9 (SIGKILL); started again (1 "
                        "of 3)\n"),
              HasSubstr(" after the coordinator was lost; all shards have kept their "
                        "values, nothing is trained again"),
              Not(HasSubstr("went back to step")), Not(HasSubstr("shard 0"))));
  }
}

// Of state.json nothing is left; what the shards have kept is of a term that is known to have
// begun.
TEST_F(DedicatedRecoveryTest, NorDoesTheLossOfItsPower) {
  const std::string digest = Undisturbed("sync");
  StartRun("sync");
  ASSERT_TRUE(AwaitTraining("run", *launcher_));
  ASSERT_TRUE(AwaitCheckpoints(Path("run/logs/coordinator-0.log"), 1, *launcher_));
  std::ofstream(Path("run/state.json"), std::ios::trunc).flush();
  KillCoordinatorIn(1);
  const Process::Result result = launcher_->Wait();
  EXPECT_EQ(result.code, 0) << result.err;
  ExpectAccount("run", 1);
  EXPECT_EQ(Summary("run")["samples_rolled_back"], 0);
  EXPECT_EQ(Summary("run")["digest"], digest);
  EXPECT_THAT(result.err, HasSubstr("all shards have kept their values, nothing is trained again"));
}

TEST_F(DedicatedRecoveryTest, AShardThatDiesTakesTheJobBackShard0AsAnyOther) {
  const std::string digest = Undisturbed("sync");
  StartRun("sync");
  ASSERT_TRUE(AwaitTraining("run", *launcher_));
  ASSERT_TRUE(AwaitCheckpoints(Path("run/logs/coordinator-0.log"), 1, *launcher_));
  for (const RunningChild& child : ChildrenOf(launcher_->pid())) {
    if (absl::StrContains(child.command, "--shard 0")) child.process.Signal(SIGKILL);
  }
  const Process::Result result = launcher_->Wait();
  EXPECT_EQ(result.code, 0) << result.err;
  ExpectAccount("run", 1);
  EXPECT_EQ(Summary("run")["digest"], digest);
  EXPECT_THAT(result.err,
              HasSubstr(" samples are trained again: shard 0 has lost its values; training stood "
                        "still for "));
}

// Callers that the successor of a coordinator takes may all be there at once, and have it write.
TEST_F(DedicatedRecoveryTest, NobodyIsTakenBeforeTheFilesAreOpen) {
  fs::create_directory(Path("run"));
  std::vector<std::string> set = Settings("sync");
  set.push_back("cluster.dedicated_coordinator=true");
  set.push_back("cluster.lease=10s");
  const auto start_coordinator = [&](const std::string& address) -> Process& {
    std::vector<std::string> arguments = {"server/rubato-server",
                                          "--config",
                                          "job.yaml",
                                          "--coordinator",
                                          "--run-dir",
                                          "run",
                                          "--listen",
                                          address};
    for (const std::string& key : set) arguments.insert(arguments.end(), {"--set", key});
    return Start(arguments);
  };
  Process& first = start_coordinator("127.0.0.1:0");
  const std::string address = AwaitAddress("run", first);
  set.push_back("cluster.address=" + address);
  std::vector<Process*> others = {&StartServer(0, set), &StartServer(1, set), &StartWorker(set),
                                  &StartWorker(set)};
  ASSERT_TRUE(AwaitTraining("run", first));
  first.Signal(SIGKILL);
  first.Wait();
  // Who opens a pipe to write waits for a reader.
  fs::remove(Path("run/views.jsonl"));
  ASSERT_EQ(mkfifo(Path("run/views.jsonl").c_str(), 0600), 0);
  Process& next = start_coordinator(address);
  ASSERT_TRUE(AwaitText(Path("run/state.json"), "\"term\": 2,", next));
  const Process::Result asked = Start({"tools/rubato", "status", "run"}).Wait();
  EXPECT_EQ(asked.code, 1) << asked.out;
  EXPECT_THAT(asked.err, HasSubstr("the coordinator at " + address + " has not answered within"));
  const int reader = open(Path("run/views.jsonl").c_str(), O_RDWR | O_CLOEXEC);
  EXPECT_EQ(next.Wait().code, 0) << next.err();
  close(reader);
  for (Process* process : others) EXPECT_EQ(process->Wait().code, 0) << process->err();
  EXPECT_THAT(next.err(), HasSubstr("; all shards have kept their values"));
}

TEST_F(DedicatedRecoveryTest, WhoCoordinatesIsSaidOnce) {
  const auto error = [this](std::vector<std::string> arguments, const std::string& key) {
    arguments.insert(arguments.begin(), {"server/rubato-server", "--config", "job.yaml", "--set",
                                         "cluster.dedicated_coordinator=" + key});
    const Process::Result result = Start(arguments).Wait();
    EXPECT_EQ(result.code, 2);
    return result.err;
  };
  EXPECT_THAT(error({"--coordinator"}, "false"),
              HasSubstr("--coordinator: shard 0 coordinates this job, whose "
                        "cluster.dedicated_coordinator is false"));
  EXPECT_THAT(error({"--coordinator", "--shard", "0"}, "true"),
              HasSubstr("--coordinator and --shard exclude one another"));
  EXPECT_THAT(error({}, "true"), HasSubstr("--shard K or --coordinator is required"));
  EXPECT_THAT(error({}, "false"), HasSubstr("--shard is required"));
}

}  // namespace
}  // namespace rubato
