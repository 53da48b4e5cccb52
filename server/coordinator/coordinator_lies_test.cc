// Peers that say what none of ours says: their calls end, with a sentence, and the job goes on.
#include <cmath>
#include <functional>
#include <limits>

#include "server/coordinator/coordinator_fixture.h"

namespace rubato {
namespace {

constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();
const double kNan = std::nan("");

class LiesTest : public CoordinatorTest {
 protected:
  struct Lie {
    std::string field;
    std::function<void(proto::PeerMessage*)> tell;
  };

  // Each lie, told in a job of its own, ends the call of the worker that tells it, and the other
  // goes on without it.
  void ExpectEndsCall(const std::string& job, const proto::PeerMessage& truth,
                      const std::vector<Lie>& lies) {
    for (const Lie& lie : lies) {
      SCOPED_TRACE(lie.field);
      sent_.clear();
      warnings_.clear();
      Start(job);
      Begin();
      proto::PeerMessage request;
      request.mutable_work_request();
      Receive(3, request);  // contribution 0
      proto::PeerMessage message = truth;
      lie.tell(&message);
      Receive(3, message);
      ASSERT_FALSE(sent_[3].empty());
      EXPECT_TRUE(sent_[3].back().stop().refused());
      EXPECT_THAT(Reason(3), HasSubstr(lie.field));
      EXPECT_THAT(warnings_,
                  ElementsAre(HasSubstr("worker 1 (host pid 0) sent an invalid message")));
      EXPECT_FALSE(end_.has_value());
      EXPECT_TRUE(sent_[1].back().has_close()) << "the next view does without it";
      EXPECT_TRUE(lines_.empty());
    }
  }
};

TEST_F(LiesTest, AProgressThatNoWorkerCanHaveMade) {
  const std::vector<Lie> lies = {
      {"progress.first_leaf", [](auto* m) { m->mutable_progress()->set_first_leaf(kHuge - 1); }},
      {"progress.first_leaf", [](auto* m) { m->mutable_progress()->set_first_leaf(-1); }},
      {"progress.first_leaf", [](auto* m) { m->mutable_progress()->set_first_leaf(3); }},
      {"held_seconds", [](auto* m) { m->set_held_seconds(-1); }},
      {"held_seconds", [](auto* m) { m->set_held_seconds(std::nan("")); }},
      {"progress.loss_sum",
       [](auto* m) {
         for (int i = 0; i < 5; ++i) m->mutable_progress()->add_loss_sum(0);
       }},
      {"progress.samples", [](auto* m) { m->mutable_progress()->clear_samples(); }},
      {"progress.samples", [](auto* m) { m->mutable_progress()->set_samples(1, -1); }},
      {"progress.samples", [](auto* m) { m->mutable_progress()->set_samples(1, kHuge); }},
      {"progress.correct", [](auto* m) { m->mutable_progress()->add_correct(1); }},
      {"progress.correct", [](auto* m) { m->mutable_progress()->set_correct(0, kNan); }},
      {"progress.judged", [](auto* m) { m->mutable_progress()->add_judged(1); }},
      {"progress.told", [](auto* m) { m->mutable_progress()->add_told(1); }},
      {"progress.told",
       [](auto* m) {
         for (int i = 0; i < m->progress().loss_sum_size(); ++i) {
           m->mutable_progress()->add_told(kHuge);
         }
       }},
      {"progress.judged",
       [](auto* m) {
         for (int i = 0; i < m->progress().loss_sum_size(); ++i) {
           m->mutable_progress()->add_judged(kHuge);
         }
       }},
      {"progress.unit", [](auto* m) { m->mutable_progress()->set_unit(-1); }},
      {"progress.unit", [](auto* m) { m->mutable_progress()->set_unit(kHuge); }},
      {"progress.clock", [](auto* m) { m->mutable_progress()->set_clock(-1); }},
      {"progress.clock", [](auto* m) { m->mutable_progress()->set_clock(kHuge); }},
      {"progress.staleness", [](auto* m) { m->mutable_progress()->set_staleness(kNan); }},
      {"progress.pushed_bytes", [](auto* m) { m->mutable_progress()->set_pushed_bytes(-1); }},
      {"progress.pulled_bytes", [](auto* m) { m->mutable_progress()->set_pulled_bytes(kHuge); }},
      {"progress.waiting_seconds",
       [](auto* m) { m->mutable_progress()->set_waiting_seconds(kNan); }},
      {"progress.computing_seconds",
       [](auto* m) { m->mutable_progress()->set_computing_seconds(-1); }},
      {"progress.communicating_seconds",
       [](auto* m) { m->mutable_progress()->set_communicating_seconds(1e300); }},
  };
  ExpectEndsCall("", Computed(0, {2, 4}, 1, 2), lies);
  std::vector<Lie> on_arrival = lies;
  on_arrival[2].tell = [](auto* m) { m->mutable_progress()->set_first_leaf(1); };
  // One that nobody has given it, left out or not.
  on_arrival.push_back({"progress.unit", [](auto* m) { m->mutable_progress()->set_unit(1); }});
  on_arrival.push_back({"progress.unit", [](auto* m) {
                          m->mutable_progress()->set_unit(9);
                          m->mutable_progress()->set_left_out(true);
                        }});
  ExpectEndsCall("consistency { mode { mode: NAME_ASYNC } }", Computed(0, {0, 2}, 1, 2),
                 on_arrival);
}

TEST_F(LiesTest, OtherMessagesOfAWorker) {
  ExpectEndsCall(
      "", {},
      {{"work_request.applied", [](auto* m) { m->mutable_work_request()->set_applied(kHuge); }},
       {"work_request.count: found 0, expected 1 to 64",
        [](auto* m) { m->mutable_work_request()->set_count(0); }},
       {"work_request.count", [](auto* m) { m->mutable_work_request()->set_count(-1); }},
       {"work_request.count", [](auto* m) { m->mutable_work_request()->set_count(65); }},
       {"idle.applied", [](auto* m) { m->mutable_idle()->set_applied(-1); }},
       {"leave.applied", [](auto* m) { m->mutable_leave()->set_applied(kHuge); }},
       {"evaluation.unit", [](auto* m) { m->mutable_evaluation()->set_unit(kHuge); }},
       {"evaluation.unit", [](auto* m) { m->mutable_evaluation()->set_unit(-1); }},
       {"evaluation.samples", [](auto* m) { m->mutable_evaluation()->set_samples(kHuge); }},
       {"evaluation.correct", [](auto* m) { m->mutable_evaluation()->set_correct(7); }},
       {"evaluation.judged", [](auto* m) { m->mutable_evaluation()->set_judged(kNan); }},
       {"evaluation.others: found 1, expected 0 to 0",
        [](auto* m) { m->mutable_evaluation()->add_others()->set_name("f1"); }},
       {"failure.exit_code", [](auto* m) { m->mutable_failure()->set_exit_code(-1); }},
       {"failure.exit_code", [](auto* m) { m->mutable_failure()->set_exit_code(0); }},
       {"not sent by a worker", [](auto* m) { m->mutable_stop_request(); }},
       {"not sent by a worker", [](auto* m) { m->mutable_shard_closed()->set_view(1); }},
       {"not sent by a worker", [](auto* m) { m->mutable_shard_report(); }},
       {"not sent by a worker", [](auto* m) { m->mutable_snapshot_copied(); }},
       {"not sent by a worker", [](auto* m) { m->mutable_question(); }},
       {"not sent by a worker", [](auto*) {}}});
}

// Before the training a failure ends the job with its exit code: it must be one of a failure.
TEST_F(LiesTest, EndsOfWorkersBeforeTheFirstView) {
  const std::vector<Lie> lies = {
      {"failure.exit_code", [](auto* m) { m->mutable_failure(); }},
      {"failure.exit_code", [](auto* m) { m->mutable_failure()->set_exit_code(-1); }},
      {"failure.exit_code", [](auto* m) { m->mutable_failure()->set_exit_code(256); }},
      {"not sent by a worker", [](auto* m) { m->mutable_stop_request(); }},
  };
  for (const Lie& lie : lies) {
    SCOPED_TRACE(lie.field);
    sent_.clear();
    warnings_.clear();
    end_.reset();
    Start();
    Receive(9, Worker());
    proto::PeerMessage message;
    lie.tell(&message);
    Receive(9, message);
    EXPECT_TRUE(sent_[9].back().stop().refused());
    EXPECT_THAT(Reason(9), HasSubstr(lie.field));
    EXPECT_THAT(warnings_, ElementsAre(HasSubstr("worker 0 (host pid 0) sent an invalid message")));
    EXPECT_FALSE(end_.has_value());
    Begin();
    EXPECT_EQ(coordinator_->Status(now_).state(), "training") << "another takes its place";
  }
}

TEST_F(LiesTest, AFailureOfAShardThatIsNone) {
  for (const bool begun : {false, true}) {
    for (const int exit_code : {-1, 0, 256}) {
      SCOPED_TRACE(exit_code);
      sent_.clear();
      end_.reset();
      Start();
      Receive(1, Shard(1));
      Receive(4, Worker());
      if (begun) {
        Receive(2, Worker());
        Receive(kOwnShard, Shard(0));
        EXPECT_TRUE(sent_[1].back().has_view());
      }
      proto::PeerMessage message;
      message.mutable_failure()->set_exit_code(exit_code);
      Receive(1, message);
      ASSERT_TRUE(end_.has_value());
      EXPECT_THAT(*end_, IsError(absl::StatusCode::kAborted, HasSubstr("failure.exit_code")));
      EXPECT_EQ(sent_[4].back().stop().exit_code(), kExitFailure);
    }
  }
}

TEST_F(LiesTest, OneThatAsksForWorkAndDoesNone) {
  Start("consistency { mode { mode: NAME_ASYNC } } train { until { epochs: 100 } }");
  Begin();
  proto::PeerMessage request;
  request.mutable_work_request();
  for (int i = 0; i < 100; ++i) Receive(3, request);
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("64 contributions wait for it")));
  Receive(2, request);
  EXPECT_EQ(sent_[2].back().work().contribution(), 64);
}

