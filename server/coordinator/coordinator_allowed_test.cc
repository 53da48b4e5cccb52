// Who may say what, and when: the coordinator asks the table (server/rules/allowed.h).
#include <functional>
#include <string>
#include <vector>

#include "server/coordinator/coordinator_fixture.h"

namespace rubato {
namespace {

struct Lie {
  std::string field;
  std::function<void(proto::PeerMessage*)> tell;
};

class AllowedTest : public CoordinatorTest {};

// One that has come in the midst of the training, and whose first view is still to come, has
// nothing to compute, to test or to have found.
TEST_F(AllowedTest, WhatOnlyWhoHasAViewSays) {
  const std::vector<Lie> lies = {
      {"work_request", [](auto* m) { m->mutable_work_request(); }},
      {"progress",
       [](auto* m) {
         *m = Computed(0, {0, 2}, 1, 2);
       }},
      {"idle", [](auto* m) { m->mutable_idle()->set_view(1); }},
      {"initial_values.begin", [](auto* m) { m->mutable_initial_values()->set_begin(-1); }},
      {"evaluation", [](auto* m) { *m = Evaluated(3); }},
      {"failure.non_finite",
       [](auto* m) {
         m->mutable_failure()->set_exit_code(1);
         m->mutable_failure()->set_non_finite(true);
       }},
  };
  for (const bool begun : {false, true}) {
    for (const Lie& lie : lies) {
      SCOPED_TRACE(lie.field);
      sent_.clear();
      end_.reset();
      Start();
      if (begun) Begin();
      Receive(4, Worker());
      proto::PeerMessage message;
      lie.tell(&message);
      Receive(4, message);
      EXPECT_TRUE(sent_[4].back().stop().refused());
      EXPECT_THAT(Reason(4), HasSubstr(lie.field));
      EXPECT_FALSE(end_.has_value());
      EXPECT_EQ(coordinator_->refused(), 1);
    }
  }
}

TEST_F(AllowedTest, AProgressOfWhatOthersCompute) {
  Start();
  Begin();
  Receive(3, Computed(0, {0, 2}, 1, 2));
  EXPECT_THAT(Reason(3), HasSubstr("progress.first_leaf: found 0 of step 0, expected"));
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("worker 1 (host pid 0) sent an invalid message")));
  EXPECT_TRUE(lines_.empty());
}

TEST_F(AllowedTest, WhoIsNotAskedHasNoFinalTest) {
  Start();
  Begin();
  proto::PeerMessage message = Evaluated(6);
  message.mutable_evaluation()->set_is_final(true);
  Receive(3, message);
  EXPECT_THAT(Reason(3), HasSubstr("evaluation.is_final"));
  EXPECT_TRUE(lines_.empty());
}

TEST_F(AllowedTest, ViewsAndSnapshotsThatAreStillToCome) {
  Start();
  Begin();
  proto::PeerMessage idle = Idle();
  idle.mutable_idle()->set_view(2);
  Receive(3, idle);
  EXPECT_THAT(Reason(3), HasSubstr("idle.view: found 2, expected at most 1"));
  const std::vector<Lie> lies = {
      {"shard_opened.view", [](auto* m) { m->mutable_shard_opened()->set_view(2); }},
      {"shard_closed.view",
       [](auto* m) {
         m->mutable_shard_closed()->set_view(2);
         m->mutable_shard_closed()->set_lowest_version(0);
       }},
      {"snapshot_copied.id", [](auto* m) { *m = Copied(9, 1, 0); }},
      {"snapshot_missed.id", [](auto* m) { m->mutable_snapshot_missed()->set_id(9); }},
      {"part_written.id", [](auto* m) { m->mutable_part_written()->set_id(9); }},
      {"shard_report", [](auto* m) { m->mutable_shard_report()->add_blocks()->set_block(1); }},
      {"failure.non_finite",
       [](auto* m) {
         m->mutable_failure()->set_exit_code(1);
         m->mutable_failure()->set_non_finite(true);
       }},
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
    EXPECT_THAT(end_->message(), HasSubstr(absl::StrCat("invalid message: ", lie.field)));
  }
}

