#include "server/coordinator/work.h"

#include <vector>

#include "common/space/modes.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

using ::testing::ElementsAre;

// Steps of 8 samples in 4 micro-batches, contributions of 4 samples; 32 samples in all. Two
// workers, who are members: peers 2 and 3.
class WorkTest : public ::testing::Test {
 protected:
  void Begin(const std::string& mode, int micro_batches = 4) {
    ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(
        "cluster { workers { start: 2 max: 2 } } "
        "optimizer { learning_rate: 0.1 learning_rate_parity: true } "
        "train { batch_size: 8 micro_batches: 4 until { epochs: 2 } } "
        "metrics { every { steps: 1 } } evaluation { every { epochs: 1 } } consistency { " +
            mode + " }",
        &job_));
    job_.mutable_train()->set_micro_batches(micro_batches);
    registry_.emplace(job_, "digest", "1.0");
    for (PeerId id : {2, 3}) {
      proto::Registration registration;
      registration.mutable_worker();
      registry_->Add(id, registration, now_, &out_)->is_member = true;
    }
    evaluations_.emplace(job_, 16);
    work_.emplace(job_, 16, std::nullopt, proto::Lasting(), BuiltInPolicy);
    work_->OpenFirstView(registry_->WorkerIds(), &view_);
    work_->BeginTraining(0, now_);
  }

  void Give(PeerId id) { work_->Give(id, 1, registry_->Find(id), &*evaluations_, now_, &out_); }

  proto::Work LastWork() const { return std::get<coordinator::Send>(out_.back()).message.work(); }

  void Computed(PeerId id, int64_t unit, int64_t first_leaf, int64_t leaves) {
    proto::Progress progress;
    progress.set_unit(unit);
    progress.set_first_leaf(first_leaf);
    for (int64_t leaf = 0; leaf < leaves; ++leaf) {
      progress.add_loss_sum(1);
      progress.add_samples(2);
    }
    work_->OnProgress(progress, now_, registry_->Find(id), &*registry_, &*evaluations_, now_,
                      &out_);
  }

  // Of view 1, whose only shard has all blocks at `version`.
  static ViewChange Closed(const std::vector<WorkerId>& lost, int64_t version) {
    ViewChange change;
    for (const WorkerId& worker : lost) change.AddLost(worker);
    change.Close(1, {{0, 1}});
    proto::ShardClosed closed;
    closed.set_view(1);
    closed.set_lowest_version(version);
    closed.set_highest_version(version);
    change.OnClosed({0, 1}, closed);
    return change;
  }

  const absl::Time now_ = absl::UnixEpoch();
  proto::Job job_;
  coordinator::Outcomes out_;
  std::optional<Registry> registry_;
  std::optional<Evaluations> evaluations_;
  std::optional<Work> work_;
  proto::View view_;
};

TEST_F(WorkTest, InSyncTheStepWaitsForWhoHasPartsOfIt) {
  Begin("mode { mode: NAME_SYNC }");
  Computed(2, 0, 0, 2);
  EXPECT_THAT(work_->WaitedFor(*registry_), ElementsAre(WorkerId{1, 1}));
  EXPECT_EQ(work_->WaitText(*registry_->Find(3), 2), "clock 0 waits for worker 1, for 2.0 s");
  Computed(3, 0, 2, 2);
  EXPECT_EQ(work_->metrics().units(), 1);
  EXPECT_TRUE(std::holds_alternative<MetricsLine>(out_.back()));
}

// Of one micro-batch a step, the first worker has it, and the second nothing.
TEST_F(WorkTest, InSyncStepsAreCountedWhereSomebodyHasNothingToCompute) {
  Begin("mode { mode: NAME_SYNC }", /*micro_batches=*/1);
  Computed(2, 2, 0, 1);  // of steps 0 and 1 nobody has told
  EXPECT_EQ(work_->metrics().units(), 2);
  EXPECT_EQ(work_->metrics().samples(), 16);
}

// Else nobody would be waited for, and one that hangs would never be taken for lost.
TEST_F(WorkTest, InSyncALostWorkersPartOfAStepThatIsTakenIsNotWaitedFor) {
  Begin("mode { mode: NAME_SYNC }");
  Computed(2, 0, 0, 2);  // worker 1 has sent its part, so all blocks have taken the step
  const ViewChange change = Closed({{1, 1}}, 1);
  work_->CatchUpWithBlocks(change, now_, &out_);
  registry_->Remove(3);
  work_->OpenView(change, /*stopping=*/false, registry_->WorkerIds(), &view_, &out_);
  work_->OnTick(now_ + absl::Seconds(1), &out_);
  EXPECT_EQ(work_->metrics().units(), 1);
  EXPECT_THAT(work_->WaitedFor(*registry_), ElementsAre(WorkerId{0, 1}));
}

