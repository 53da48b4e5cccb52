#include "server/coordinator/starting.h"

#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

using ::testing::HasSubstr;

const absl::Time kStart = absl::UnixEpoch();
const absl::Time kDeadline = kStart + absl::Seconds(60);

// Two shards, two workers, of which one would do.
class StartingTest : public ::testing::Test {
 protected:
  StartingTest() : registry_(Job(), "digest", "1.0") {}

  static proto::Job Job() {
    proto::Job job;
    job.mutable_cluster()->set_servers(2);
    job.mutable_cluster()->set_address("127.0.0.1:1");
    job.mutable_cluster()->set_start_timeout(60);
    job.mutable_cluster()->mutable_workers()->set_start(2);
    job.mutable_cluster()->mutable_workers()->set_min(1);
    job.mutable_cluster()->mutable_workers()->set_max(2);
    return job;
  }

  void AddShard(int number) {
    proto::Registration registration;
    registration.set_shard(number);
    registry_.Add(static_cast<PeerId>(number), registration, kStart, &out_);
  }

  void AddWorker(PeerId id) {
    proto::Registration registration;
    registration.mutable_worker();
    registry_.Add(id, registration, kStart, &out_);
  }

  coordinator::Outcomes out_;
  Registry registry_;
};

TEST_F(StartingTest, IsReadyWhenAllAreHere) {
  Starting starting(Job(), std::nullopt, "", /*initial=*/false, {}, kStart);
  AddShard(0);
  AddShard(1);
  AddWorker(2);
  EXPECT_FALSE(*starting.IsReady(registry_, /*stops=*/false, kStart, &out_));
  AddWorker(3);
  EXPECT_TRUE(*starting.IsReady(registry_, /*stops=*/false, kStart, &out_));
  EXPECT_TRUE(out_.empty());
}

TEST_F(StartingTest, AfterTheDeadlineFewerWorkersDoButNoFewerShards) {
  Starting starting(Job(), std::nullopt, "", /*initial=*/false, {}, kStart);
  AddShard(0);
  AddWorker(2);
  EXPECT_THAT(
      std::string(
          starting.IsReady(registry_, /*stops=*/false, kDeadline, &out_).status().message()),
      HasSubstr("waited 1m (cluster.start_timeout) at 127.0.0.1:1: shard 1 and 1 of 2 workers did "
                "not come"));
  AddShard(1);
  EXPECT_TRUE(*starting.IsReady(registry_, /*stops=*/false, kDeadline, &out_));
  EXPECT_THAT(std::get<coordinator::Warn>(out_.back()).text,
              HasSubstr("begins with 1 of 2 workers: the others have not come within 1m "
                        "(cluster.start_timeout)"));
  // While a worker gives the values that the job begins with.
  out_.clear();
  EXPECT_TRUE(*starting.IsReady(registry_, /*stops=*/false, kDeadline, &out_));
  EXPECT_TRUE(out_.empty()) << "it has been told";
}

// To start the job again would not help.
TEST_F(StartingTest, WhoWasRefusedIsTheReasonThatNobodyElseCame) {
  Starting starting(Job(), std::nullopt, "", /*initial=*/false, {}, kStart);
  AddShard(0);
  AddShard(1);
  starting.OnRefused("refused host pid 7: the data differ");
  EXPECT_FALSE(*starting.IsReady(registry_, /*stops=*/false, kStart, &out_));
  EXPECT_THAT(starting.IsReady(registry_, /*stops=*/false, kDeadline, &out_).status(),
              IsError(absl::StatusCode::kFailedPrecondition,
                      HasSubstr("2 of 2 workers did not come; refused host pid 7")));
  AddWorker(2);
  EXPECT_TRUE(*starting.IsReady(registry_, /*stops=*/false, kDeadline, &out_));
}

