// A coordinator under test, and what it has told whom. Time moves by hand.
#ifndef RUBATO_SERVER_COORDINATOR_COORDINATOR_FIXTURE_H_
#define RUBATO_SERVER_COORDINATOR_COORDINATOR_FIXTURE_H_

#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "server/coordinator/coordinator.h"

namespace rubato {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

inline constexpr char kDigest[] = "0123456789abcdef";
inline const absl::Time kStart = absl::UnixEpoch() + absl::Hours(1);

class CoordinatorTest : public ::testing::Test {
 protected:
  // 2 shards, 2 workers, 4 micro-batches of a batch of 8; 20 samples: 3 steps an epoch; two epochs.
  void Start(const std::string& more = "") {
    proto::Job job;
    ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(
        "cluster { servers: 2 workers { start: 2 min: 1 max: 3 } address: '127.0.0.1:1' "
        "start_timeout: 60 "
        "} "
        "optimizer { learning_rate: 0.1 learning_rate_parity: true } "
        "consistency { mode { mode: NAME_SYNC } } "
        "train { batch_size: 8 micro_batches: 4 until { epochs: 2 } } "
        "metrics { every { steps: 1 } } "
        "wire { chunk: 32 }",  // 10 values are two blocks, one a shard
        &job));
    proto::Job changes;
    ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(more, &changes));
    job.MergeFrom(changes);
    // What the YAML reader fills in.
    job.mutable_evaluation()->mutable_every()->set_epochs(1);
    coordinator_ = std::make_unique<Coordinator>(job, kDigest, "1.0", begin_, kStart);
  }

  static proto::PeerMessage Shard(int shard) {
    proto::PeerMessage message;
    proto::Registration* registration = message.mutable_registration();
    registration->set_version("1.0");
    registration->set_job_digest(kDigest);
    registration->set_address(absl::StrCat("host:", shard));
    registration->set_shard(shard);
    registration->set_process(absl::StrCat("host pid ", shard));
    return message;
  }

  static proto::PeerMessage Worker(int rank = -1, const std::string& data = "data") {
    proto::PeerMessage message = Shard(0);
    proto::WorkerRegistration* worker = message.mutable_registration()->mutable_worker();
    worker->set_rank(rank);
    worker->set_data_digest(data);
    worker->set_train_samples(20);
    worker->set_numerics("cpu");
    worker->mutable_layout()->add_parameters()->add_shape(10);
    return message;
  }

  // What the person who asked is answered, if one did.
  absl::StatusOr<std::string> Handle(const coordinator::Event& event) {
    absl::StatusOr<std::string> answer = "";
    for (const coordinator::Outcome& outcome : coordinator_->Handle(event, now_)) {
      if (const auto* send = std::get_if<coordinator::Send>(&outcome)) {
        sent_[send->peer].push_back(send->message);
      } else if (const auto* warn = std::get_if<coordinator::Warn>(&outcome)) {
        warnings_.push_back(warn->text);
      } else if (const auto* log = std::get_if<coordinator::Log>(&outcome)) {
        logs_.push_back(log->text);
      } else if (const auto* line = std::get_if<MetricsLine>(&outcome)) {
        lines_.push_back(*line);
      } else if (const auto* collect = std::get_if<coordinator::Collect>(&outcome)) {
        collect_ = collect->version;
      } else if (const auto* end = std::get_if<coordinator::End>(&outcome)) {
        end_ = end->status;
        lost_shard_ = end->lost_shard;
      } else if (const auto* keep = std::get_if<coordinator::Keep>(&outcome)) {
        kept_.push_back(keep->lasting);
      } else if (std::holds_alternative<coordinator::Restore>(outcome)) {
        ++restores_;
      } else if (const auto* save = std::get_if<coordinator::SaveValues>(&outcome)) {
        saves_.push_back(*save);
      } else if (const auto* save = std::get_if<coordinator::SaveData>(&outcome)) {
        described_.push_back(save->data.target());
      } else if (const auto* write = std::get_if<coordinator::WriteCheckpoint>(&outcome)) {
        manifests_.push_back(write->manifest);
        snapshots_.push_back(write->snapshot);
      } else if (const auto* journal = std::get_if<coordinator::Journal>(&outcome)) {
        journal_.push_back(journal->reason);
        goes_back_ = goes_back_ || journal->goes_back;
      } else if (const auto* text = std::get_if<coordinator::Answer>(&outcome)) {
        answer = text->text;
      }
    }
    return answer;
  }

  void Receive(PeerId peer, const proto::PeerMessage& message) {
    Handle(coordinator::FromPeer{peer, message}).IgnoreError();
  }

  // All register and the shards open: peers 0, 1 are shards, 2 and 3 are workers.
  void Begin() {
    Receive(2, Worker());
    Receive(3, Worker());
    Receive(kOwnShard, Shard(0));
    Receive(1, Shard(1));
    Opened();
  }

  void Opened() {
    proto::PeerMessage opened;
    opened.mutable_shard_opened()->set_view(1);
    Receive(kOwnShard, opened);
    EXPECT_THAT(sent_[2], IsEmpty()) << "workers hear of a view when all shards have opened it";
    Receive(1, opened);
  }
  // Both shards have what they were to read.
  void Restored() {
    proto::PeerMessage restored;
    restored.mutable_shard_restored();
    Receive(kOwnShard, restored);
    Receive(1, restored);
  }

  static proto::PeerMessage Computed(int64_t unit, Range leaves, double loss, int64_t samples) {
    proto::PeerMessage message;
    proto::Progress* progress = message.mutable_progress();
    progress->set_unit(unit);
    progress->set_first_leaf(leaves.begin);
    for (int64_t leaf = leaves.begin; leaf < leaves.end; ++leaf) {
      progress->add_loss_sum(loss * samples);
      progress->add_correct(0.75);  // of two samples with labels in several places
      progress->add_samples(samples);
    }
    return message;
  }

  static proto::PeerMessage Evaluated(int64_t unit) {
    proto::PeerMessage message;
    message.mutable_evaluation()->set_unit(unit);
    message.mutable_evaluation()->set_samples(20);
    return message;
  }

  proto::PeerMessage Idle(int64_t applied = 0) const {
    proto::PeerMessage message;
    message.mutable_idle()->set_view(coordinator_->view().number());
    message.mutable_idle()->set_applied(applied);
    return message;
  }

  // Both shards have closed the view with their blocks at these versions.
  void Close(int64_t version0, int64_t version1) {
    for (const PeerId shard : {kOwnShard, PeerId{1}}) {
      ASSERT_TRUE(sent_[shard].back().has_close()) << shard;
    }
    for (const PeerId shard : {kOwnShard, PeerId{1}}) {
      proto::PeerMessage message;
      proto::ShardClosed* closed = message.mutable_shard_closed();
      closed->set_view(coordinator_->view().number());
      closed->set_lowest_version(shard == 0 ? version0 : version1);
      closed->set_highest_version(shard == 0 ? version0 : version1);
      closed->set_units_below(units_below_);
      Receive(shard, message);
    }
  }

  // The last checkpoint, which has just been asked for, is taken and written.
  void SaveLast() {
    ASSERT_TRUE(sent_[1].back().has_snapshot());
    const uint32_t id = sent_[1].back().snapshot().id();
    for (const PeerId shard : {kOwnShard, PeerId{1}}) {
      proto::PeerMessage copied;
      copied.mutable_snapshot_copied()->set_id(id);
      copied.mutable_snapshot_copied()->add_blocks()->set_block(static_cast<int64_t>(shard));
      Receive(shard, copied);
    }
    Checkpointed(id, std::string("the last"));
  }

  void Gone(PeerId peer) { Handle(coordinator::PeerGone{peer}).IgnoreError(); }
  // Behind a heartbeat of shard 1.
  void Tick() {
    proto::HeartbeatRequest request;
    request.set_job_digest(kDigest);
    request.set_shard(1);
    if (!is_shard_silent_) Handle(coordinator::Heartbeat{request}).IgnoreError();
    Handle(coordinator::Tick{}).IgnoreError();
  }
  // Time passes; of two workers those of `busy` are at one thing, and the other waits.
  void Work(double seconds, const std::vector<int>& busy) {
    for (int tenth = 0; tenth < static_cast<int>(seconds * 10 + 0.5); ++tenth) {
      now_ += absl::Milliseconds(100);
      for (const int rank : {0, 1}) {
        busy_[rank] = std::count(busy.begin(), busy.end(), rank) > 0 ? busy_[rank] + 1 : 0;
        Beat(rank, busy_[rank] / 10.0);
      }
      Tick();
    }
  }
  // A worker's.
  void Beat(int rank, double busy_seconds = 0) {
    proto::HeartbeatRequest request;
    request.set_job_digest(kDigest);
    request.set_rank(rank);
    request.set_incarnation(1);
    request.set_busy_seconds(busy_seconds);
    Handle(coordinator::Heartbeat{request}).IgnoreError();
  }
  void Stop(const absl::Status& end) { Handle(coordinator::StopRequested{end, ""}).IgnoreError(); }
  void Checkpointed(uint32_t id, const absl::StatusOr<std::string>& path) {
    Handle(coordinator::Checkpointed{id, path}).IgnoreError();
  }

  // "0: 0-2, 1: 2-4" for each assignment of the last view sent to the peer.
  std::vector<std::string> Assignments(PeerId peer) {
    std::vector<std::string> texts;
    for (const proto::Assignment& assignment : sent_[peer].back().view().assignments()) {
      std::vector<std::string> grants;
      for (const proto::Grant& grant : assignment.grants()) {
        grants.push_back(
            absl::StrCat(grant.rank(), ":", grant.first_leaf(), "-", grant.end_leaf()));
      }
      texts.push_back(absl::StrCat(assignment.from_step(), " ", absl::StrJoin(grants, " ")));
    }
    return texts;
  }

  std::string Reason(PeerId peer) {
    return sent_[peer].empty() ? "" : sent_[peer].back().stop().reason();
  }

  absl::Time now_ = kStart;
  std::unique_ptr<Coordinator> coordinator_;
  std::map<PeerId, std::vector<proto::CoordinatorMessage>> sent_;
  std::vector<std::string> warnings_, logs_, journal_;
  bool goes_back_ = false;  // as a view in the journal has said
  int64_t units_below_ = 0;
  bool is_shard_silent_ = false;
  std::array<int, 2> busy_{};  // tenths of a second, by rank
  std::vector<MetricsLine> lines_;
  std::optional<int64_t> collect_;
  std::optional<absl::Status> end_;
  std::optional<int> lost_shard_;  // if only the term has ended
  std::vector<proto::Lasting> kept_;
  Coordinator::Begin begin_;
  std::vector<proto::Manifest> manifests_;
  std::vector<uint32_t> snapshots_;
  int restores_ = 0;
  std::vector<coordinator::SaveValues> saves_;
  std::vector<std::string> described_;  // the targets of data
};

// What the last message to both shards was.
#define EXPECT_LAST_TO_SHARDS(has_what)                 \
  for (const PeerId shard : {kOwnShard, PeerId{1}}) {   \
    ASSERT_FALSE(sent_[shard].empty());                 \
    EXPECT_TRUE(sent_[shard].back().has_what) << shard; \
  }

inline proto::PeerMessage Copied(uint32_t id, int64_t block, int64_t version) {
  proto::PeerMessage message;
  message.mutable_snapshot_copied()->set_id(id);
  proto::BlockState* state = message.mutable_snapshot_copied()->add_blocks();
  state->set_block(block);
  state->set_version(version);
  return message;
}

}  // namespace rubato

#endif  // RUBATO_SERVER_COORDINATOR_COORDINATOR_FIXTURE_H_
