#include "common/wire/data_service.h"

#include <vector>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "common/base/status_matchers.h"
#include "common/wire/listener.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

// What the coordinator sends to the shard in its own process: a Close that overtook its View would
// go unanswered for ever.
TEST(DataServiceTest, TasksRunInTheOrderInWhichTheyWerePosted) {
  constexpr int kTasks = 3000;
  const Log log("server", 0, LogLevel::kWarning, LogFormat::kText);
  DataService service("digest", /*share_memory=*/false, &log);
  absl::StatusOr<Listener> listener = Listener::Listen(
      "127.0.0.1:0", ConnectionOptions(), [](const std::string&) {},
      [&](grpc::ServerBuilder* builder) { service.Register(builder); });
  RUBATO_ASSERT_OK(listener);
  service.Start({});
  std::vector<int> order, expected;
  absl::Notification done;
  for (int i = 0; i < kTasks; ++i) {
    service.Post([&order, &done, i] {
      order.push_back(i);
      if (order.size() == kTasks) done.Notify();
    });
    expected.push_back(i);
    // Over a few seconds in all, at any distance from a tick of gRPC's clock.
    if (i % 2 == 1) absl::SleepFor(absl::Microseconds(37 * (i % 41)));
  }
  done.WaitForNotification();
  EXPECT_EQ(order, expected);
  listener->Shutdown();
  service.Stop();
}

}  // namespace
}  // namespace rubato
