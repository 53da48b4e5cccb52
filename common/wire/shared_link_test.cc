// Long because both ends of a link, honest or not, need the same fixture.
#include "common/wire/shared_link.h"

#include <sched.h>
#include <time.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr size_t kRing = 64 << 10;
constexpr size_t kUnbounded = ~size_t{0};

// One end, and what came through it.
struct End {
  SharedLink::Callbacks Collect() {
    SharedLink::Callbacks callbacks;
    callbacks.on_frame = [this](const Frame& frame, const ReceivedValues& values) {
      absl::MutexLock lock(&mutex);
      blocks.push_back(frame.block);
      payloads.emplace_back(values.size());
      values.CopyTo(absl::MakeSpan(payloads.back()));
      return absl::OkStatus();
    };
    callbacks.on_end = [this](const absl::Status& status) {
      end = status;
      ended.Notify();
    };
    return callbacks;
  }
  void Await(size_t count) {
    absl::MutexLock lock(&mutex);
    const auto arrived = [&] { return blocks.size() >= count; };
    ASSERT_TRUE(mutex.AwaitWithTimeout(absl::Condition(&arrived), absl::Seconds(100)));
  }

  absl::Mutex mutex;
  std::vector<uint64_t> blocks;
  std::vector<std::vector<float>> payloads;
  absl::Status end;
  absl::Notification ended;
};

class SharedLinkTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto created = SharedSegment::Create(kRing);
    RUBATO_ASSERT_OK(created);
    auto opened = SharedSegment::Open((*created)->Offer(), kRing);
    RUBATO_ASSERT_OK(opened);
    segments_[0] = *std::move(created);
    segments_[1] = *std::move(opened);
    words_ = segments_[0]->words();
  }
  std::unique_ptr<SharedLink> Start(int end, size_t max_waiting = kUnbounded,
                                    bool hands_over = false) {
    return std::make_unique<SharedLink>(std::move(segments_[end]), arenas_[end], max_waiting,
                                        ends_[end].Collect(), hands_over);
  }
  void ExpectInOrderBothWays(bool hands_over);

  std::unique_ptr<SharedSegment> segments_[2];
  SharedWords* words_ = nullptr;  // as the creator maps them, while its segment lives
  End ends_[2];
  std::shared_ptr<SharedArena> arenas_[2];  // of no end unless a test lends
};

Frame FrameOf(uint64_t block) {
  Frame frame;
  frame.block = block;
  return frame;
}

// Many times the ring, of all sizes that fit it, both ways at once, while the ends now and then
// have nothing to do and sleep.
void SharedLinkTest::ExpectInOrderBothWays(bool hands_over) {
  const auto a = Start(0, kUnbounded, hands_over), b = Start(1, kUnbounded, hands_over);
  std::mt19937 random(5);
  std::vector<std::vector<float>> sent[2];
  for (int round = 0; round < 200; ++round) {
    for (int end = 0; end < 2; ++end) {
      for (int i = 0; i < 10; ++i) {
        const size_t most = random() % 4 == 0 ? kRing / sizeof(float) - 32 : 40;
        auto values = std::make_shared<std::vector<float>>(random() % (most + 1));
        for (float& value : *values) value = static_cast<float>(random() % 100);
        sent[end].push_back(*values);
        (end == 0 ? a : b)->Send(FrameOf(sent[end].size() - 1), {values, *values});
      }
    }
    if (round % 10 != 0) continue;
    ends_[1].Await(sent[0].size());
    ends_[0].Await(sent[1].size());
  }
  ends_[1].Await(sent[0].size());
  ends_[0].Await(sent[1].size());
  for (int end = 0; end < 2; ++end) {
    End& other = ends_[1 - end];
    absl::MutexLock lock(&other.mutex);
    EXPECT_EQ(other.payloads, sent[end]);
    for (size_t i = 0; i < other.blocks.size(); ++i) ASSERT_EQ(other.blocks[i], i);
  }
}

TEST_F(SharedLinkTest, FramesArriveInOrderBothWays) { ExpectInOrderBothWays(false); }
// Blocks in ascending order: of those that wait the lowest goes first.
TEST_F(SharedLinkTest, FramesThatAreHandedOverArriveInOrderBothWays) {
  ExpectInOrderBothWays(true);
}