// What is missing may yet come, and who is refused has nothing to do with it.
TEST_F(StartingTest, WhoWasRefusedIsNoReasonToGiveUpWhereOthersCame) {
  {
    Starting starting(Job(), std::nullopt, "", /*initial=*/false, {}, kStart);
    AddShard(0);
    starting.OnRefused("refused host pid 7: the seed differs");
    EXPECT_THAT(starting.IsReady(registry_, /*stops=*/false, kDeadline, &out_).status(),
                IsError(absl::StatusCode::kFailedPrecondition, HasSubstr("refused host pid 7")));
    AddWorker(2);
    EXPECT_THAT(starting.IsReady(registry_, /*stops=*/false, kDeadline, &out_).status(),
                IsError(absl::StatusCode::kDeadlineExceeded,
                        HasSubstr("shard 1 and 1 of 2 workers did not come; refused host pid 7")));
  }
  proto::Job job = Job();
  job.mutable_cluster()->mutable_workers()->set_min(2);
  Starting starting(job, std::nullopt, "", /*initial=*/false, {}, kStart);
  AddShard(1);
  starting.OnRefused("refused host pid 7: the seed differs");
  EXPECT_THAT(starting.IsReady(registry_, /*stops=*/false, kDeadline, &out_).status(),
              IsError(absl::StatusCode::kDeadlineExceeded,
                      HasSubstr("1 of 2 workers did not come; refused host pid 7")));
}

// As many workers as the last view had, and these have a lease to come once all shards are here.
TEST_F(StartingTest, WhoGoesBackWaitsForShardsLongAndForWorkersALease) {
  proto::Job job = Job();
  job.mutable_cluster()->set_lease(5);
  job.mutable_cluster()->mutable_workers()->set_start(3);
  proto::RunState before;
  before.set_term(2);
  before.mutable_lasting()->set_workers(2);
  Starting starting(job, std::nullopt, "", /*initial=*/false, before, kStart);
  AddShard(0);
  AddWorker(2);
  EXPECT_FALSE(*starting.IsReady(registry_, /*stops=*/false, kStart + absl::Seconds(30), &out_));
  AddShard(1);
  EXPECT_FALSE(*starting.IsReady(registry_, /*stops=*/false, kStart + absl::Seconds(31), &out_));
  EXPECT_FALSE(*starting.IsReady(registry_, /*stops=*/false, kStart + absl::Seconds(35.9), &out_));
  EXPECT_TRUE(*starting.IsReady(registry_, /*stops=*/false, kStart + absl::Seconds(36), &out_));
  EXPECT_TRUE(out_.empty());
  AddWorker(3);
  EXPECT_TRUE(*starting.IsReady(registry_, /*stops=*/false, kStart, &out_));
  registry_.Remove(2);
  registry_.Remove(3);
  EXPECT_FALSE(*starting.IsReady(registry_, /*stops=*/false, kDeadline, &out_)) << "it pauses";
  EXPECT_FALSE(*starting.IsReady(registry_, /*stops=*/true, kDeadline, &out_)) << "nobody is here";
  registry_.Remove(1);
  EXPECT_FALSE(*starting.IsReady(registry_, /*stops=*/false, kStart + absl::Seconds(40), &out_));
  EXPECT_THAT(
      std::string(
          starting.IsReady(registry_, /*stops=*/false, kDeadline, &out_).status().message()),
      HasSubstr("shard 1 and 2 of 2 workers did not come"));
}

TEST_F(StartingTest, TheTrainingBeginsWhenEachShardHasOpenedAndRestored) {
  proto::View view;
  view.mutable_layout()->add_parameters()->add_shape(16);
  proto::Job job = Job();
  job.mutable_wire()->set_chunk(32);  // two blocks of 8 values
  const Placement placement = Placement::Even(SpaceOf(job, view.layout()), 2);
  Starting starting(job, std::nullopt, "", /*initial=*/true, {}, kStart);
  AddShard(0);
  AddShard(1);
  starting.Open(view, registry_, &out_);
  EXPECT_FALSE(starting.OnOpened({0, 1}, placement, registry_, &out_));
  EXPECT_FALSE(starting.OnOpened({0, 1}, placement, registry_, &out_)) << "for the second time";
  EXPECT_EQ(starting.state(), Starting::State::kOpening);
  EXPECT_FALSE(starting.OnOpened({1, 1}, placement, registry_, &out_));
  EXPECT_EQ(starting.state(), Starting::State::kRestoring);
  EXPECT_EQ(std::get<coordinator::Restore>(out_.back()).shards, (std::vector<int>{0, 1}));
  EXPECT_FALSE(starting.OnRestored({1, 1}, {}, &out_));
  EXPECT_FALSE(starting.OnRestored({1, 2}, {}, &out_)) << "nobody asked it";
  EXPECT_TRUE(starting.OnRestored({0, 1}, {}, &out_));
  EXPECT_EQ(starting.state(), Starting::State::kDone);
}

