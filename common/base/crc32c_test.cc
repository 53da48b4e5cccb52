#include "common/base/crc32c.h"

#include <string>

#include "absl/strings/string_view.h"
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

std::string SomeBytes(size_t count) {
  std::string bytes;
  for (uint32_t i = 0; i < count; ++i) bytes += static_cast<char>(37 * i + 11 + (i * i >> 9));
  return bytes;
}

// The polynomial division itself, bit by bit.
uint32_t ByDivision(absl::string_view bytes) {
  uint32_t crc = ~uint32_t{0};
  for (const char c : bytes) {
    crc ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0);
  }
  return ~crc;
}

TEST(Crc32cTest, HoweverTheBytesAreCut) {
  const std::string bytes = SomeBytes(41);
  for (size_t cut = 0; cut <= bytes.size(); ++cut) {
    EXPECT_EQ(Crc32c(bytes.substr(cut), Crc32c(bytes.substr(0, cut))), ByDivision(bytes)) << cut;
  }
}

// Long runs are taken in lanes of some kilobytes.
TEST(Crc32cTest, OfAnyLengthAndAtAnyAddress) {
  const std::string bytes = SomeBytes(60'000);
  for (const size_t size : {12'287, 12'288, 12'289, 24'575, 24'576, 24'600, 59'000}) {
    for (const size_t begin : {0, 1, 7, 64, 999}) {
      const absl::string_view some = absl::string_view(bytes).substr(begin, size);
      EXPECT_EQ(Crc32c(some), ByDivision(some)) << size << " bytes from " << begin;
      EXPECT_EQ(Crc32c(some.substr(5000), Crc32c(some.substr(0, 5000))), ByDivision(some));
    }
  }
}

}  // namespace
}  // namespace rubato