// What it has told of last is on its way for some milliseconds.
TEST_F(WorkTest, InSyncWhoLivesStillTellsOfStepsThatAreTakenWhenAnotherIsLost) {
  Begin("mode { mode: NAME_SYNC }");
  const ViewChange change = Closed({{1, 1}}, 1);
  work_->CatchUpWithBlocks(change, now_, &out_);
  registry_->Remove(3);
  work_->OpenView(change, /*stopping=*/false, registry_->WorkerIds(), &view_, &out_);
  Computed(2, 0, 0, 2);
  work_->OnTick(now_ + absl::Seconds(1), &out_);
  EXPECT_EQ(work_->metrics().units(), 1);
  ASSERT_TRUE(std::holds_alternative<MetricsLine>(out_.back()));
  EXPECT_EQ(std::get<MetricsLine>(out_.back()).samples, 8);
  EXPECT_EQ(std::get<MetricsLine>(out_.back()).loss, 0.5);  // of its two micro-batches of two
}

TEST_F(WorkTest, InSyncStepsThatAllBlocksHaveTakenCountWhereTheJobIsAbandoned) {
  Begin("mode { mode: NAME_SYNC }");
  ViewChange change = Closed({{0, 1}, {1, 1}}, 2);
  change.Pause();
  work_->Abandon(change, now_, &out_);
  Summary summary;
  work_->End(now_, &summary, &out_);
  EXPECT_EQ(summary.steps, 2);
  EXPECT_EQ(summary.samples, 16);
}

// No block counts samples that were left out on arrival, before the steps.
TEST_F(WorkTest, InSyncACheckpointGoesOnBehindWhatWasLeftOut) {
  Begin("mode { mode: NAME_SYNC }");
  proto::Manifest checkpoint;
  checkpoint.set_mode(proto::Manifest::MODE_SYNC);
  checkpoint.set_samples_per_epoch(16);
  checkpoint.set_unit_samples(8);
  checkpoint.set_origin_unit(3);  // contributions of 4 samples, of which one was left out
  checkpoint.set_origin_samples(12);
  checkpoint.set_step(5);      // the rest of the epoch, and a step of 8
  checkpoint.set_samples(20);  // of the blocks: 24 - 4
  const Work resumed(job_, 16, checkpoint, {}, BuiltInPolicy);
  const SampleSchedule& schedule = resumed.lineage().schedule();
  EXPECT_EQ(schedule.SamplesBefore(5), 24);
  EXPECT_EQ(resumed.lineage().until(), 6);  // two epochs are 32 samples
  // A checkpoint of before manifests said more.
  checkpoint.clear_unit_samples();
  EXPECT_EQ(Work(job_, 16, checkpoint, {}, BuiltInPolicy).lineage().schedule().SamplesBefore(5),
            20);
}

// Of an epoch of 18 samples the last contribution has 2.
TEST_F(WorkTest, OnArrivalACheckpointCountsTheSamplesOfTheContributionsThatAreDone) {
  Begin("mode { mode: NAME_ASYNC }");
  proto::Manifest checkpoint;
  checkpoint.set_mode(proto::Manifest::MODE_ASYNC);
  checkpoint.set_step(5);
  proto::BlockState* const block = checkpoint.add_blocks();
  block->set_units_below(2);
  block->add_units_above(4);  // the short one: 2 and 3 are done again
  proto::View view;
  Work resumed(job_, 18, checkpoint, {}, BuiltInPolicy);
  resumed.OpenFirstView(registry_->WorkerIds(), &view);
  resumed.BeginTraining(0, now_);
  EXPECT_EQ(resumed.done(), 3);
  EXPECT_EQ(resumed.metrics().samples(), 4 + 4 + 2);
}

// The checkpoint does not say how stale its contributions might be, so their mode claims nothing.
TEST_F(WorkTest, BeforeStepsWhatSomeBlocksHoldOfBoundedIsDoneWithoutStaleness) {
  Begin("mode { mode: NAME_SYNC }");
  proto::Manifest checkpoint;
  checkpoint.set_mode(proto::Manifest::MODE_BOUNDED);
  checkpoint.set_step(5);
  checkpoint.add_blocks()->set_units_below(5);
  checkpoint.add_blocks()->set_units_below(4);
  proto::View view;
  Work resumed(job_, 18, checkpoint, {}, BuiltInPolicy);
  resumed.OpenFirstView(registry_->WorkerIds(), &view);
  EXPECT_EQ(ModeName(view.mode()), "bounded");
  EXPECT_EQ(view.mode().staleness(), 0);
  EXPECT_EQ(view.until_step(), 5);
}

