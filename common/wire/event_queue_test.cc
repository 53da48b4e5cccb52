#include "common/wire/event_queue.h"

#include <grpcpp/alarm.h>
#include <grpcpp/grpcpp.h>
#include <time.h>

#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

class EventQueueTest : public ::testing::Test {
 protected:
  // The number of the event that ends next; -1 once the queue is shut down and empty.
  int64_t Next() {
    void* tag = nullptr;
    bool ok = false;
    if (!NextEvent(&queue_, &rule_, &tag, &ok)) return -1;
    EXPECT_TRUE(ok);
    return reinterpret_cast<intptr_t>(tag);
  }
  void Set(grpc::Alarm* alarm, int64_t number, int64_t milliseconds = 0) {
    alarm->Set(&queue_, std::chrono::system_clock::now() + std::chrono::milliseconds(milliseconds),
               reinterpret_cast<void*>(number));
  }

  grpc::CompletionQueue queue_;
  SpinRule rule_;
};

// Some are there already, some come during a spin, some after one in vain.
TEST_F(EventQueueTest, EachEventComesOnce) {
  constexpr int64_t kEvents = 2000;
  std::vector<grpc::Alarm> alarms(kEvents);
  std::thread source([&] {
    for (int64_t i = 0; i < kEvents; ++i) {
      Set(&alarms[i], i);
      if (i % 7 == 0) absl::SleepFor(absl::Microseconds(i % 400));
    }
  });
  std::vector<int> seen(kEvents);
  for (int64_t i = 0; i < kEvents; ++i) ++seen[Next()];
  source.join();
  EXPECT_EQ(seen, std::vector<int>(kEvents, 1));
  queue_.Shutdown();
  EXPECT_EQ(Next(), -1);
  EXPECT_EQ(Next(), -1);
}

// Of processor time, of which nobody else can take any: a thread that spun all the time would
// take all of the second.
TEST_F(EventQueueTest, WhoWaitsLongSleeps) {
  const auto processor_time = [] {
    timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
  };
  grpc::Alarm alarm;
  const double begin = processor_time();
  Set(&alarm, 1, 1000);
  EXPECT_EQ(Next(), 1);
  EXPECT_LT(processor_time() - begin, 0.1);
}

}  // namespace
}  // namespace rubato
