#include "common/wire/message.h"

#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

using ::testing::HasSubstr;

struct Sent {
  uint64_t block;
  std::vector<float> values;
  friend bool operator==(const Sent& a, const Sent& b) {
    return a.block == b.block && a.values == b.values;
  }
};

std::vector<Sent> Read(const grpc::ByteBuffer& message) {
  std::vector<Sent> read;
  RUBATO_EXPECT_OK(ReadMessage(message, [&](const Frame& frame, const ReceivedValues& values) {
    EXPECT_EQ(frame.values, values.size());
    read.push_back({frame.block, std::vector<float>(values.size())});
    values.CopyTo(absl::MakeSpan(read.back().values));
    return absl::OkStatus();
  }));
  return read;
}

// The same bytes in pieces of random sizes.
grpc::ByteBuffer Recut(const grpc::ByteBuffer& message, std::mt19937* random) {
  grpc::Slice whole;
  EXPECT_TRUE(message.DumpToSingleSlice(&whole).ok());
  std::vector<grpc::Slice> slices;
  for (size_t at = 0; at < whole.size();) {
    const size_t size = std::min<size_t>((*random)() % 3000, whole.size() - at);
    slices.emplace_back(whole.begin() + at, size);
    at += size;
  }
  return grpc::ByteBuffer(slices.data(), slices.size());
}

TEST(MessageTest, FramesArriveAsTheyWereSentHoweverTheyArePackedAndCut) {
  std::mt19937 random(3);
  for (int round = 0; round < 50; ++round) {
    Outbox outbox;
    std::vector<Sent> sent;
    for (int i = 0; i < 40; ++i) {
      // None, small, copied or not, and larger than a message should be.
      const size_t bounds[] = {1, 100, 5000, 200000};
      auto values = std::make_shared<std::vector<float>>(random() % bounds[random() % 4]);
      for (float& value : *values) value = static_cast<float>(random() % 200);
      Frame frame;
      frame.block = i;
      sent.push_back({frame.block, *values});
      if (i % 2 == 0) {
        outbox.Push(frame, {values, *values});
      } else {  // small integers are the same in bfloat16
        auto bytes = std::make_shared<std::vector<char>>(2 * values->size());
        Encode(Codec::kBf16, 0, *values, bytes->data());
        outbox.Push(frame, {bytes, Codec::kBf16, *bytes, values->size()});
      }
    }
    std::vector<Sent> read;
    while (!outbox.empty()) {
      const size_t before = outbox.size();
      const grpc::ByteBuffer message = TakeMessage(&outbox);
      ASSERT_LT(outbox.size(), before);
      const std::vector<Sent> part = Read(message);
      EXPECT_EQ(part, Read(Recut(message, &random)));
      read.insert(read.end(), part.begin(), part.end());
    }
    EXPECT_EQ(read, sent);
  }
}

TEST(MessageTest, ALargePayloadIsHeldUntilItsMessageIsGone) {
  auto values = std::make_shared<std::vector<float>>(100000, 1.0f);
  Outbox outbox;
  outbox.Push(Frame(), {values, *values});
  {
    const grpc::ByteBuffer message = TakeMessage(&outbox);
    EXPECT_EQ(values.use_count(), 2);
  }
  EXPECT_EQ(values.use_count(), 1);
}

TEST(MessageTest, RefusesWhatIsNoFrames) {
  const auto refused = [](std::string bytes, const std::string& reason) {
    const grpc::Slice slice(bytes);
    int frames = 0;
    EXPECT_THAT(ReadMessage(grpc::ByteBuffer(&slice, 1),
                            [&](const Frame&, const ReceivedValues&) {
                              ++frames;
                              return absl::OkStatus();
                            }),
                IsError(absl::StatusCode::kInvalidArgument, HasSubstr(reason)));
    return frames;
  };
  Frame frame;
  frame.payload_bytes = 8;
  frame.values = 2;
  std::string header(kFrameHeaderBytes, '\0');
  EncodeFrame(frame, reinterpret_cast<uint8_t*>(header.data()));
  EXPECT_EQ(refused("", "0 bytes"), 0);
  EXPECT_EQ(refused(header.substr(0, 95), "95 bytes"), 0);
  EXPECT_EQ(refused(absl::StrCat(header, "1234"), "8 bytes; 4 follow"), 0);
  EXPECT_EQ(refused(absl::StrCat(header, "12345678", header.substr(0, 50)), "50 bytes"), 1);
  EXPECT_EQ(refused(absl::StrCat(header, "12345678", "nonsense"), "8 bytes"), 1);
  frame.payload_bytes = 6;
  EncodeFrame(frame, reinterpret_cast<uint8_t*>(header.data()));
  EXPECT_EQ(refused(absl::StrCat(header, "123456"), "6 bytes; 2 values take 8"), 0);
  frame.codec = Codec::kTopK;
  EncodeFrame(frame, reinterpret_cast<uint8_t*>(header.data()));
  EXPECT_EQ(refused(absl::StrCat(header, "123456"), "6 bytes with 875770417 of 2 values"), 0);
}

}  // namespace
}  // namespace rubato