TEST_F(LiesTest, OneThatAsksForSeveralAtOnceMayHaveNoMoreOfThem) {
  Start("consistency { mode { mode: NAME_ASYNC } } train { until { epochs: 100 } }");
  Begin();
  proto::PeerMessage request;
  request.mutable_work_request()->set_count(60);
  Receive(3, request);
  Receive(3, request);
  EXPECT_THAT(warnings_,
              ElementsAre(HasSubstr("work_request.count: found 60 while 60 contributions wait for "
                                    "it, expected at most 64 together")));
  request.mutable_work_request()->set_count(64);
  Receive(2, request);
  EXPECT_EQ(sent_[2].back().work().contribution(), 60);
  EXPECT_EQ(sent_[2].back().work().then_size(), 63);
}

// They fill no file, and meet no target.
TEST_F(LiesTest, TestsThatNobodyAskedForAreNotToldOf) {
  Start("train { stop_when { metric: 'eval/accuracy' at_least: 0.9 } }");
  Begin();
  proto::PeerMessage tested = Evaluated(2);
  tested.mutable_evaluation()->set_correct(20);
  Receive(3, tested);
  EXPECT_TRUE(lines_.empty());
  for (int i = 0; i < 3; ++i) Receive(3, Evaluated(3));
  EXPECT_EQ(lines_.size(), 1u);
  EXPECT_EQ(coordinator_->Status(now_).state(), "training");
}

