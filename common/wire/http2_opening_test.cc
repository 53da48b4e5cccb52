#include "common/wire/http2_opening.h"

#include <string>

#include "gtest/gtest.h"

namespace rubato {
namespace {

const char kPreface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

// RFC 9113, 4.1.
std::string Frame(int type, int flags, const std::string& payload) {
  std::string frame(9, 0);
  frame[0] = static_cast<char>(payload.size() >> 16);
  frame[1] = static_cast<char>(payload.size() >> 8);
  frame[2] = static_cast<char>(payload.size());
  frame[3] = static_cast<char>(type);
  frame[4] = static_cast<char>(flags);
  return frame + payload;
}

constexpr int kHeaders = 1, kSettings = 4, kPing = 6, kWindow = 8, kAck = 1;

TEST(Http2OpeningTest, TheFirstSettingsLimitTheCalls) {
  EXPECT_EQ(FirstSettings(0x12345678), Frame(kSettings, 0, std::string("\0\3\x12\x34\x56\x78", 6)));
}

TEST(Http2OpeningTest, AnOpeningIsWholeWithTheAcknowledgement) {
  const std::string opening = kPreface + Frame(kSettings, 0, std::string(18, 1)) +
                              Frame(kWindow, 0, "abcd") + Frame(kSettings, kAck, "");
  for (size_t size = 0; size < opening.size(); ++size) {
    EXPECT_EQ(ReadOpening(opening.substr(0, size)), Opening::kUnfinished) << size;
  }
  EXPECT_EQ(ReadOpening(opening), Opening::kAcknowledged);
  EXPECT_EQ(ReadOpening(opening + "more"), Opening::kAcknowledged);
}

// A flag of that value means other things in other frames, and bytes within a frame nothing.
TEST(Http2OpeningTest, NothingElseIsAnAcknowledgement) {
  EXPECT_EQ(ReadOpening(kPreface + Frame(kPing, kAck, std::string(8, 'x')) +
                        Frame(kHeaders, kAck, Frame(kSettings, kAck, ""))),
            Opening::kUnfinished);
}

TEST(Http2OpeningTest, AnOpeningHasLimits) {
  const std::string frames = kPreface + Frame(kHeaders, 0, std::string(kMaxOpeningBytes, 'x'));
  EXPECT_EQ(ReadOpening(frames.substr(0, kMaxOpeningBytes - 1)), Opening::kUnfinished);
  EXPECT_EQ(ReadOpening(frames.substr(0, kMaxOpeningBytes)), Opening::kTooLong);
  EXPECT_EQ(ReadOpening(kPreface + std::string(9, '\xff')), Opening::kUnfinished);  // 16 MiB
}

TEST(Http2OpeningTest, WhoSpeaksSomethingElseIsKnownByTheFirstByte) {
  EXPECT_EQ(ReadOpening("GET"), Opening::kNotHttp2);
  EXPECT_EQ(ReadOpening("\x16\x03\x01"), Opening::kNotHttp2);
  EXPECT_EQ(ReadOpening("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\r"), Opening::kNotHttp2);
  EXPECT_EQ(ReadOpening(""), Opening::kUnfinished);
}

}  // namespace
}  // namespace rubato
