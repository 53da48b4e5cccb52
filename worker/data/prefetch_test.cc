#include "worker/data/prefetch.h"

#include <atomic>

#include "absl/synchronization/blocking_counter.h"
#include "absl/synchronization/notification.h"
#include "common/base/random.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

SampleRange Nth(int64_t n) { return {n / 5, {n % 5 * 10, n % 5 * 10 + 10}}; }

// A batch that says which range it is.
void Fill(const SampleRange& range, Batch* batch) {
  batch->size = 1;
  batch->labels = {static_cast<int32_t>(range.epoch), static_cast<int32_t>(range.positions.begin)};
}

void ExpectTakes(Prefetch& prefetch, int64_t n) {
  Batch batch;
  prefetch.Take(Nth(n), &batch);
  EXPECT_EQ(batch.labels[0], Nth(n).epoch);
  EXPECT_EQ(batch.labels[1], Nth(n).positions.begin);
}

TEST(PrefetchTest, ReadsAtOnceWhatWasNotAnnounced) {
  for (const int64_t ahead : {0, 3}) {
    Prefetch prefetch(Fill, ahead);
    for (int64_t n = 0; n < 10; ++n) ExpectTakes(prefetch, n);
    EXPECT_EQ(prefetch.hits(), 0);
  }
}

TEST(PrefetchTest, ReadsAheadAsManyAsItMayAndNoMore) {
  std::atomic<int> reads{0};
  absl::BlockingCounter two(2), three(3);
  Prefetch prefetch(
      [&](const SampleRange& range, Batch* batch) {
        Fill(range, batch);
        const int read = ++reads;
        if (read <= 2) two.DecrementCount();
        if (read <= 3) three.DecrementCount();
      },
      /*ahead=*/2);
  for (int64_t n = 0; n < 6; ++n) prefetch.Announce(Nth(n));
  two.Wait();  // nobody has asked for any
  EXPECT_EQ(reads, 2) << "a third would be one more than allowed";
  ExpectTakes(prefetch, 0);
  three.Wait();
  EXPECT_GE(prefetch.hits(), 1);
  for (int64_t n = 1; n < 6; ++n) ExpectTakes(prefetch, n);
}

TEST(PrefetchTest, WaitsForABatchThatIsBeingRead) {
  absl::Notification begun, go_on;
  std::atomic<int> reads{0};
  Prefetch prefetch(
      [&](const SampleRange& range, Batch* batch) {
        if (++reads == 1) {
          begun.Notify();
          go_on.WaitForNotification();
        }
        Fill(range, batch);
      },
      /*ahead=*/1);
  prefetch.Announce(Nth(0));
  begun.WaitForNotification();
  std::thread other([&] { go_on.Notify(); });
  ExpectTakes(prefetch, 0);
  other.join();
  EXPECT_EQ(reads, 1);
  EXPECT_EQ(prefetch.hits(), 1);
}

TEST(PrefetchTest, IsRightHoweverAnnouncementsAndTakesDiffer) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    RandomStream random(Key(seed, "prefetch"));
    Prefetch prefetch(Fill, random.Below(4));
    int64_t announced = 0, taken = 0;
    for (int i = 0; i < 100; ++i) {
      switch (random.Below(8)) {
        case 0:
          taken += random.Below(3);  // some that were announced are never asked for
          break;
        case 1:
          ExpectTakes(prefetch, 1000 + random.Below(5));  // never announced
          break;
        case 2:
          announced += random.Below(2);  // never announced
          break;
        case 3:
        case 4:
          ExpectTakes(prefetch, taken++);
          break;
        default:
          prefetch.Announce(Nth(announced++));
      }
    }
  }
}

TEST(PrefetchTest, EndsWithWorkLeft) {
  for (int i = 0; i < 50; ++i) {
    Prefetch prefetch(Fill, 2);
    for (int64_t n = 0; n < i; ++n) prefetch.Announce(Nth(n));
  }
}

}  // namespace
}  // namespace rubato
