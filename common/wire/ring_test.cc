#include "common/wire/ring.h"

#include <cstring>
#include <deque>
#include <string>
#include <tuple>
#include <vector>

#include "common/base/random.h"
#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kRing = 64 << 10;

// Of `bytes`, with an owner of its own.
Payload PayloadOf(size_t bytes) {
  const auto values = std::make_shared<std::vector<float>>(bytes / sizeof(float));
  return Payload(values, *values);
}

std::vector<char> RingWith(uint32_t payload_bytes, const LoanWords& loan = {}) {
  std::vector<char> ring(kRing);
  Frame frame;
  frame.block = 7;
  frame.payload_bytes = payload_bytes;
  EncodeFrame(frame, reinterpret_cast<uint8_t*>(ring.data()));
  std::memcpy(ring.data() + kFrameHeaderBytes, &loan, sizeof(loan));
  return ring;
}

TEST(RingFrameTest, TakesAHeaderAndThePayloadUnlessThatIsLent) {
  const auto copied = ReadRingFrame(RingWith(100).data(), 256, kRing);
  RUBATO_ASSERT_OK(copied);
  EXPECT_EQ(copied->frame.block, 7u);
  EXPECT_EQ(copied->bytes, 128u + 128u);
  EXPECT_FALSE(copied->is_lent());
  const auto lent = ReadRingFrame(RingWith(8192, {4096, 5, 1}).data(), 128, kRing);
  RUBATO_ASSERT_OK(lent);
  EXPECT_EQ(lent->bytes, 128u);
  EXPECT_TRUE(lent->is_lent());
  EXPECT_EQ(lent->loan.number, 5u);
}

TEST(RingFrameTest, NonsenseIsRefused) {
  for (const auto& [bytes, loan, available, reason] :
       std::vector<std::tuple<uint32_t, LoanWords, uint64_t, std::string>>{
           {0, {}, 64, "claims to have written 64"},
           {0, {}, kRing + 128, "claims to have written 65664"},
           {4, {}, 128, "payload of 4 bytes; 128 bytes are there"},
           {~uint32_t{0}, {}, 256, "payload of 4294967295 bytes"},
           {8192, {4100, 0, 1}, 128, "at 4100, which is not lent"},
           {8192, {4096, kMaxLoans, 1}, 128, "which is not lent"},
           {kMinLent - 4, {4096, 0, 1}, 128, "which is not lent"},
           {kMaxLent + 4, {4096, 0, 1}, 128, "which is not lent"}}) {
    EXPECT_THAT(ReadRingFrame(RingWith(bytes, loan).data(), available, kRing),
                IsError(absl::StatusCode::kInvalidArgument, HasSubstr(reason)));
  }
}

TEST(RingWriterTest, AFrameFindsRoomOrWaitsForThePeerToRead) {
  RingWriter writer(1024);
  writer.Write(300);  // 128 + 320
  writer.Write(0);
  EXPECT_EQ(writer.written(), 576u);
  EXPECT_TRUE(writer.HasRoom(320, /*lends=*/false, /*read=*/0));
  EXPECT_FALSE(writer.HasRoom(321, false, 0));
  EXPECT_TRUE(writer.HasRoom(321, false, 448));
  EXPECT_TRUE(writer.HasRoom(1 << 20, /*lends=*/true, 0));
}

// It would be written over what is not read yet.
TEST(RingWriterTest, APeerThatClaimsToHaveReadMoreThanThereIsGetsNothing) {
  RingWriter writer(1024);
  writer.Write(0);
  EXPECT_FALSE(writer.HasRoom(0, false, 129));
}

TEST(RingWriterTest, LendsNeitherTheSmallNorTheLargeNorTheForbidden) {
  EXPECT_FALSE(RingWriter::MayLend(PayloadOf(kMinLent - 4)));
  EXPECT_TRUE(RingWriter::MayLend(PayloadOf(kMinLent)));
  EXPECT_TRUE(RingWriter::MayLend(PayloadOf(kMaxLent)));
  EXPECT_FALSE(RingWriter::MayLend(PayloadOf(kMaxLent + 4)));
  Payload forbidden = PayloadOf(kMinLent);
  forbidden.may_lend = false;
  EXPECT_FALSE(RingWriter::MayLend(forbidden));
}

TEST(RingWriterTest, LendsFourMebibytesBeforeAPeerThatHasNotComeToThem) {
  RingWriter writer(kRing);
  const Payload payload = PayloadOf(1 << 20);
  for (int i = 0; i < 4; ++i) {
    ASSERT_TRUE(writer.HasRoom(1 << 20, /*lends=*/true, 0));
    writer.WriteLent(payload);
  }
  EXPECT_FALSE(writer.HasRoom(1 << 20, /*lends=*/true, 0));
  EXPECT_TRUE(writer.HasRoom(1000, /*lends=*/false, 0));
  EXPECT_FALSE(writer.HasRoom(1 << 20, /*lends=*/true, 127));
  EXPECT_TRUE(writer.HasRoom(1 << 20, /*lends=*/true, 128));
}

TEST(RingWriterTest, OwnersAreKeptUntilAllThatWasLentBeforeIsBackToo) {
  RingWriter writer(kRing);
  const std::vector<Payload> payloads = {PayloadOf(kMinLent), PayloadOf(kMinLent),
                                         PayloadOf(kMinLent)};
  for (const Payload& payload : payloads) writer.WriteLent(payload);
  writer.TakeBack([](uint32_t loan) { return loan == 1; });
  for (const Payload& payload : payloads) EXPECT_EQ(payload.owner.use_count(), 2);
  writer.TakeBack([](uint32_t loan) { return loan <= 1; });
  EXPECT_EQ(payloads[0].owner.use_count(), 1);
  EXPECT_EQ(payloads[1].owner.use_count(), 1);
  EXPECT_EQ(payloads[2].owner.use_count(), 2);
}

// The peer gives back in any order. No number is out twice, and at most kMaxLoans are.
TEST(RingWriterTest, NumbersOfLoansAreUsedAgainOnceTheyAreBack) {
  RandomStream random(20261122);
  RingWriter writer(uint64_t{1} << 40);
  const Payload payload = PayloadOf(kMinLent);
  std::vector<bool> is_back(kMaxLoans, true);
  std::vector<uint32_t> out;
  bool was_full = false;
  for (int i = 0; i < 200000; ++i) {
    // More is lent in the first half than is given back.
    if (random.Below(4) < (i < 100000 ? 3u : 1u)) {
      writer.TakeBack([&](uint32_t loan) { return is_back[loan]; });
      if (!writer.HasLoan()) {
        was_full = true;
        continue;
      }
      const uint32_t loan = writer.next_loan();
      ASSERT_LT(loan, kMaxLoans);
      ASSERT_TRUE(is_back[loan]);
      is_back[loan] = false;
      writer.WriteLent(payload);
      out.push_back(loan);
    } else if (!out.empty()) {
      std::swap(out[random.Below(out.size())], out.back());
      is_back[out.back()] = true;
      out.pop_back();
    }
  }
  EXPECT_TRUE(was_full);
  for (const uint32_t loan : out) is_back[loan] = true;
  writer.TakeBack([&](uint32_t loan) { return is_back[loan]; });
  EXPECT_EQ(payload.owner.use_count(), 1);
}

}  // namespace
}  // namespace rubato
