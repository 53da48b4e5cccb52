#include "common/base/crc32c.h"

#include <string>

#include "gtest/gtest.h"

namespace rubato {
namespace {

// The examples of RFC 3720, appendix B.4, and the customary check value.
TEST(Crc32cTest, PublishedValues) {
  std::string rising, falling;
  for (char i = 0; i < 32; ++i) {
    rising += i;
    falling += static_cast<char>(31 - i);
  }
  EXPECT_EQ(Crc32c(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(Crc32c(std::string(32, '\xff')), 0x62a8ab43u);
  EXPECT_EQ(Crc32c(rising), 0x46dd794eu);
  EXPECT_EQ(Crc32c(falling), 0x113fdb5cu);
  EXPECT_EQ(Crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(Crc32c(""), 0u);
}

// The polynomial division itself, bit by bit, for every cut of some bytes.
TEST(Crc32cTest, HoweverTheBytesAreCut) {
  std::string bytes;
  for (int i = 0; i < 41; ++i) bytes += static_cast<char>(37 * i + 11);
  uint32_t expected = ~uint32_t{0};
  for (const char c : bytes) {
    expected ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) expected = expected >> 1 ^ (expected & 1 ? 0x82f63b78u : 0);
  }
  for (size_t cut = 0; cut <= bytes.size(); ++cut) {
    EXPECT_EQ(Crc32c(bytes.substr(cut), Crc32c(bytes.substr(0, cut))), ~expected) << cut;
  }
}

}  // namespace
}  // namespace rubato