// Each is told where the checkpoint lies; who does not see it is sent its floats, once.
TEST_F(StartingTest, ShardsThatDoNotSeeTheCheckpointAreSentTheirFloats) {
  proto::View view;
  view.mutable_layout()->add_parameters()->add_shape(16);
  proto::Job job = Job();
  job.mutable_wire()->set_chunk(32);
  const Placement placement = Placement::Even(SpaceOf(job, view.layout()), 2);
  proto::Manifest resume;
  resume.set_step(7);
  resume.set_digest("d");
  resume.add_blocks()->add_checksums(1);
  Starting starting(job, resume, "/somewhere", /*initial=*/false, {}, kStart);
  AddShard(0);
  AddShard(1);
  starting.Open(view, registry_, &out_);
  starting.OnOpened({0, 1}, placement, registry_, &out_);
  starting.OnOpened({1, 1}, placement, registry_, &out_);
  const proto::Restore& restore = std::get<coordinator::Send>(out_.back()).message.restore();
  EXPECT_EQ(restore.path(), "/somewhere");
  EXPECT_EQ(restore.digest(), "d");
  EXPECT_EQ(restore.blocks(0).checksums_size(), 0) << "of blocks that may be cut otherwise";
  out_.clear();
  proto::ShardRestored unseen;
  unseen.set_unseen(true);
  EXPECT_FALSE(starting.OnRestored({1, 1}, unseen, &out_));
  EXPECT_FALSE(starting.OnRestored({1, 1}, unseen, &out_));
  EXPECT_FALSE(starting.OnRestored({1, 2}, unseen, &out_)) << "nobody asked it";
  ASSERT_EQ(out_.size(), 2u);
  EXPECT_EQ(std::get<coordinator::Restore>(out_[1]).shards, std::vector<int>{1});
  EXPECT_FALSE(starting.OnRestored({0, 1}, {}, &out_));
  EXPECT_TRUE(starting.OnRestored({1, 1}, {}, &out_));
}

TEST_F(StartingTest, AScriptWhoseFrozenParametersAreOthersDoesNotGoOn) {
  proto::WorkerRegistration worker;
  const auto freeze = [](const char* name, const char* digest, proto::Layout* layout) {
    layout->add_constants()->set_name(name);
    layout->mutable_constants(layout->constants_size() - 1)->set_digest(digest);
  };
  freeze("body.weight", "5f", worker.mutable_layout());
  const auto check = [&](const proto::Manifest& resume) {
    return Starting(Job(), resume, "/somewhere", /*initial=*/false, {}, kStart).CheckData(worker);
  };
  proto::Manifest resume;
  resume.set_mode(proto::Manifest::MODE_SYNC);
  // Of one that trained it the values would be lost.
  EXPECT_THAT(check(resume),
              IsError(absl::StatusCode::kFailedPrecondition,
                      "this worker's parameters differ from those that the checkpoint was made "
                      "with: found 1 that are not trained, expected 0; with others frozen, begin a "
                      "new job, whose script loads what job.save of the one before has written"));
  freeze("body.weight", "60", resume.mutable_layout());
  EXPECT_THAT(check(resume), IsError(absl::StatusCode::kFailedPrecondition,
                                     HasSubstr("body.weight, which is not trained: found other")));
  resume.mutable_layout()->mutable_constants(0)->set_digest("5f");
  RUBATO_EXPECT_OK(check(resume));
  // What shards have kept has no such manifest: they have compared the layout.
  Starting kept(Job(), resume, "/somewhere", /*initial=*/false, {}, kStart);
  kept.GoOnWith(proto::Manifest());
  RUBATO_EXPECT_OK(kept.CheckData(worker));
}