TEST_F(SharedLinkTest, WhatIsHandedOverIsLeftToTheLinksThread) {
  const auto values = std::make_shared<std::vector<float>>(100, 1.0f);
  for (const bool hands_over : {false, true}) {
    SetUp();
    End end;
    SharedLink link(std::move(segments_[0]), nullptr, kUnbounded, end.Collect(), hands_over);
    link.Stop();
    end.ended.WaitForNotification();
    link.Send(FrameOf(1), {values, *values});
    EXPECT_EQ(words_->ends[0].written > 0, !hands_over);
  }
}

TEST_F(SharedLinkTest, APayloadIsKeptOnlyUntilItIsInTheRing) {
  const auto a = Start(0);
  const auto values = std::make_shared<std::vector<float>>(10000, 1.0f);
  for (int i = 0; i < 3; ++i) a->Send(FrameOf(i), {values, *values});  // one finds room
  EXPECT_EQ(values.use_count(), 3);
  const auto b = Start(1);
  ends_[1].Await(3);
  a->Stop();
  ends_[0].ended.WaitForNotification();
  EXPECT_EQ(values.use_count(), 1);
}

TEST_F(SharedLinkTest, OfWhatWaitsForAStalledPeerTheLowestBlockGoesFirstAndAPullInItsPlace) {
  const auto a = Start(0);
  const auto values = std::make_shared<std::vector<float>>(3800, 1.0f);  // four find room
  for (uint64_t block = 9; block > 0; --block) a->Send(FrameOf(block), {values, *values});
  a->Send(FrameOf(100), {});  // a pull
  for (const uint64_t block : {12, 0}) a->Send(FrameOf(block), {values, *values});
  const auto b = Start(1);
  ends_[1].Await(12);
  absl::MutexLock lock(&ends_[1].mutex);
  EXPECT_THAT(ends_[1].blocks, ElementsAre(9, 8, 7, 6, 1, 2, 3, 4, 5, 100, 0, 12));
}

// Else a peer that never takes its answers could ask for ever more of them.
TEST_F(SharedLinkTest, APeerThatDoesNotReadIsNotRead) {
  std::unique_ptr<SharedLink> a;
  absl::Notification has_a;
  SharedLink::Callbacks echo = ends_[0].Collect();
  const auto answer = std::make_shared<std::vector<float>>(4000);
  const auto count = [on_frame = echo.on_frame, &a, &has_a, &answer](const Frame& frame,
                                                                     const ReceivedValues& values) {
    has_a.WaitForNotification();
    a->Send(frame, {answer, *answer});
    return on_frame(frame, values);
  };
  echo.on_frame = count;
  // The other end, by hand: requests, and no reading.
  SharedWords::End& peer = segments_[1]->words()->ends[1];
  char* ring = segments_[1]->ring(1);
  for (int i = 0; i < 100; ++i) {
    EncodeFrame(FrameOf(i), reinterpret_cast<uint8_t*>(ring + i * 128));
  }
  peer.written = 100 * 128;
  a = std::make_unique<SharedLink>(std::move(segments_[0]), nullptr, 3 * 16128, std::move(echo));
  has_a.Notify();
  while (segments_[1]->words()->ends[0].sleeping == 0) absl::SleepFor(absl::Milliseconds(1));
  {
    absl::MutexLock lock(&ends_[0].mutex);
    // Four answers fill the ring, and as many more wait as may and one.
    EXPECT_EQ(ends_[0].blocks.size(), 8u);
  }
  // Once it reads, it is heard to the end.
  const auto b = std::make_unique<SharedLink>(std::move(segments_[1]), nullptr, kUnbounded,
                                              ends_[1].Collect());
  ends_[1].Await(100);
}