TEST_F(AllowedTest, NobodyRegistersTwice) {
  Start();
  Begin();
  Receive(3, Worker());
  EXPECT_THAT(Reason(3), HasSubstr("registration"));
  EXPECT_TRUE(sent_[3].back().stop().refused());
  Receive(1, Shard(1));  // what a shard says may come twice
  EXPECT_FALSE(end_.has_value());
  Receive(1, Shard(0));
  EXPECT_TRUE(end_.has_value());
}

TEST_F(AllowedTest, WhatAShardSaysBeforeItsFirstView) {
  Start();
  Receive(1, Shard(1));
  proto::PeerMessage opened;
  opened.mutable_shard_opened()->set_view(1);
  Receive(1, opened);
  ASSERT_TRUE(end_.has_value());
  EXPECT_THAT(end_->message(), HasSubstr("invalid message: shard_opened"));
}

TEST_F(AllowedTest, WhatIsSaidBeforeARegistration) {
  Start();
  Begin();
  const std::vector<Lie> lies = {
      {"nothing that is known", [](auto*) {}},
      {"work_request", [](auto* m) { m->mutable_work_request(); }},
      {"leave", [](auto* m) { m->mutable_leave(); }},
      {"failure", [](auto* m) { m->mutable_failure()->set_exit_code(1); }},
      {"stop_request", [](auto* m) { m->mutable_stop_request(); }},
      {"shard_report", [](auto* m) { m->mutable_shard_report(); }},
  };
  PeerId peer = 10;
  for (const Lie& lie : lies) {
    proto::PeerMessage message;
    lie.tell(&message);
    Receive(++peer, message);
    EXPECT_THAT(Reason(peer), HasSubstr("begins with a registration"));
    EXPECT_THAT(Reason(peer), HasSubstr(lie.field));
  }
  EXPECT_EQ(coordinator_->refused(), 6);
  EXPECT_FALSE(end_.has_value());
  // All are counted, with those of a shard's process, and of one a second the log tells.
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("refused a process that is not registered")));
  now_ += Seldom::kBetween;
  Receive(++peer, {});
  EXPECT_EQ(warnings_.size(), 2u);
  proto::HeartbeatRequest beat;
  beat.set_job_digest(kDigest);
  beat.set_shard(1);
  beat.set_refused(5);
  Handle(coordinator::Heartbeat{beat}).IgnoreError();
  EXPECT_EQ(coordinator_->Status(now_).refused(), 12);
}

// What was on its way when its call was ended counts for nothing, and nobody is blamed for it.
TEST_F(AllowedTest, WhatComesLateIsDropped) {
  Start("cluster { lease: 5 stall_timeout: 20 }");
  Begin();
  Receive(2, Computed(0, {0, 2}, 1, 2));
  Work(/*seconds=*/21, /*busy=*/{1});
  ASSERT_TRUE(sent_[3].back().stop().evicted());
  const size_t sent = sent_[3].size();
  Receive(3, Computed(0, {2, 4}, 1, 2));
  Receive(3, Idle());
  EXPECT_EQ(sent_[3].size(), sent);
  EXPECT_EQ(coordinator_->refused(), 0);
}

TEST_F(AllowedTest, AnIdleOfAnEarlierViewIsDropped) {
  Start();
  Begin();
  Receive(4, Worker());
  Close(0, 0);
  ASSERT_EQ(coordinator_->view().number(), 2u);
  proto::PeerMessage idle = Idle();
  idle.mutable_idle()->set_view(1);
  Receive(3, idle);
  EXPECT_EQ(coordinator_->refused(), 0);
  EXPECT_TRUE(sent_[3].back().has_view());
}

}  // namespace
}  // namespace rubato
