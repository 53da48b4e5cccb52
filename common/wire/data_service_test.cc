#include "common/wire/data_service.h"

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "common/base/status_matchers.h"
#include "common/wire/listener.h"
#include "common/wire/shard_streams.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

using ::testing::_;
using ::testing::AnyOf;
using ::testing::Each;
using ::testing::Lt;
using ::testing::Pair;

class DataServiceTest : public ::testing::Test {
 protected:
  // A service that listens on loopback, to be started.
  void Listen(const RateLimit& limit = RateLimit(kMaxMessagesAtOnce, kBetweenMessages)) {
    service_ = std::make_unique<DataService>("digest", /*share_memory=*/false, &log_, nullptr,
                                             ConnectionOptions(), limit);
    listener_ = Listener::Listen(
        "127.0.0.1:0", ConnectionOptions(), [](const std::string&) {},
        [this](grpc::ServerBuilder* builder) { service_->Register(builder); });
    RUBATO_ASSERT_OK(listener_);
  }
  // Before what the callbacks use is gone.
  void Stop() {
    listener_->Shutdown();
    service_->Stop();
  }

  const Log log_{"server", 0, LogLevel::kWarning, LogFormat::kText};
  std::unique_ptr<DataService> service_;
  absl::StatusOr<Listener> listener_;
};

// What the coordinator sends to the shard in its own process: a Close that overtook its View would
// go unanswered for ever.
TEST_F(DataServiceTest, TasksRunInTheOrderInWhichTheyWerePosted) {
  constexpr int kTasks = 3000;
  ASSERT_NO_FATAL_FAILURE(Listen());
  service_->Start({});
  std::vector<int> order, expected;
  absl::Notification done;
  for (int i = 0; i < kTasks; ++i) {
    service_->Post([&order, &done, i] {
      order.push_back(i);
      if (order.size() == kTasks) done.Notify();
    });
    expected.push_back(i);
    // Over a few seconds in all, at any distance from a tick of gRPC's clock.
    if (i % 2 == 1) absl::SleepFor(absl::Microseconds(37 * (i % 41)));
  }
  done.WaitForNotification();
  EXPECT_EQ(order, expected);
  Stop();
}

// A worker ends its streams while it handles an answer, and no read is under way: the server is
// told, and both ends end.
TEST_F(DataServiceTest, AStreamThatEndsWhileAFrameIsHandledIsGone) {
  ASSERT_NO_FATAL_FAILURE(Listen());
  absl::Notification gone;
  DataService::Callbacks callbacks;
  callbacks.on_frame = [&](uint64_t stream, const Frame& frame, const ReceivedValues&) {
    service_->Send(stream, frame, {});
    return absl::OkStatus();
  };
  callbacks.on_gone = [&](uint64_t) { gone.Notify(); };
  service_->Start(std::move(callbacks));
  absl::Notification handles;
  ShardStreams::Callbacks answers;
  answers.on_frame = [&](int, const Frame&, const ReceivedValues&) {
    handles.Notify();
    absl::SleepFor(absl::Milliseconds(200));
  };
  answers.on_failure = [](int, const absl::Status&) {};
  auto streams =
      std::make_unique<ShardStreams>(std::vector<std::string>{listener_->address()},
                                     StreamScope{"digest"}, ConnectionOptions(), answers);
  streams->Send(0, Frame(), {});
  handles.WaitForNotification();
  streams.reset();
  gone.WaitForNotification();
  Stop();
}

// Of two streams the one that sends too much is read on when its time has come.
TEST_F(DataServiceTest, MessagesOfAStreamAreReadAsOftenAsTheyMayBe) {
  constexpr uint64_t kMost = 3;
  ASSERT_NO_FATAL_FAILURE(Listen(RateLimit(kMost, absl::Seconds(10))));
  absl::Mutex mutex;
  std::vector<std::pair<uint32_t, uint64_t>> taken;  // by whom, which
  DataService::Callbacks callbacks;
  callbacks.on_frame = [&](uint64_t, const Frame& frame, const ReceivedValues&) {
    absl::MutexLock lock(&mutex);
    taken.emplace_back(frame.worker, frame.unit);
    return absl::OkStatus();
  };
  callbacks.on_gone = [](uint64_t) {};
  service_->Start(std::move(callbacks));
  {
    ShardStreams::Callbacks ignored;
    ignored.on_frame = [](int, const Frame&, const ReceivedValues&) {};
    ignored.on_failure = [](int, const absl::Status&) {};
    ShardStreams much({listener_->address()}, {"digest"}, ConnectionOptions(), ignored);
    ShardStreams little({listener_->address()}, {"digest"}, ConnectionOptions(), ignored);
    const auto send = [&](ShardStreams* streams, uint32_t worker, uint64_t unit) {
      Frame frame;
      frame.worker = worker;
      frame.unit = unit;
      streams->Send(0, frame, {});
    };
    const auto await = [&](size_t count) {
      const auto are_taken = [&] { return taken.size() >= count; };
      absl::MutexLock lock(&mutex);
      mutex.Await(absl::Condition(&are_taken));
    };
    for (uint64_t unit = 0; unit < kMost; ++unit) {
      send(&much, 1, unit);
      await(unit + 1);  // a message each
    }
    send(&much, 1, kMost);
    for (uint64_t unit = 0; unit < kMost; ++unit) {
      send(&little, 2, unit);
      await(kMost + unit + 1);
    }
    absl::MutexLock lock(&mutex);
    EXPECT_THAT(taken, Each(AnyOf(Pair(1, Lt(kMost)), Pair(2, _))));
  }
  Stop();
}

}  // namespace
}  // namespace rubato