TEST_F(LiesTest, AShardsAnswersEndTheJobByItsName) {
  const std::vector<Lie> lies = {
      {"shard_closed.highest_version",
       [](auto* m) {
         m->mutable_shard_closed()->set_lowest_version(0);
         m->mutable_shard_closed()->set_highest_version(kHuge);
       }},
      {"shard_closed.lowest_version",
       [](auto* m) { m->mutable_shard_closed()->set_lowest_version(-1); }},
      {"shard_closed.lowest_version", [](auto* m) { m->mutable_shard_closed(); }},
      {"shard_closed.unit_runs",
       [](auto* m) {
         m->mutable_shard_closed()->set_lowest_version(0);
         m->mutable_shard_closed()->add_unit_runs()->set_begin(-7);
       }},
      {"snapshot_copied.blocks", [](auto* m) { m->mutable_snapshot_copied(); }},
      {"snapshot_copied.blocks.block",
       [](auto* m) { m->mutable_snapshot_copied()->add_blocks()->set_block(0); }},
      {"snapshot_missed.version",
       [](auto* m) { m->mutable_snapshot_missed()->set_version(kHuge); }},
      {"question.unit", [](auto* m) { m->mutable_question()->set_unit(kHuge); }},
      {"question.measured.non_finite",
       [](auto* m) { m->mutable_question()->mutable_measured()->set_non_finite(10); }},
      {"question.measured.nodes.begin",
       [](auto* m) {
         auto* node = m->mutable_question()->mutable_measured()->add_nodes();
         node->set_begin(-kHuge);
         node->set_end(1);
       }},
      {"shard_report.blocks", [](auto* m) { m->mutable_shard_report(); }},
      {"shard_report.staleness_counts",
       [](auto* m) {
         m->mutable_shard_report()->add_blocks()->set_block(1);
         m->mutable_shard_report()->mutable_staleness_counts()->Resize(66, 0);
       }},
      {"shard_report.staleness_counts",
       [](auto* m) {
         m->mutable_shard_report()->add_blocks()->set_block(1);
         m->mutable_shard_report()->add_staleness_counts(-1);
       }},
      {"not sent by a shard", [](auto* m) { m->mutable_progress(); }},
  };
  for (const Lie& lie : lies) {
    SCOPED_TRACE(lie.field);
    end_.reset();
    sent_.clear();
    Start();
    Begin();
    proto::PeerMessage message;
    lie.tell(&message);
    Receive(1, message);
    ASSERT_TRUE(end_.has_value());
    EXPECT_THAT(*end_, IsError(absl::StatusCode::kAborted,
                               HasSubstr("shard 1 (host pid 1) sent an invalid message: ")));
    EXPECT_THAT(end_->message(), HasSubstr(lie.field));
  }
}

