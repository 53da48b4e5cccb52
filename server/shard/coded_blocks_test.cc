#include "server/shard/coded_blocks.h"

#include <vector>

#include "gtest/gtest.h"

namespace rubato {
namespace {

// bfloat16 of 1, 1.5 and 2: the upper halves of the floats.
std::vector<char> Bytes(char one) { return {char(one), '\x3f'}; }

std::vector<char> BytesOf(const Payload& payload) {
  return {payload.bytes.begin(), payload.bytes.end()};
}

TEST(CodedBlocks, EncodesAVersionOnceAndKeepsTheOneBefore) {
  CodedBlocks blocks;
  const std::vector<float> one = {1}, more = {1.5f};
  const Payload first = blocks.Get(7, 1, Codec::kBf16, one);
  EXPECT_EQ(first.codec, Codec::kBf16);
  EXPECT_EQ(first.size, 1u);
  EXPECT_EQ(BytesOf(first), Bytes('\x80'));
  // By its version, not by what is there now.
  EXPECT_EQ(blocks.Get(7, 1, Codec::kBf16, more).bytes.data(), first.bytes.data());
  EXPECT_EQ(BytesOf(blocks.Get(7, 2, Codec::kBf16, more)), Bytes('\xc0'));
  EXPECT_EQ(blocks.Get(7, 1, Codec::kBf16, more).bytes.data(), first.bytes.data());
  EXPECT_EQ(BytesOf(blocks.Get(8, 1, Codec::kBf16, more)), Bytes('\xc0'));
  EXPECT_EQ(blocks.Get(7, 2, Codec::kFp16, more).bytes.size(), 6u);
}

TEST(CodedBlocks, OverwritesNothingThatIsOnItsWay) {
  CodedBlocks blocks;
  const std::vector<float> one = {1}, more = {1.5f};
  const Payload kept = blocks.Get(0, 1, Codec::kBf16, one);
  const char* const free = blocks.Get(0, 2, Codec::kBf16, more).bytes.data();
  blocks.Get(0, 3, Codec::kBf16, more);  // in place of version 1
  EXPECT_EQ(BytesOf(kept), Bytes('\x80'));
  EXPECT_EQ(blocks.Get(0, 4, Codec::kBf16, one).bytes.data(), free);
}

}  // namespace
}  // namespace rubato
