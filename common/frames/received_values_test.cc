#include "common/frames/received_values.h"

#include <algorithm>
#include <cstring>
#include <random>
#include <string>

#include "common/base/status_matchers.h"
#include "common/frames/codec.h"
#include "common/frames/top_k.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

using ::testing::HasSubstr;

// `payload` behind `offset` other bytes, cut at random into pieces that lie at any address.
struct Cut {
  Cut(const std::vector<char>& payload, size_t offset, std::mt19937* random) {
    std::string bytes(offset, '?');
    bytes.append(payload.begin(), payload.end());
    bytes += "more";
    for (size_t at = 0; at < bytes.size();) {
      size_t size = (*random)() % 3 == 0 ? (*random)() % 7 : (*random)() % 20000;
      if (pieces.empty()) size += offset;  // the first holds what is skipped
      storage.push_back(std::string((*random)() % 8, '!') + bytes.substr(at, size));
      lead.push_back(storage.back().size() - std::min(size, bytes.size() - at));
      at += size;
      pieces.emplace_back();
    }
    for (size_t i = 0; i < storage.size(); ++i) pieces[i] = Piece(storage[i]).subspan(lead[i]);
  }

  std::vector<std::string> storage;
  std::vector<size_t> lead;
  std::vector<Piece> pieces;
};

constexpr Codec kCodecs[] = {Codec::kFloat32, Codec::kBf16, Codec::kFp16, Codec::kInt8,
                             Codec::kTopK};

std::vector<char> EncodeAll(Codec codec, const std::vector<float>& values) {
  std::vector<char> bytes(EncodedBound(codec, values.size()));
  if (codec == Codec::kTopK) {
    std::vector<uint32_t> sent;
    bytes.resize(EncodedBound(codec, values.size() / 3));
    EncodeTopK(values, values.size() / 3, bytes.data(), &sent);
  } else {
    Encode(codec, /*key=*/5, values, bytes.data());
  }
  return bytes;
}

// What the codec itself makes of it.
std::vector<float> DecodeAll(Codec codec, const std::vector<char>& bytes, size_t size) {
  std::vector<float> values(size);
  const auto encoded = Encoded::Create(codec, bytes, size);
  RUBATO_EXPECT_OK(encoded);
  encoded->Decode(0, absl::MakeSpan(values));
  return values;
}

Frame Header(Codec codec, const std::vector<char>& bytes, size_t size) {
  return HeaderOf(Frame(), Payload(nullptr, codec, bytes, size));
}

void ExpectSays(const ReceivedValues& received, const std::vector<float>& values) {
  ASSERT_EQ(received.size(), values.size());
  std::vector<float> copy(values.size()), runs, scratch, sum(values.size(), 0.5f);
  received.CopyTo(absl::MakeSpan(copy));
  EXPECT_EQ(copy, values);
  received.ForEachRun([&](size_t begin, absl::Span<const float> run) {
    EXPECT_EQ(begin, runs.size());
    runs.insert(runs.end(), run.begin(), run.end());
  });
  EXPECT_EQ(runs, values);
  const absl::Span<const float> whole = received.Whole(&scratch);
  EXPECT_EQ(std::vector<float>(whole.begin(), whole.end()), values);
  received.AddTo(absl::MakeSpan(sum));
  for (size_t i = 0; i < values.size(); ++i) ASSERT_EQ(sum[i], values[i] + 0.5f);
}

TEST(ReceivedValuesTest, SaysTheSameHoweverItIsCut) {
  std::mt19937 random(7);
  for (int round = 0; round < 500; ++round) {
    const Codec codec = kCodecs[round % 5];
    std::vector<float> values(1 + random() % 30000);
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(random() % 1000);
    const std::vector<char> bytes = EncodeAll(codec, values);
    const size_t offset = random() % 100;
    const Cut cut(bytes, offset, &random);
    std::vector<char> scratch;
    const auto received =
        ReceivedValues::Create(Header(codec, bytes, values.size()), cut.pieces, offset, &scratch);
    RUBATO_ASSERT_OK(received);
    ExpectSays(*received, DecodeAll(codec, bytes, values.size()));
  }
}

TEST(ReceivedValuesTest, SaysTheSameFromAnotherProcessor) {
  std::mt19937 random(8);
  for (Codec codec : kCodecs) {
    for (const size_t size : {1, 511, 512, 4096, 10000, 65536}) {
      std::vector<float> values(size);
      for (float& value : values) value = static_cast<float>(random() % 1000);
      const std::vector<char> bytes = EncodeAll(codec, values);
      std::vector<char> ring = bytes, scratch;
      const auto received =
          ReceivedValues::FromOtherProcessor(Header(codec, bytes, size), ring, &scratch);
      RUBATO_ASSERT_OK(received);
      // Where values go has been checked, so it may not change any more.
      if (codec == Codec::kTopK) std::fill(ring.begin(), ring.end(), '\xff');
      ExpectSays(*received, DecodeAll(codec, bytes, size));
    }
  }
}

TEST(ReceivedValuesTest, WithoutAPayloadThereIsNothingToCheck) {
  Frame pull;
  for (Codec codec : kCodecs) {
    pull.codec = codec;
    std::vector<char> scratch;
    const auto tcp = ReceivedValues::Create(pull, {}, 0, &scratch);
    RUBATO_ASSERT_OK(tcp);
    EXPECT_TRUE(tcp->empty());
    const auto shared = ReceivedValues::FromOtherProcessor(pull, {}, &scratch);
    RUBATO_ASSERT_OK(shared);
    EXPECT_TRUE(shared->empty());
  }
}

TEST(ReceivedValuesTest, RefusesBytesThatCannotBeIt) {
  const std::vector<float> values = {5, 4, 3, 2, 1, 0, 7, 8, 9};
  for (Codec codec : kCodecs) {
    std::vector<char> bytes = EncodeAll(codec, values);
    const auto refused = [&](size_t size, const std::string& what) {
      std::vector<char> scratch;
      const Frame frame = Header(codec, bytes, size);
      const auto error = IsError(absl::StatusCode::kInvalidArgument, HasSubstr(what));
      EXPECT_THAT(ReceivedValues::Create(frame, {Piece(bytes)}, 0, &scratch).status(), error);
      EXPECT_THAT(ReceivedValues::FromOtherProcessor(frame, bytes, &scratch).status(), error);
    };
    if (codec != Codec::kTopK) refused(values.size() + 1, "10 values take");
    if (codec == Codec::kTopK) refused((1 << 20) + 1, "expected at most 1048576");
    bytes.push_back(0);
    refused(values.size(), "payload");
  }
}

TEST(ReceivedValuesTest, BorrowsWhatLiesInOnePlace) {
  const std::vector<float> values = {1, 2, 3};
  const ReceivedValues received(absl::MakeConstSpan(values));
  std::vector<float> scratch;
  EXPECT_EQ(received.Whole(&scratch).data(), values.data());
  received.ForEachRun(
      [&](size_t, absl::Span<const float> run) { EXPECT_EQ(run.data(), values.data()); });
  EXPECT_TRUE(ReceivedValues().empty());
  ReceivedValues().CopyTo({});
}

}  // namespace
}  // namespace rubato