// Before, the job was in async: its steps were counted by samples, and are fewer than its units.
TEST_F(WorkTest, StepsGoOnFromThoseOfTheCheckpoint) {
  Begin("mode { mode: NAME_SYNC }");  // steps of 8 samples
  proto::Manifest checkpoint;
  checkpoint.set_samples_per_epoch(16);
  checkpoint.set_unit_samples(8);
  checkpoint.set_origin_unit(30);  // contributions of 4
  checkpoint.set_origin_samples(120);
  checkpoint.set_origin_steps(15);
  checkpoint.set_step(34);
  checkpoint.set_samples(152);
  const auto steps = [&](const proto::Manifest& manifest) {
    Work resumed(job_, 16, manifest, {}, BuiltInPolicy);
    proto::View view;
    resumed.OpenFirstView(registry_->WorkerIds(), &view);
    resumed.BeginTraining(0, now_);
    return resumed.metrics().steps();
  };
  checkpoint.set_mode(proto::Manifest::MODE_SYNC);
  EXPECT_EQ(steps(checkpoint), 15 + 4);
  checkpoint.set_mode(proto::Manifest::MODE_ASYNC);
  checkpoint.set_unit_samples(4);
  proto::BlockState* const block = checkpoint.add_blocks();
  block->set_version(34);
  block->set_units_below(34);
  Begin("mode { mode: NAME_ASYNC }");
  EXPECT_EQ(steps(checkpoint), 15 + 4 * 4 / 8);
  // One of before manifests said it.
  checkpoint.clear_origin_steps();
  EXPECT_EQ(steps(checkpoint), (120 + 16) / 8);
}

// Blocks have fewer samples than lie before the lineage.
TEST_F(WorkTest, WhatWasLeftOutDoesNotBringAnEarlierModeBack) {
  Begin(
      "schedule { mode { mode: NAME_BOUNDED staleness: 0 } until { samples: 8 } } "
      "schedule { mode { mode: NAME_ASYNC } until { samples: 24 } } "
      "schedule { mode { mode: NAME_SYNC } }");
  proto::Manifest checkpoint;
  checkpoint.set_mode(proto::Manifest::MODE_ASYNC);
  checkpoint.set_origin_unit(2);
  checkpoint.set_origin_samples(8);
  checkpoint.set_step(3);
  checkpoint.set_samples(4);
  checkpoint.set_samples_per_epoch(16);
  checkpoint.add_blocks()->set_units_below(3);
  const Work resumed(job_, 16, checkpoint, {}, BuiltInPolicy);
  EXPECT_EQ(resumed.lineage().mode().mode(), proto::Mode::NAME_ASYNC);
  EXPECT_EQ(resumed.lineage().until(), 2 + (24 - 8) / 4);
}

// In an earlier term, up to the schedule's next point.
TEST_F(WorkTest, AModeThatWasAskedForGoesOn) {
  Begin("mode { mode: NAME_SYNC }");
  proto::Lasting lasting;
  lasting.mutable_mode()->set_mode(proto::Mode::NAME_ASYNC);
  lasting.set_mode_until_samples(24);
  const auto resumed = [&](proto::Manifest::Mode mode, int64_t samples) {
    proto::Manifest checkpoint;
    checkpoint.set_mode(mode);
    checkpoint.set_samples(samples);
    checkpoint.set_step(mode == proto::Manifest::MODE_SYNC ? samples / 8 : samples / 4);
    checkpoint.set_samples_per_epoch(16);
    if (mode != proto::Manifest::MODE_SYNC) {
      checkpoint.add_blocks()->set_units_below(checkpoint.step());
    }
    return Work(job_, 16, checkpoint, lasting, BuiltInPolicy);
  };
  EXPECT_EQ(Work(job_, 16, std::nullopt, lasting, BuiltInPolicy).lineage().mode().mode(),
            proto::Mode::NAME_ASYNC);
  EXPECT_EQ(resumed(proto::Manifest::MODE_SYNC, 16).lineage().mode().mode(),
            proto::Mode::NAME_ASYNC);
  EXPECT_EQ(resumed(proto::Manifest::MODE_SYNC, 24).lineage().mode().mode(),
            proto::Mode::NAME_SYNC);
  // What is on arrival stays so for as long as that was asked for; else it ends with what is open.
  const Work stays = resumed(proto::Manifest::MODE_ASYNC, 16);
  EXPECT_EQ(stays.lineage().mode().mode(), proto::Mode::NAME_ASYNC);
  EXPECT_EQ(stays.lineage().until(), 8);
  EXPECT_FALSE(stays.lineage().asked().has_value());
  EXPECT_EQ(resumed(proto::Manifest::MODE_ASYNC, 24).lineage().until(), 6);
}

