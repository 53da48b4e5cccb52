#include "server/process/cluster_service.h"

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/synchronization/notification.h"
#include "common/base/monotonic.h"
#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "server/coordinator/control_call.h"

namespace rubato {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

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

// A job of one shard and two workers.
proto::Job SmallJob() {
  proto::Job job;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
      "cluster { servers: 1 workers { start: 2 min: 1 max: 2 } address: '127.0.0.1:1' "
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
  service->Post(coordinator::FromPeer{2, Worker()});
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
    outlets_.journal = [](const coordinator::Journal&) {};
    outlets_.to_own_shard = [](const proto::CoordinatorMessage&) {};
  }

  const Log log_{"server", 0, LogLevel::kError};
  ClusterService::Outlets outlets_;
};

// A checkpoint that takes until a silent worker has been taken for dead, while the other is heard.
TEST_F(ClusterServiceTest, LeasesAreJudgedWhileACheckpointIsWritten) {
  absl::Notification lost;
  outlets_.to_own_shard = [&](const proto::CoordinatorMessage& message) {
    if (message.has_close()) lost.Notify();
  };
  ClusterService service(Coordinator(SmallJob(), kDigest, "1.0", {}, MonotonicNow()), nullptr,
                         outlets_, &log_);
  PostUpToACheckpoint(&service);
  ClusterService::Tasks tasks;
  tasks.checkpoint = [&](const proto::View&, const coordinator::WriteCheckpoint&) {
    proto::HeartbeatRequest alive;
    alive.set_job_digest(kDigest);
    alive.set_rank(0);
    alive.set_incarnation(1);
    while (!lost.HasBeenNotified()) service.Post(coordinator::Heartbeat{alive});
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
  tasks.checkpoint = [&](const proto::View&, const coordinator::WriteCheckpoint&) {
    service.Post(coordinator::Failed{absl::CancelledError("enough")});
    stopped.WaitForNotification();
    return absl::StatusOr<std::string>(absl::CancelledError("stopped"));
  };
  EXPECT_THAT(service.Wait(tasks), IsError(absl::StatusCode::kCancelled, "enough"));
}

// A call that says nothing, and the first thing that it is told.
struct SilentCall {
  grpc::ClientContext context;
  std::unique_ptr<grpc::ClientAsyncReaderWriter<proto::PeerMessage, proto::CoordinatorMessage>>
      stream;
  proto::CoordinatorMessage told;
};

TEST_F(ClusterServiceTest, OfTooManyWhoCallAndSayNothingSomeAreRefused) {
  constexpr int kMaxSilent = 1024, kMore = 3;
  ClusterService service(Coordinator(SmallJob(), kDigest, "1.0", {}, MonotonicNow()), nullptr,
                         outlets_, &log_);
  grpc::ServerBuilder builder;
  service.Register(ClusterService::Beside::kNothing, &builder);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  service.Start();
  const auto stub = proto::Coordination::NewStub(server->InProcessChannel({}));
  grpc::CompletionQueue queue;
  std::vector<std::unique_ptr<SilentCall>> calls;
  for (int i = 0; i < kMaxSilent + kMore; ++i) {
    SilentCall& call = *calls.emplace_back(std::make_unique<SilentCall>());
    call.stream = stub->AsyncJoin(&call.context, &queue, nullptr);
    void* started = nullptr;
    bool ok = false;
    ASSERT_TRUE(queue.Next(&started, &ok) && ok);
  }
  for (const auto& call : calls) call->stream->Read(&call->told, call.get());
  for (int i = 0; i < kMore; ++i) {
    void* refused = nullptr;
    bool ok = false;
    ASSERT_TRUE(queue.Next(&refused, &ok) && ok);
    const proto::Stop& stop = static_cast<const SilentCall*>(refused)->told.stop();
    EXPECT_TRUE(stop.refused());
    EXPECT_EQ(stop.reason(), "too many processes have called and said nothing; try again later");
  }
  for (const auto& call : calls) call->context.TryCancel();
  int others = 0;
  void* call = nullptr;
  for (bool ok = false; others < kMaxSilent && queue.Next(&call, &ok); ++others) EXPECT_FALSE(ok);
  queue.Shutdown();
  server->Shutdown();
  service.Stop();
}

// What somebody is told who sends this one message.
class JoinTest : public ClusterServiceTest {
 protected:
  JoinTest() {
    grpc::ServerBuilder builder;
    service_.Register(ClusterService::Beside::kNothing, &builder);
    server_ = builder.BuildAndStart();
    service_.Start();
    service_.Post(coordinator::FromPeer{kOwnShard, Shard()});
  }
  ~JoinTest() override {
    server_->Shutdown();
    service_.Stop();
  }

  std::vector<std::string> AnswersTo(const proto::PeerMessage& message) {
    grpc::ClientContext context;
    const auto call = proto::Coordination::NewStub(server_->InProcessChannel({}))->Join(&context);
    call->Write(message);
    std::vector<std::string> answers;
    for (proto::CoordinatorMessage answer; call->Read(&answer);) {
      answers.push_back(answer.stop().reason());
    }
    return answers;
  }

  ClusterService service_{Coordinator(SmallJob(), kDigest, "1.0", {}, MonotonicNow()), nullptr,
                          outlets_, &log_};
  std::unique_ptr<grpc::Server> server_;
};

TEST_F(JoinTest, MessagesThatComeTogetherAreTakenInOrder) {
  proto::PeerMessage leave;
  leave.mutable_leave()->set_applied(0);
  proto::PeerMessage worker = Worker();
  *worker.add_then() = leave;
  EXPECT_THAT(AnswersTo(worker), ElementsAre("it has left"));
  *leave.add_then() = Worker();
  EXPECT_THAT(AnswersTo(leave),
              ElementsAre(HasSubstr("a call begins with a registration, found leave")));
}

TEST_F(JoinTest, WhatFollowsAMessageHasNothingBehindIt) {
  proto::PeerMessage worker = Worker();
  // Values may come from who is no member yet, and a request for work may not.
  worker.add_then()->mutable_initial_values();
  worker.mutable_then(0)->add_then()->mutable_work_request();
  worker.add_then()->mutable_leave()->set_applied(0);
  EXPECT_THAT(AnswersTo(worker), ElementsAre("it has left"));
}

TEST_F(JoinTest, WhoSendsMoreTogetherThanMayBeIsGone) {
  proto::PeerMessage worker = Worker();
  for (int i = 0; i < ControlCall::kMaxTogether; ++i) worker.add_then();
  EXPECT_THAT(AnswersTo(worker), IsEmpty());
}

}  // namespace
}  // namespace rubato