TEST_F(LiesTest, RegistrationsOfWhatCannotBe) {
  const std::vector<Lie> lies = {
      {"process",
       [](auto* m) { m->mutable_registration()->set_process(std::string(1 << 20, 'x')); }},
      {"version: found 257 bytes",
       [](auto* m) { m->mutable_registration()->set_version(std::string(257, 'x')); }},
      {"job_digest: found 257 bytes",
       [](auto* m) { m->mutable_registration()->set_job_digest(std::string(257, 'x')); }},
      {"address: found 4097 bytes",
       [](auto* m) { m->mutable_registration()->set_address(std::string(4097, 'x')); }},
      {"numerics: found 4097 bytes",
       [](auto* m) {
         m->mutable_registration()->mutable_worker()->set_numerics(std::string(4097, 'x'));
       }},
      {"data_digest",
       [](auto* m) {
         m->mutable_registration()->mutable_worker()->set_data_digest(std::string(1000, 'x'));
       }},
      {"worker.data: found 1048580 bytes, expected at most 1048576",
       [](auto* m) {
         m->mutable_registration()->mutable_worker()->mutable_data()->set_target(
             std::string(1 << 20, 'x'));
       }},
      {"train_samples",
       [](auto* m) { m->mutable_registration()->mutable_worker()->set_train_samples(kHuge); }},
      {"train_samples",
       [](auto* m) { m->mutable_registration()->mutable_worker()->set_train_samples(0); }},
      {"test_samples",
       [](auto* m) { m->mutable_registration()->mutable_worker()->set_test_samples(-1); }},
      {"values",
       [](auto* m) {
         proto::Layout* layout = m->mutable_registration()->mutable_worker()->mutable_layout();
         // Their product is 10 once more.
         layout->mutable_parameters(0)->add_shape(int64_t{1} << 62);
         layout->mutable_parameters(0)->add_shape(4);
       }},
      {"extent of -1",
       [](auto* m) {
         proto::Layout* layout = m->mutable_registration()->mutable_worker()->mutable_layout();
         layout->mutable_parameters(0)->add_shape(-1);
       }},
      {"average",
       [](auto* m) {
         proto::Layout* layout = m->mutable_registration()->mutable_worker()->mutable_layout();
         layout->add_parameters()->set_average(kNan);
       }},
      {"no parameters",
       [](auto* m) { m->mutable_registration()->mutable_worker()->clear_layout(); }},
  };
  Start();
  PeerId peer = 10;
  for (const Lie& lie : lies) {
    SCOPED_TRACE(lie.field);
    proto::PeerMessage message = Worker();
    lie.tell(&message);
    Receive(++peer, message);
    EXPECT_THAT(Reason(peer), HasSubstr(lie.field));
    EXPECT_LT(warnings_.back().size(), 6000u) << "not the whole of it is logged";
  }
  Begin();
  EXPECT_EQ(coordinator_->Status(now_).state(), "training");
}

