#include "common/wire/outbox.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Puts in a push of a block, or a pull (block below 0); `number` tells which.
void Put(int64_t block, uint32_t number, Outbox* outbox) {
  static const auto values = std::make_shared<std::vector<float>>(4, 1.0f);
  Frame frame;
  frame.kind = block < 0 ? FrameKind::kPull : FrameKind::kPush;
  frame.block = block < 0 ? 0 : static_cast<uint64_t>(block);
  frame.view = number;
  outbox->Push(frame, block < 0 ? Payload{} : Payload{values, *values});
}

std::vector<std::string> TakeAll(Outbox* outbox) {
  std::vector<std::string> all;
  while (!outbox->empty()) {
    const Frame frame = outbox->PopFront().frame;
    all.push_back(frame.kind == FrameKind::kPull ? absl::StrCat("pull ", frame.view)
                                                 : absl::StrCat(frame.block, ":", frame.view));
  }
  return all;
}

TEST(OutboxTest, TheLowestBlockThatWaitsGoesFirst) {
  Outbox outbox;
  for (const int64_t block : {9, 7, 8}) Put(block, 0, &outbox);
  EXPECT_EQ(outbox.bytes(), 3u * (kFrameHeaderBytes + 16));
  EXPECT_EQ(outbox.front().frame.block, 7);
  EXPECT_EQ(outbox.PopFront().frame.block, 7);  // while the receiver stalls, backward goes on
  for (const int64_t block : {3, 0, 5}) Put(block, 1, &outbox);
  EXPECT_THAT(TakeAll(&outbox), ElementsAre("0:1", "3:1", "5:1", "8:0", "9:0"));
}

TEST(OutboxTest, FramesOfOneBlockKeepTheirOrder) {
  Outbox outbox;
  Put(4, 0, &outbox);
  Put(2, 1, &outbox);
  Put(4, 2, &outbox);
  Put(2, 3, &outbox);
  EXPECT_THAT(TakeAll(&outbox), ElementsAre("2:1", "2:3", "4:0", "4:2"));
}

TEST(OutboxTest, NothingPassesAPull) {
  Outbox outbox;
  for (const int64_t block : {5, 4}) Put(block, 0, &outbox);
  Put(-1, 1, &outbox);
  Put(-1, 2, &outbox);
  for (const int64_t block : {3, 1}) Put(block, 3, &outbox);
  EXPECT_THAT(TakeAll(&outbox), ElementsAre("4:0", "5:0", "pull 1", "pull 2", "1:3", "3:3"));
  Put(2, 4, &outbox);
  Put(-1, 5, &outbox);
  EXPECT_EQ(outbox.bytes(), 2u * kFrameHeaderBytes + 16);
  outbox.Clear();
  EXPECT_EQ(outbox.bytes(), 0u);
  EXPECT_THAT(TakeAll(&outbox), IsEmpty());
}

// The reference: a stable sort of each run between pulls.
TEST(OutboxTest, AnySequenceComesOutAsRunsSortedBetweenThePulls) {
  RandomStream stream(20261121);
  for (int round = 0; round < 200; ++round) {
    Outbox outbox;
    std::vector<std::string> expected;
    std::vector<std::pair<int64_t, uint32_t>> run;
    const auto end_run = [&] {
      std::stable_sort(run.begin(), run.end(),
                       [](const auto& a, const auto& b) { return a.first < b.first; });
      for (const auto& [block, number] : run) expected.push_back(absl::StrCat(block, ":", number));
      run.clear();
    };
    for (uint32_t number = 0; number < 40; ++number) {
      if (stream.Below(6) == 0) {
        end_run();
        expected.push_back(absl::StrCat("pull ", number));
        Put(-1, number, &outbox);
      } else {
        run.emplace_back(stream.Below(8), number);
        Put(run.back().first, number, &outbox);
      }
    }
    end_run();
    EXPECT_EQ(TakeAll(&outbox), expected);
  }
}

}  // namespace
}  // namespace rubato