TEST_F(SharedLinkTest, NonsenseEndsIt) {
  for (const auto& [written, header, reason] :
       std::vector<std::tuple<uint64_t, Frame, std::string>>{
           {64, Frame(), "64 bytes"},
           {kRing + 128, Frame(), "65664 bytes"},
           {~uint64_t{0}, Frame(), "claims"},
           {128,
            [] {
              Frame f;
              f.payload_bytes = 4;
              return f;
            }(),
            "payload of 4 bytes"},
           {256,
            [] {
              Frame f;
              f.payload_bytes = ~uint32_t{0};
              return f;
            }(),
            "4294967295"},
           {256,
            [] {
              Frame f;
              f.payload_bytes = 3;
              return f;
            }(),
            "payload has 3 bytes; 0 values take 0 in float32"}}) {
    auto segment = SharedSegment::Create(kRing);
    RUBATO_ASSERT_OK(segment);
    EncodeFrame(header, reinterpret_cast<uint8_t*>((*segment)->ring(1)));
    (*segment)->words()->ends[1].written = written;
    End end;
    SharedLink link(*std::move(segment), nullptr, kUnbounded, end.Collect());
    end.ended.WaitForNotification();
    EXPECT_THAT(end.end, IsError(absl::StatusCode::kInvalidArgument, HasSubstr(reason)));
    EXPECT_TRUE(end.blocks.empty());
  }
  auto segment = SharedSegment::Create(kRing);
  RUBATO_ASSERT_OK(segment);
  (*segment)->words()->ends[1].written = 128;  // zeroes
  End end;
  SharedLink link(*std::move(segment), nullptr, kUnbounded, end.Collect());
  end.ended.WaitForNotification();
  EXPECT_THAT(end.end, IsError(absl::StatusCode::kInvalidArgument, HasSubstr("begins")));
}

// A link whose first end lends, and where.
class LendingLinkTest : public SharedLinkTest {
 protected:
  void SetUp() override {
    SharedLinkTest::SetUp();
    auto arena = SharedArena::Create();
    RUBATO_ASSERT_OK(arena);
    arenas_[0] = *std::move(arena);
    segments_[0]->Lend(*arenas_[0]);
  }

  // In the arena. Its owner tells whether it is still lent.
  Payload New(float value, size_t size = 20000) {
    const std::shared_ptr<char> piece = arenas_[0]->Allocate(size * sizeof(float));
    const absl::Span<float> values(reinterpret_cast<float*>(piece.get()), size);
    std::fill(values.begin(), values.end(), value);
    return Payload(piece, values);
  }
  void AwaitSleep(int end) {
    while (words_->ends[end].sleeping == 0) absl::SleepFor(absl::Milliseconds(1));
  }
};

// Larger than the ring, which they do not pass through.
TEST_F(LendingLinkTest, WhatIsLentIsReadWhereItLiesAndGivenBack) {
  const auto b = Start(1);
  AwaitSleep(1);  // and can borrow
  const auto a = Start(0);
  std::vector<std::weak_ptr<const void>> owners;
  for (uint64_t i = 0; i < 100; ++i) {
    const Payload payload = New(static_cast<float>(i), 100000 + i);
    owners.push_back(payload.owner);
    a->Send(FrameOf(i), payload);
  }
  ends_[1].Await(100);
  AwaitSleep(1);
  a->Send(FrameOf(100), New(-1));  // notices what has been given back
  for (const auto& owner : owners) EXPECT_TRUE(owner.expired());
  absl::MutexLock lock(&ends_[1].mutex);
  for (size_t i = 0; i < 100; ++i) {
    EXPECT_EQ(ends_[1].payloads[i], std::vector<float>(100000 + i, static_cast<float>(i)));
  }
}

TEST_F(LendingLinkTest, MoreThanMayBeLentAtATimeGoesThroughTheRing) {
  absl::Mutex mutex;
  std::vector<LentValues> kept;
  uint64_t copied = 0;
  SharedLink::Callbacks callbacks = ends_[1].Collect();
  callbacks.on_frame = [&](const Frame&, const ReceivedValues& values) {
    absl::MutexLock lock(&mutex);
    EXPECT_EQ(values.size(), 2048u);
    values.ForEachRun([](size_t, absl::Span<const float> run) { EXPECT_EQ(run.back(), 7.0f); });
    if (values.lent() != nullptr) kept.push_back(*values.lent());
    copied += values.lent() == nullptr;
    return absl::OkStatus();
  };
  const auto b = std::make_unique<SharedLink>(std::move(segments_[1]), nullptr, kUnbounded,
                                              std::move(callbacks));
  AwaitSleep(1);
  const auto a = Start(0);
  const Payload payload = New(7, 2048);
  for (uint64_t i = 0; i < kMaxLoans + 10; ++i) a->Send(FrameOf(i), payload);
  {
    absl::MutexLock lock(&mutex);
    const auto all = [&] { return kept.size() + copied == kMaxLoans + 10; };
    mutex.Await(absl::Condition(&all));
    EXPECT_EQ(copied, 10u);
    kept.clear();
  }
  a->Send(FrameOf(0), payload);
  absl::MutexLock lock(&mutex);
  const auto again = [&] { return kept.size() == 1; };
  mutex.Await(absl::Condition(&again));
}

