#include "common/frames/frame.h"

#include <cstring>

#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

using ::testing::HasSubstr;

// The layout that peers rely on, byte by byte.
TEST(FrameTest, HeaderHasTheDocumentedBytes) {
  Frame frame;
  frame.kind = FrameKind::kPull;
  frame.view = 0x11;
  frame.worker = 0x22;
  frame.incarnation = 0x33;
  frame.block_count = 0x44;
  frame.block = 0x5500000001;
  frame.clock = 0x66;
  frame.version = 0x77;
  frame.samples = 0x88;
  frame.first_leaf = 0x99;
  frame.end_leaf = 0xaa;
  frame.staleness = 0xbb;
  frame.unit = 0xcc;
  frame.slot = 0xdd;
  frame.snapshot = 0xee;
  frame.lineage = 0xff;
  frame.payload_bytes = 0x1234;
  frame.values = 0x56;
  frame.codec = Codec::kInt8;
  uint8_t bytes[kFrameHeaderBytes];
  EncodeFrame(frame, bytes);
  const uint8_t expected[kFrameHeaderBytes] = {
      'R',  'U', 'B', 6, 2,    3,    0, 0, 0x11, 0, 0, 0, 0x22, 0, 0, 0, 0x33, 0, 0, 0,
      0x44, 0,   0,   0, 1,    0,    0, 0, 0x55, 0, 0, 0, 0x66, 0, 0, 0, 0,    0, 0, 0,
      0x77, 0,   0,   0, 0,    0,    0, 0, 0x88, 0, 0, 0, 0x99, 0, 0, 0, 0xaa, 0, 0, 0,
      0xbb, 0,   0,   0, 0xcc, 0,    0, 0, 0,    0, 0, 0, 0xdd, 0, 0, 0, 0xee, 0, 0, 0,
      0xff, 0,   0,   0, 0x34, 0x12, 0, 0, 0x56, 0, 0, 0, 0,    0, 0, 0};
  EXPECT_EQ(std::memcmp(bytes, expected, sizeof(bytes)), 0);

  const auto decoded = DecodeFrame(bytes);
  RUBATO_ASSERT_OK(decoded);
  uint8_t again[kFrameHeaderBytes];
  EncodeFrame(*decoded, again);
  EXPECT_EQ(std::memcmp(bytes, again, sizeof(bytes)), 0);
}

TEST(FrameTest, RefusesWhatIsNoFrame) {
  uint8_t bytes[kFrameHeaderBytes] = {};
  EXPECT_THAT(DecodeFrame(bytes), IsError(absl::StatusCode::kInvalidArgument, HasSubstr("begins")));
  EXPECT_THAT(DecodeFrame(absl::MakeSpan(bytes, 10)),
              IsError(absl::StatusCode::kInvalidArgument, HasSubstr("10 bytes")));
  EncodeFrame(Frame(), bytes);
  bytes[4] = 9;
  EXPECT_THAT(DecodeFrame(bytes), IsError(absl::StatusCode::kInvalidArgument, HasSubstr("kind 9")));
  EncodeFrame(Frame(), bytes);
  bytes[5] = 200;
  EXPECT_THAT(DecodeFrame(bytes),
              IsError(absl::StatusCode::kInvalidArgument, HasSubstr("codec 200; expected 0 to 4")));
}

}  // namespace
}  // namespace rubato