// 2 MiB at 4 MiB a second, rounded up, beside the two minutes. What the coordinator itself stood
// still for proves nothing.
TEST_F(StartingTest, AShardThatReadsForEverIsFound) {
  proto::View view;
  view.mutable_layout()->add_parameters()->add_shape(1 << 19);
  proto::Job job = Job();
  job.mutable_wire()->set_chunk(1 << 20);
  const Placement placement = Placement::Even(SpaceOf(job, view.layout()), 2);
  proto::Manifest resume;
  resume.add_slots("momentum_buffer");
  resume.add_blocks();
  Starting starting(job, resume, "/somewhere", /*initial=*/false, {}, kStart);
  AddShard(0);
  AddShard(1);
  starting.Open(view, registry_, &out_);
  starting.OnOpened({0, 1}, placement, registry_, &out_);
  starting.OnOpened({1, 1}, placement, registry_, &out_);
  EXPECT_EQ(starting.patience(), absl::Seconds(121));
  EXPECT_FALSE(starting.OnRestored({0, 1}, {}, &out_));
  absl::Time now = kStart;
  EXPECT_EQ(starting.LateReader(now), std::nullopt);
  now += absl::Hours(1);
  EXPECT_EQ(starting.LateReader(now), std::nullopt) << "the coordinator stood still";
  for (int second = 1; second < 121; ++second) {
    now += absl::Seconds(1);
    ASSERT_EQ(starting.LateReader(now), std::nullopt) << second;
  }
  now += absl::Seconds(1);
  EXPECT_EQ(starting.LateReader(now), (ShardId{1, 1}));
  proto::ShardRestored unseen;
  unseen.set_unseen(true);
  starting.OnRestored({1, 1}, unseen, &out_);
  EXPECT_EQ(starting.LateReader(now), std::nullopt) << "it is sent its floats";
}

// After a change of mode blocks may have been trained on unlike numbers of samples.
TEST_F(StartingTest, EachBlockGoesOnWithItsOwnAccountHoweverTheBlocksAreCut) {
  proto::View view;
  view.mutable_layout()->add_parameters()->add_shape(32);
  proto::Manifest resume;
  resume.set_mode(proto::Manifest::MODE_SYNC);
  resume.set_step(7);
  resume.set_block_values(16);
  for (int block : {0, 1}) {
    proto::BlockState* state = resume.add_blocks();
    state->set_block(block);
    state->set_version(7);
    state->set_samples(100 + block);
    state->set_skipped(block);
  }
  AddShard(0);
  AddShard(1);
  for (const auto& [chunk, samples] : std::map<int, std::vector<int64_t>>{
           {64, {100, 101}}, {32, {100, 100, 101, 101}}, {128, {100}}}) {
    SCOPED_TRACE(chunk);
    proto::Job job = Job();
    job.mutable_wire()->set_chunk(chunk);
    const Placement placement = Placement::Even(SpaceOf(job, view.layout()), 2);
    Starting starting(job, resume, "", /*initial=*/false, {}, kStart);
    starting.Open(view, registry_, &out_);
    out_.clear();
    for (int shard : {0, 1}) starting.OnOpened({shard, 1}, placement, registry_, &out_);
    std::map<int64_t, int64_t> restored;
    for (const coordinator::Outcome& outcome : out_) {
      const auto* send = std::get_if<coordinator::Send>(&outcome);
      if (send == nullptr) continue;
      for (const proto::BlockState& block : send->message.restore().blocks()) {
        restored[block.block()] = block.samples();
        EXPECT_EQ(block.skipped(), block.samples() - 100);
        EXPECT_EQ(block.units_below(), 7);
      }
    }
    std::vector<int64_t> in_order;
    for (const auto& [block, count] : restored) in_order.push_back(count);
    EXPECT_EQ(in_order, samples);
  }
}

}  // namespace
}  // namespace rubato
