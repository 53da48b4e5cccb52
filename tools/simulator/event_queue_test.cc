#include "tools/simulator/event_queue.h"

#include <algorithm>
#include <vector>

#include "common/base/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

using ::testing::ElementsAre;

class Recorder : public EventQueue::Handler {
 public:
  explicit Recorder(EventQueue* queue) : queue_(queue) {}
  void OnEvent(uint64_t argument) override {
    happened.push_back(argument);
    times.push_back(queue_->now());
  }

  std::vector<uint64_t> happened;
  std::vector<SimTime> times;

 private:
  EventQueue* queue_;
};

TEST(EventQueueTest, EventsHappenByTimeAndThenInTheOrderOfScheduling) {
  EventQueue queue;
  Recorder recorder(&queue);
  queue.Schedule(5, &recorder, 1);
  queue.Schedule(3, &recorder, 2);
  queue.Schedule(5, &recorder, 3);
  queue.Schedule(3, &recorder, 4, EventQueue::Kind::kBackground);
  while (queue.RunNext()) {
  }
  EXPECT_THAT(recorder.happened, ElementsAre(2, 4, 1, 3));
  EXPECT_THAT(recorder.times, ElementsAre(3, 3, 5, 5));
}

TEST(EventQueueTest, TheOrderIsThatOfAStableSortWhateverIsMixedIn) {
  RandomStream random(Key(7));
  EventQueue queue;
  Recorder recorder(&queue);
  std::vector<std::pair<SimTime, uint64_t>> expected;
  uint64_t number = 0;
  for (int round = 0; round < 200; ++round) {
    for (uint32_t i = random.Below(20); i > 0; --i) {
      const SimTime time = queue.now() + random.Below(10);
      queue.Schedule(time, &recorder, number);
      expected.push_back({time, number++});
    }
    for (uint32_t i = random.Below(15); i > 0; --i) queue.RunNext();
  }
  while (queue.RunNext()) {
  }
  std::stable_sort(expected.begin(), expected.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  ASSERT_EQ(recorder.happened.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(recorder.times[i], expected[i].first);
    EXPECT_EQ(recorder.happened[i], expected[i].second);
  }
}

TEST(EventQueueTest, WhatIsPastHappensNow) {
  EventQueue queue;
  Recorder recorder(&queue);
  queue.Schedule(10, &recorder, 0);
  queue.RunNext();
  queue.Schedule(4, &recorder, 1);
  queue.RunNext();
  EXPECT_THAT(recorder.times, ElementsAre(10, 10));
}

TEST(EventQueueTest, BackgroundIsNoWork) {
  EventQueue queue;
  Recorder recorder(&queue);
  queue.Schedule(1, &recorder, 0, EventQueue::Kind::kBackground);
  queue.Schedule(2, &recorder, 1);
  EXPECT_EQ(queue.work(), 1);
  queue.RunNext();
  EXPECT_EQ(queue.work(), 1);
  queue.RunNext();
  EXPECT_EQ(queue.work(), 0);
  EXPECT_FALSE(queue.RunNext());
}

}  // namespace
}  // namespace rubato
