#include "common/wire/heartbeat.h"

#include <memory>

#include "absl/status/statusor.h"
#include "common/base/status_matchers.h"
#include "common/wire/listener.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

// A coordinator that answers heartbeats for as long as it is told to.
class Coordinator : public proto::Coordination::CallbackService {
 public:
  grpc::ServerUnaryReactor* Heartbeat(grpc::CallbackServerContext* context,
                                      const proto::HeartbeatRequest*,
                                      proto::HeartbeatReply*) override {
    MonotonicLock lock(&mutex_);
    if (!answers_) {
      ++in_vain_;
      return new Unanswered;
    }
    grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }

  void StopAnswering() {
    MonotonicLock lock(&mutex_);
    answers_ = false;
  }
  // So many heartbeats have come in vain.
  void AwaitInVain(int count) {
    MonotonicLock lock(&mutex_);
    const auto have_come = [&]()
                               ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return in_vain_ >= count; };
    mutex_.Await(absl::Condition(&have_come));
  }

 private:
  // Until it is given up.
  struct Unanswered : grpc::ServerUnaryReactor {
    void OnCancel() override { Finish(grpc::Status::CANCELLED); }
    void OnDone() override { delete this; }
  };

  MonotonicMutex mutex_;
  bool answers_ ABSL_GUARDED_BY(mutex_) = true;
  int in_vain_ ABSL_GUARDED_BY(mutex_) = 0;
};

TEST(HeartbeatTest, TellsWhenTheCoordinatorAnsweredTheLastTime) {
  Coordinator coordinator;
  ConnectionOptions connection;
  connection.lease = absl::Milliseconds(500);
  const absl::StatusOr<Listener> listener = Listener::Listen(
      "127.0.0.1:0", connection, [](const std::string&) {},
      [&](auto* builder) { builder->RegisterService(&coordinator); });
  ASSERT_THAT(listener, IsOk());
  const absl::Time before = MonotonicNow();
  const Heartbeat heartbeat(
      listener->address(), {}, [] { return absl::ZeroDuration(); }, connection);
  const absl::Time begun = heartbeat.heard_at();
  EXPECT_GE(begun, before);
  while (heartbeat.heard_at() == begun) {
  }
  coordinator.StopAnswering();
  coordinator.AwaitInVain(2);  // the first was given up
  const absl::Time heard = heartbeat.heard_at();
  EXPECT_GT(heard, begun);
  coordinator.AwaitInVain(4);
  EXPECT_EQ(heartbeat.heard_at(), heard);
}

}  // namespace
}  // namespace rubato
