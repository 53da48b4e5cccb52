#include "server/coordinator/ending.h"

#include "gtest/gtest.h"

namespace rubato {
namespace {

class EndingTest : public ::testing::Test {
 protected:
  // Two shards, peers 0 and 1, and a worker, peer 2.
  EndingTest() : registry_(job_, "digest", "1.0"), evaluations_(job_, 16), ending_(job_) {
    for (int shard : {0, 1}) {
      proto::Registration registration;
      registration.set_shard(shard);
      registry_.Add(shard, registration, now_, &out_);
    }
    proto::Registration worker;
    worker.mutable_worker();
    registry_.Add(2, worker, now_, &out_)->is_member = true;
  }

  static proto::Job SmallJob() {
    proto::Job job;
    job.mutable_cluster()->mutable_workers()->set_max(1);
    job.mutable_train()->set_batch_size(8);
    job.mutable_train()->set_micro_batches(4);
    job.mutable_evaluation()->mutable_every()->set_epochs(1);
    return job;
  }

  void Test() { ending_.Test(&evaluations_, &registry_, now_, &out_); }

  // How many messages have been sent of which `has` holds.
  template <typename Has>
  int Sent(Has has) const {
    int count = 0;
    for (const coordinator::Outcome& outcome : out_) {
      const auto* send = std::get_if<coordinator::Send>(&outcome);
      if (send != nullptr && has(send->message)) ++count;
    }
    return count;
  }

  const proto::Job job_ = SmallJob();
  const absl::Time now_ = absl::UnixEpoch();
  coordinator::Outcomes out_;
  Registry registry_;
  Evaluations evaluations_;
  Summary summary_;
  Ending ending_;
};

TEST_F(EndingTest, TestsThatAreUnderWayComeBeforeTheFinalOne) {
  evaluations_.under_way()[3] = {0, 1};
  ending_.Begin(6, /*blocks_in_step=*/true);
  Test();
  EXPECT_EQ(ending_.tester(), 2u);
  EXPECT_FALSE(ending_.is_final());
  evaluations_.under_way().clear();
  Test();
  EXPECT_TRUE(ending_.is_final());
  EXPECT_EQ(Sent([](const auto& message) { return message.has_evaluation_request(); }), 1);
}

// They are asked in order of rank; the first tests.
TEST_F(EndingTest, AllWorkersOfAScriptHaveTheFinalParametersBeforeTheShardsReport) {
  proto::Job job = SmallJob();
  job.mutable_model()->set_preset(proto::Model::PRESET_SCRIPT);
  Ending ending(job);
  proto::Registration worker;
  worker.mutable_worker();
  for (const PeerId id : {3, 4}) registry_.Add(id, worker, now_, &out_)->is_member = true;
  ending.Begin(6, /*blocks_in_step=*/true);
  ending.Test(&evaluations_, &registry_, now_, &out_);
  const auto asks = [](bool tests) {
    return [tests](const auto& message) {
      return message.has_evaluation_request() && message.evaluation_request().tests() == tests;
    };
  };
  EXPECT_EQ(ending.tester(), 2u);
  EXPECT_EQ(Sent(asks(true)), 1);
  EXPECT_EQ(Sent(asks(false)), 2);
  ending.OnAnswered(3, registry_, &out_);
  registry_.Remove(2);
  ending.OnLost(2, &evaluations_, &registry_, now_, &out_);
  EXPECT_EQ(ending.tester(), 3u) << "though it has them already";
  EXPECT_EQ(Sent(asks(true)), 2);
  EXPECT_EQ(Sent(asks(false)), 2);
  proto::EvaluationResult result;
  result.set_unit(6);
  MetricsLine line;
  line.others = {{"f1", 0.25}};
  ending.OnFinalTest(result, line, evaluations_, registry_, &summary_, &out_);
  EXPECT_EQ(summary_.test_others, line.others);
  EXPECT_FALSE(summary_.test_loss.has_value()) << "none was told";
  EXPECT_EQ(ending.state(), Ending::State::kTesting) << "worker 2 has nothing yet";
  registry_.Remove(4);
  ending.OnLost(4, &evaluations_, &registry_, now_, &out_);
  EXPECT_EQ(ending.state(), Ending::State::kReporting);
}

TEST_F(EndingTest, WithoutAWorkerThereIsNoFinalLoss) {
  registry_.Remove(2);
  ending_.Begin(6, /*blocks_in_step=*/true);
  Test();
  EXPECT_FALSE(summary_.test_loss.has_value());
  EXPECT_EQ(ending_.state(), Ending::State::kReporting);
  EXPECT_EQ(Sent([](const auto& message) { return message.has_report_request(); }), 2);
}

TEST_F(EndingTest, EachShardsReportCountsOnce) {
  registry_.Remove(2);
  ending_.Begin(6, /*blocks_in_step=*/true);
  Test();
  proto::ShardReport report;
  report.set_pushed_bytes(5);
  report.add_blocks()->set_block(1);
  report.add_staleness_counts(7);
  ending_.OnReport({1, 1}, report, &summary_, &out_);
  ending_.OnReport({1, 1}, report, &summary_, &out_);
  EXPECT_EQ(ending_.state(), Ending::State::kReporting);
  report.mutable_blocks(0)->set_block(0);
  report.add_staleness_counts(2);
  ending_.OnReport({0, 1}, report, &summary_, &out_);
  EXPECT_EQ(ending_.state(), Ending::State::kCollecting);
  EXPECT_EQ(summary_.pushed_bytes, 10);
  EXPECT_EQ(summary_.staleness_counts, (std::vector<int64_t>{14, 2}));
  ASSERT_EQ(summary_.blocks.size(), 2u);
  EXPECT_EQ(summary_.blocks[0].block(), 0);
  EXPECT_EQ(std::get<coordinator::Collect>(out_.back()).version, 6);
}

TEST_F(EndingTest, TakesALastCheckpointOnce) {
  EXPECT_TRUE(ending_.WantsCheckpoint());
  EXPECT_FALSE(ending_.WantsCheckpoint());
}

}  // namespace
}  // namespace rubato