// What is lent takes little of the ring; the most urgent does not wait behind all of it for that.
TEST_F(LendingLinkTest, AStalledPeerHasFourMebibytesBeforeItAndThenTheLowestBlockGoesFirst) {
  SharedLink::Callbacks callbacks = ends_[1].Collect();
  absl::Notification go_on;
  callbacks.on_frame = [&go_on, on_frame = callbacks.on_frame](const Frame& frame,
                                                               const ReceivedValues& values) {
    go_on.WaitForNotification();
    return on_frame(frame, values);
  };
  const auto b = std::make_unique<SharedLink>(std::move(segments_[1]), nullptr, kUnbounded,
                                              std::move(callbacks));
  AwaitSleep(1);
  const auto a = Start(0);
  const Payload payload = New(1, 1 << 18);  // 1 MiB
  for (uint64_t block = 20; block >= 10; --block) a->Send(FrameOf(block), payload);
  a->Send(FrameOf(0), payload);
  go_on.Notify();
  ends_[1].Await(12);
  absl::MutexLock lock(&ends_[1].mutex);
  EXPECT_THAT(ends_[1].blocks, ElementsAre(20, 19, 18, 17, 0, 10, 11, 12, 13, 14, 15, 16));
}

TEST_F(LendingLinkTest, WhoKeepsTheLoanKeepsTheOwner) {
  SharedLink::Callbacks callbacks = ends_[1].Collect();
  std::vector<LentValues> kept;
  callbacks.on_frame = [&, on_frame = callbacks.on_frame](const Frame& frame,
                                                          const ReceivedValues& values) {
    if (frame.block == 0) kept.push_back(*values.lent());
    return on_frame(frame, values);
  };
  const auto b = std::make_unique<SharedLink>(std::move(segments_[1]), nullptr, kUnbounded,
                                              std::move(callbacks));
  AwaitSleep(1);
  const auto a = Start(0);
  std::weak_ptr<const void> owner;
  {
    const Payload payload = New(1);
    owner = payload.owner;
    a->Send(FrameOf(0), payload);
  }
  a->Send(FrameOf(1), New(2));
  ends_[1].Await(2);
  AwaitSleep(1);
  a->Send(FrameOf(2), New(3));
  EXPECT_FALSE(owner.expired());
  kept.clear();
  a->Send(FrameOf(3), New(4));
  EXPECT_TRUE(owner.expired());
}

TEST_F(LendingLinkTest, APayloadThatMayNotBeLentOrIsSmallGoesThroughTheRing) {
  const auto b = Start(1);
  AwaitSleep(1);
  const auto a = Start(0);
  Payload payload = New(5, 10000);
  payload.may_lend = false;
  Payload small = New(6, 10);
  a->Send(FrameOf(0), payload);
  a->Send(FrameOf(1), small);
  EXPECT_EQ(payload.owner.use_count(), 1);
  EXPECT_EQ(small.owner.use_count(), 1);
  ends_[1].Await(2);
  absl::MutexLock lock(&ends_[1].mutex);
  EXPECT_EQ(ends_[1].payloads[0], std::vector<float>(10000, 5));
}

