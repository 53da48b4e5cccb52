// Servers with --leave-on-sigterm, as the pods of Kubernetes have it: on SIGTERM they leave, the
// others wait for their successors, and whoever comes when all is done is done. Without the flag
// SIGTERM ends the training (failure_test.cc).
#include <signal.h>
#include <stdlib.h>

#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/files/checkpoint.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/cluster.h"

namespace rubato {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// Two shards, two workers; no checkpoint but those of who leaves.
class LeaveTest : public ClusterTest {
 protected:
  LeaveTest() { setenv("RUBATO_TEST_COMPUTE_MS", "3", 1); }
  ~LeaveTest() override { unsetenv("RUBATO_TEST_COMPUTE_MS"); }

  static std::vector<std::string> Settings(int steps) {
    return {"cluster={servers: 2, workers: 2, address: '127.0.0.1:0', lease: 2s}",
            "metrics.every={steps: 20}",
            absl::StrCat("train={batch_size: 64, micro_batches: 4, until: {steps: ", steps, "}}")};
  }

  void StartJob(int steps, const std::string& more = "seed=7") {
    std::filesystem::create_directory(Path("run"));
    set_ = Settings(steps);
    set_.push_back(more);
    shard_0_ = &StartServer(0, set_,
                            {"--run-dir", "run", "--leave-on-sigterm", "--listen", "127.0.0.1:0"});
    set_.push_back("cluster.address=" + AwaitAddress("run", *shard_0_));
    shard_1_ = &StartShard(1);
    workers_ = {&StartWorker(set_), &StartWorker(set_)};
    ASSERT_TRUE(AwaitTraining("run", *shard_0_));
  }

  Process& StartShard(int shard) {
    Arguments more = {"--leave-on-sigterm"};
    if (shard == 0) more.insert(more.end(), {"--run-dir", "run"});
    return StartServer(shard, set_, more);
  }

  // It ends with 143, and another goes on for it with what it has saved.
  void Replace(int shard, Process** server) {
    (*server)->Signal(SIGTERM);
    const Process::Result left = (*server)->Wait();
    EXPECT_EQ(left.code, 128 + SIGTERM) << left.err;
    EXPECT_THAT(left.err, HasSubstr("leaves the job to its successor reason=\"interrupted by "
                                    "SIGTERM\""));
    EXPECT_THAT(left.err, Not(HasSubstr("without a checkpoint")));
    *server = &StartShard(shard);
    ASSERT_TRUE(AwaitText(shard_0_->err_path(), "training goes on at ", *shard_0_));
  }

  void ExpectEnds() {
    for (Process* process : {shard_0_, shard_1_, workers_[0], workers_[1]}) {
      EXPECT_EQ(process->Wait().code, 0) << process->err();
    }
  }

  std::vector<std::string> set_;
  Process *shard_0_ = nullptr, *shard_1_ = nullptr;
  std::vector<Process*> workers_;
};

TEST_F(LeaveTest, EachServerMayLeaveAndTheBitsAreThoseOfTheUndisturbedRun) {
  EXPECT_EQ(Train("undisturbed", Settings(600)).code, 0);
  StartJob(600);
  Replace(1, &shard_1_);
  Replace(0, &shard_0_);
  ExpectEnds();
  const nlohmann::json summary = Summary("run"), undisturbed = Summary("undisturbed");
  EXPECT_EQ(summary["digest"], undisturbed["digest"]);
  EXPECT_EQ(summary["samples"], undisturbed["samples"]);
  EXPECT_EQ(summary["servers_lost"], 2);
  EXPECT_THAT(shard_0_->err(), AllOf(HasSubstr("went back to step "),
                                     Not(HasSubstr("went back to step 0 (the beginning)"))));
}

// Who has no checkpoint to wait for leaves all the same, and so does who gets no answer.
TEST_F(LeaveTest, NobodyIsWaitedForForEver) {
  StartJob(1000000);
  shard_0_->Signal(SIGSTOP);
  shard_1_->Signal(SIGTERM);
  const Process::Result left = shard_1_->Wait();
  EXPECT_EQ(left.code, 128 + SIGTERM);
  EXPECT_THAT(left.err, HasSubstr("leaves without a checkpoint"));
  shard_0_->Signal(SIGCONT);
  ASSERT_TRUE(AwaitText(shard_0_->err_path(), " is here; waiting for shard 1\n", *shard_0_));
  shard_0_->Signal(SIGTERM);
  EXPECT_EQ(shard_0_->Wait().code, 128 + SIGTERM);
}

TEST_F(LeaveTest, WhereNobodyIsStartedAgainAServerThatIsToldToEndEndsTheJob) {
  StartJob(1000000, "cluster.max_restarts=0");
  shard_1_->Signal(SIGTERM);
  const Process::Result ended = shard_1_->Wait();
  EXPECT_EQ(ended.code, 128 + SIGTERM);
  EXPECT_THAT(ended.err, Not(HasSubstr("leaves the job")));
  EXPECT_EQ(shard_0_->Wait().code, 1) << shard_0_->err();
  EXPECT_EQ(ListCheckpoints(Path("run/checkpoints")).size(), 1u);
}

// It was ended when the result was there, and before the others had heard it.
TEST_F(LeaveTest, WhoComesWhenAllIsDoneIsDone) {
  StartJob(40);
  ExpectEnds();
  const std::string summary = ReadText(Path("run/summary.json"));
  Process& again = StartShard(0);
  Process& worker = StartWorker(set_);
  Process& other = StartWorker({set_[0], set_[1], set_[2], set_[4], "seed=8"});
  EXPECT_EQ(worker.Wait().code, 0) << worker.err();
  EXPECT_EQ(other.Wait().code, 2) << "of another job";
  EXPECT_EQ(StartShard(1).Wait().code, 0);
  EXPECT_EQ(again.Wait().code, 0) << again.err();
  EXPECT_THAT(again.err(), HasSubstr("the training is over; tells those that come late missing=3"));
  EXPECT_EQ(ReadText(Path("run/summary.json")), summary);
}

TEST_F(LeaveTest, AWorkerThatWasMissingAtTheEndIsToldWhenItComes) {
  StartJob(300, "cluster.workers={start: 2, min: 1, max: 2}");
  workers_[1]->Signal(SIGTERM);
  EXPECT_EQ(workers_[1]->Wait().code, 128 + SIGTERM);
  ASSERT_TRUE(AwaitText(shard_0_->err_path(), "tells those that come late missing=1", *shard_0_));
  workers_[1] = &StartWorker(set_);
  ExpectEnds();
}

}  // namespace
}  // namespace rubato