TEST_F(LiesTest, AProgressInSyncIsSoFarAheadOfTheSlowestAtMost) {
  constexpr int64_t kMostAhead = 1 << 20;
  Start("train { until { epochs: 400000 } }");
  Begin();
  Receive(2, Computed(0, {0, 2}, 1, 2));
  Receive(3, Computed(0, {2, 4}, 1, 2));  // step 0 is told of
  Receive(3, Computed(1 + kMostAhead, {2, 4}, 1, 2));
  EXPECT_THAT(warnings_, IsEmpty());
  Receive(3, Computed(2 + kMostAhead, {2, 4}, 1, 2));
  EXPECT_THAT(Reason(3), HasSubstr("progress.unit: found 1048578, expected 0 to 1048577"));
}

// Such a job leaves out what is not finite: no honest worker gives up because of it.
TEST_F(LiesTest, NobodyEndsAJobThatSkipsBecauseOfAValue) {
  Start("train { on_non_finite: ON_NON_FINITE_SKIP }");
  Begin();
  proto::PeerMessage message;
  message.mutable_failure()->set_exit_code(1);
  message.mutable_failure()->set_reason("the loss is inf");
  message.mutable_failure()->set_non_finite(true);
  Receive(3, message);
  EXPECT_FALSE(end_.has_value());
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("failed: the loss is inf")));
}

// Of whoever leaves or fails in training, and of whoever ends the job.
TEST_F(LiesTest, AReasonIsToldAsFarAsOneReads) {
  const std::string endless(10000, 'x');
  proto::PeerMessage leave, failure, not_finite, stop;
  leave.mutable_leave()->set_reason(endless);
  failure.mutable_failure()->set_exit_code(1);
  failure.mutable_failure()->set_reason(endless);
  not_finite = failure;
  not_finite.mutable_failure()->set_non_finite(true);
  stop.mutable_stop_request()->set_reason(endless);
  const auto is_cut = ::testing::AllOf(HasSubstr(std::string(4096, 'x') + "..."),
                                       ::testing::SizeIs(::testing::Lt(6000u)));
  for (const proto::PeerMessage& message : {leave, failure}) {
    sent_.clear();
    warnings_.clear();
    Start();
    Begin();
    Receive(3, message);
    EXPECT_THAT(warnings_, ElementsAre(is_cut));
  }
  for (const proto::PeerMessage& message : {failure, not_finite, stop}) {
    end_.reset();
    sent_.clear();
    Start();
    const bool by_worker = message.failure().non_finite();
    if (by_worker) {
      Begin();
    } else {
      Receive(1, Shard(1));
    }
    Receive(by_worker ? 3 : 1, message);
    ASSERT_TRUE(end_.has_value());
    EXPECT_THAT(std::string(end_->message()), is_cut);
  }
}

}  // namespace
}  // namespace rubato