// Places where nothing is lent: of no arena, beyond its end, at no line, of no loan; and too much.
TEST_F(LendingLinkTest, NonsenseAboutLoansEndsIt) {
  struct Words {
    uint64_t offset;
    uint32_t number, is_lent;
  };
  for (const auto& [lends, bytes, words] :
       std::vector<std::tuple<bool, uint32_t, Words>>{{false, 8192, {4096, 0, 1}},
                                                      {true, 8192, {uint64_t{1} << 40, 0, 1}},
                                                      {true, 8192, {~uint64_t{63}, 0, 1}},
                                                      {true, 8192, {(64 << 20) - 64, 0, 1}},
                                                      {true, 8192, {4100, 0, 1}},
                                                      {true, 8192, {4096, kMaxLoans, 1}},
                                                      {true, (2 << 20) + 4, {4096, 0, 1}}}) {
    auto segment = SharedSegment::Create(kRing);
    RUBATO_ASSERT_OK(segment);
    auto peer = SharedSegment::Open((*segment)->Offer(), kRing);
    RUBATO_ASSERT_OK(peer);
    if (lends) (*peer)->Lend(*arenas_[0]);
    Frame frame;
    frame.payload_bytes = bytes;
    frame.values = bytes / 4;
    EncodeFrame(frame, reinterpret_cast<uint8_t*>((*peer)->ring(1)));
    std::memcpy((*peer)->ring(1) + kFrameHeaderBytes, &words, sizeof(words));
    (*peer)->words()->ends[1].written = 128;
    End end;
    SharedLink link(*std::move(segment), nullptr, kUnbounded, end.Collect());
    end.ended.WaitForNotification();
    EXPECT_THAT(end.end, IsError(absl::StatusCode::kInvalidArgument, HasSubstr("not lent")));
    EXPECT_TRUE(end.blocks.empty());
  }
}

double ProcessSeconds() {
  timespec time;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

// An idle link sleeps: it cannot be seen that it never spins, but that it asked to be woken.
TEST_F(SharedLinkTest, AnIdleEndSleepsAndStops) {
  const auto a = Start(0, kUnbounded, /*hands_over=*/true), b = Start(1);
  while (words_->ends[0].sleeping == 0 || words_->ends[1].sleeping == 0) {
    absl::SleepFor(absl::Milliseconds(1));
  }
  const double before = ProcessSeconds();
  absl::SleepFor(absl::Milliseconds(300));
  EXPECT_LT(ProcessSeconds() - before, 0.03);  // spinning all the time it would be 0.6
  a->Send(FrameOf(1), {});
  ends_[1].Await(1);
  a->Stop();
  b->Stop();
  ends_[0].ended.WaitForNotification();
  ends_[1].ended.WaitForNotification();
  RUBATO_EXPECT_OK(ends_[0].end);
}

std::vector<int> Processors(pid_t thread) {
  cpu_set_t set;
  EXPECT_EQ(sched_getaffinity(thread, sizeof set, &set), 0);
  std::vector<int> processors;
  for (int i = 0; i < CPU_SETSIZE; ++i) {
    if (CPU_ISSET(i, &set)) processors.push_back(i);
  }
  return processors;
}

// The main thread's processors are the process's, as they are another's who looks.
TEST_F(SharedLinkTest, TheOpenersThreadRunsWhereTheCreatorMay) {
  const std::vector<int> all = Processors(0);
  if (all.size() < 2) GTEST_SKIP() << "one processor";
  std::vector<int> used[2];
  absl::Notification is_bound, came[2];
  std::thread unbound([&] {
    is_bound.WaitForNotification();
    std::unique_ptr<SharedLink> links[2];
    for (const int end : {0, 1}) {
      SharedLink::Callbacks callbacks = ends_[end].Collect();
      callbacks.on_frame = [&, end](const Frame&, const ReceivedValues&) {
        used[end] = Processors(0);
        came[end].Notify();
        return absl::OkStatus();
      };
      links[end] = std::make_unique<SharedLink>(std::move(segments_[end]), nullptr, kUnbounded,
                                                std::move(callbacks));
    }
    for (const int end : {0, 1}) links[end]->Send(FrameOf(0), {});
    for (const int end : {0, 1}) came[end].WaitForNotification();
  });
  cpu_set_t one, before;
  CPU_ZERO(&one);
  CPU_SET(all.back(), &one);
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  is_bound.Notify();
  unbound.join();
  ASSERT_EQ(sched_setaffinity(0, sizeof before, &before), 0);
  EXPECT_EQ(used[0], all);
  EXPECT_THAT(used[1], ElementsAre(all.back()));
}

}  // namespace
}  // namespace rubato