// Asked for in the second stage, when the job is back in the first: it holds up to the point that
// it was asked for.
TEST_F(WorkTest, AModeThatWasAskedForHoldsOverThePointsBefore) {
  Begin(
      "schedule { mode { mode: NAME_SYNC } until { samples: 8 } } "
      "schedule { mode { mode: NAME_ASYNC } until { samples: 24 } } "
      "schedule { mode { mode: NAME_SYNC } }");
  proto::Lasting lasting;
  lasting.mutable_mode()->set_mode(proto::Mode::NAME_BOUNDED);
  lasting.mutable_mode()->set_staleness(2);
  lasting.set_mode_until_samples(24);
  Work resumed(job_, 16, std::nullopt, lasting, BuiltInPolicy);
  Lineage& lineage = resumed.lineage();
  EXPECT_EQ(lineage.samples(), 8);
  EXPECT_EQ(lineage.next_mode().mode(), proto::Mode::NAME_BOUNDED);
  lineage.BeginNext(lineage.until());
  EXPECT_EQ(lineage.samples(), 24);
  EXPECT_EQ(lineage.next_mode().mode(), proto::Mode::NAME_SYNC);
}

TEST_F(WorkTest, InSyncOnlyAViewEndsTheLineage) {
  Begin("mode { mode: NAME_SYNC }");
  EXPECT_FALSE(work_->CutNow());
  ViewChange change;
  change.Close(1, {{0, 1}});
  proto::ShardClosed closed;
  closed.set_view(1);
  closed.set_lowest_version(0);
  closed.set_highest_version(1);
  change.OnClosed({0, 1}, closed);
  work_->OpenView(change, /*stopping=*/true, registry_->WorkerIds(), &view_, &out_);
  EXPECT_EQ(view_.from_step(), 2);
  EXPECT_EQ(work_->lineage().until(), 2);
}

TEST_F(WorkTest, OnArrivalWhatIsGivenOutIsTheLastOnceTheLineageIsCut) {
  Begin("mode { mode: NAME_ASYNC }");
  Give(2);
  EXPECT_EQ(LastWork().contribution(), 0);
  EXPECT_TRUE(work_->CutNow());
  EXPECT_EQ(work_->lineage().until(), 1);
  Give(3);
  EXPECT_FALSE(LastWork().has_contribution());
  EXPECT_TRUE(work_->OnIdle(3, registry_->Find(3), &*evaluations_, now_, &out_));
  EXPECT_FALSE(work_->is_done());
  Computed(2, 0, 0, 2);
  work_->OnApplied({0, 1}, 1);
  EXPECT_TRUE(work_->is_done());
}

TEST_F(WorkTest, OnArrivalOneThatIsIdleIsGivenWhatIsLeft) {
  Begin("mode { mode: NAME_ASYNC }");
  EXPECT_FALSE(work_->OnIdle(2, registry_->Find(2), &*evaluations_, now_, &out_));
  EXPECT_FALSE(registry_->Find(2)->idle);
  EXPECT_EQ(LastWork().contribution(), 0);
}

TEST_F(WorkTest, OnArrivalWhoComesBeginsAtTheClockOfTheSlowest) {
  Begin("mode { mode: NAME_ASYNC }");
  proto::Registration registration;
  registration.mutable_worker();
  registry_->Remove(3);
  registry_->Add(4, registration, now_, &out_);
  ViewChange change;
  change.Close(1, {{0, 1}});
  proto::ShardClosed closed;
  closed.set_view(1);
  closed.add_clocks()->set_rank(0);
  closed.mutable_clocks(0)->set_applied(5);
  change.OnClosed({0, 1}, closed);
  work_->AddMembers(change, /*is_new_lineage=*/false, &*registry_, &view_);
  ASSERT_EQ(view_.members_size(), 2);
  EXPECT_FALSE(view_.members(0).has_start_clock()) << "it goes on with its own";
  EXPECT_EQ(view_.members(1).start_clock(), 5);
  EXPECT_EQ(view_.members(1).incarnation(), 2u);
}

}  // namespace
}  // namespace rubato
