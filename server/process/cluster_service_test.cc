#include "server/process/cluster_service.h"

#include "absl/synchronization/notification.h"
#include "common/base/monotonic.h"
#include "common/base/status_matchers.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

constexpr char kDigest[] = "digest";

proto::PeerMessage Shard() {
  proto::PeerMessage message;
  message.mutable_registration()->set_version("1.0");
  message.mutable_registration()->set_job_digest(kDigest);
  return message;
}

proto::PeerMessage Worker() {
  proto::PeerMessage message = Shard();
  proto::WorkerRegistration* worker = message.mutable_registration()->mutable_worker();
  worker->set_rank(-1);
  worker->set_train_samples(20);
  worker->mutable_layout()->add_parameters()->add_shape(10);
  return message;
}

// A job of one shard and one worker.
proto::Job SmallJob() {
  proto::Job job;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
      "cluster { servers: 1 workers { start: 1 min: 1 max: 1 } address: '127.0.0.1:1' "
      "start_timeout: 600 lease: 0.1 stall_timeout: 600 } "
      "optimizer { learning_rate: 0.1 } consistency { mode { mode: NAME_ASYNC } } "
      "train { batch_size: 8 micro_batches: 4 until { epochs: 2 } } "
      "metrics { every { steps: 1 } } evaluation { every { epochs: 1 } }",
      &job));
  return job;
}

// It trains, and a checkpoint of it is about to be written.
void PostUpToACheckpoint(ClusterService* service) {
  service->Post(coordinator::FromPeer{kOwnShard, Shard()});
  service->Post(coordinator::FromPeer{1, Worker()});
  proto::PeerMessage opened;
  opened.mutable_shard_opened()->set_view(1);
  service->Post(coordinator::FromPeer{kOwnShard, opened});
  service->Post(coordinator::CheckpointRequested{});
  proto::PeerMessage copied;
  copied.mutable_snapshot_copied()->set_id(1);
  copied.mutable_snapshot_copied()->add_blocks();
  service->Post(coordinator::FromPeer{kOwnShard, copied});
}

class ClusterServiceTest : public ::testing::Test {
 protected:
  ClusterServiceTest() {
    outlets_.metrics = [](const MetricsLine&) {};
    outlets_.journal = [](const proto::View&, const std::string&) {};
    outlets_.to_own_shard = [](const proto::CoordinatorMessage&) {};
  }

  const Log log_{"server", 0, LogLevel::kError};
  ClusterService::Outlets outlets_;
};

// A checkpoint that takes until a silent worker has been taken for dead.
TEST_F(ClusterServiceTest, LeasesAreJudgedWhileACheckpointIsWritten) {
  absl::Notification lost;
  outlets_.to_own_shard = [&](const proto::CoordinatorMessage& message) {
    if (message.has_close()) lost.Notify();
  };
  ClusterService service(Coordinator(SmallJob(), kDigest, "1.0", {}, MonotonicNow()), nullptr,
                         outlets_, &log_);
  PostUpToACheckpoint(&service);
  ClusterService::Tasks tasks;
  tasks.checkpoint = [&](const proto::View&, uint32_t, const proto::Manifest&) {
    lost.WaitForNotification();
    service.Post(coordinator::Failed{absl::CancelledError("enough")});
    return absl::StatusOr<std::string>("a checkpoint");
  };
  EXPECT_THAT(service.Wait(tasks), IsError(absl::StatusCode::kCancelled, "enough"));
}

// One that would take for ever.
TEST_F(ClusterServiceTest, ACheckpointThatIsBeingWrittenIsStoppedWhenTheJobIsOver) {
  ClusterService service(Coordinator(SmallJob(), kDigest, "1.0", {}, MonotonicNow()), nullptr,
                         outlets_, &log_);
  PostUpToACheckpoint(&service);
  absl::Notification stopped;
  ClusterService::Tasks tasks;
  tasks.stop = [&] { stopped.Notify(); };
  tasks.checkpoint = [&](const proto::View&, uint32_t, const proto::Manifest&) {
    service.Post(coordinator::Failed{absl::CancelledError("enough")});
    stopped.WaitForNotification();
    return absl::StatusOr<std::string>(absl::CancelledError("stopped"));
  };
  EXPECT_THAT(service.Wait(tasks), IsError(absl::StatusCode::kCancelled, "enough"));
}

}  // namespace
}  // namespace rubato
