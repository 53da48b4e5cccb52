#include "common/base/crc32c.h"

#include <array>
#include <cstring>

namespace rubato {
namespace {

constexpr uint32_t kReversedPolynomial = 0x82f63b78;

constexpr std::array<uint32_t, 256> MakeTable() {
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? kReversedPolynomial : 0);
    table[byte] = crc;
  }
  return table;
}

constexpr std::array<uint32_t, 256> kTable = MakeTable();

#if defined(__x86_64__)
// The instruction gives its result after three cycles and begins another in each: so three lanes of
// as many bytes go side by side, whose checksums are joined.
constexpr size_t kLane = 4096;

// The product of two polynomials, in the checksum's order of bits: 1 is the highest one.
constexpr uint32_t Product(uint32_t a, uint32_t b) {
  uint32_t product = 0;
  for (int bit = 31; bit >= 0; --bit) {
    if (a >> bit & 1) product ^= b;
    b = b >> 1 ^ (b & 1 ? kReversedPolynomial : 0);
  }
  return product;
}

// x^(8 bytes): by what a checksum is multiplied when so many zeroes follow.
constexpr uint32_t PowerOf(uint64_t bytes) {
  uint32_t power = uint32_t{1} << 31;
  for (uint32_t square = uint32_t{1} << 23; bytes > 0; bytes >>= 1) {
    if (bytes & 1) power = Product(power, square);
    square = Product(square, square);
  }
  return power;
}

// By each byte of a checksum, what it becomes when kLane zeroes follow.
constexpr std::array<std::array<uint32_t, 256>, 4> MakeLaneTables() {
  std::array<uint32_t, 32> of_bit{};
  const uint32_t power = PowerOf(kLane);
  for (int bit = 0; bit < 32; ++bit) of_bit[bit] = Product(uint32_t{1} << bit, power);
  std::array<std::array<uint32_t, 256>, 4> tables{};
  for (int byte = 0; byte < 4; ++byte) {
    for (uint32_t value = 1; value < 256; ++value) {
      const int low = __builtin_ctz(value);
      tables[byte][value] = tables[byte][value & (value - 1)] ^ of_bit[8 * byte + low];
    }
  }
  return tables;
}

constexpr std::array<std::array<uint32_t, 256>, 4> kLaneTables = MakeLaneTables();

uint32_t FollowedByLane(uint32_t crc) {
  return kLaneTables[0][crc & 255] ^ kLaneTables[1][crc >> 8 & 255] ^
         kLaneTables[2][crc >> 16 & 255] ^ kLaneTables[3][crc >> 24];
}

uint64_t WordAt(const char* at) {
  uint64_t word;
  std::memcpy(&word, at, sizeof(word));
  return word;
}

__attribute__((target("sse4.2"))) uint32_t UpdateByInstruction(uint32_t crc,
                                                               absl::string_view bytes) {
  const char* at = bytes.data();
  size_t left = bytes.size();
  for (; left >= 3 * kLane; at += 3 * kLane, left -= 3 * kLane) {
    uint64_t first = crc, second = 0, third = 0;
    for (const char* const end = at + kLane; at < end; at += sizeof(uint64_t)) {
      first = __builtin_ia32_crc32di(first, WordAt(at));
      second = __builtin_ia32_crc32di(second, WordAt(at + kLane));
      third = __builtin_ia32_crc32di(third, WordAt(at + 2 * kLane));
    }
    at -= kLane;
    crc = FollowedByLane(static_cast<uint32_t>(first)) ^ static_cast<uint32_t>(second);
    crc = FollowedByLane(crc) ^ static_cast<uint32_t>(third);
  }
  uint64_t wide = crc;
  for (; left >= sizeof(uint64_t); at += sizeof(uint64_t), left -= sizeof(uint64_t)) {
    wide = __builtin_ia32_crc32di(wide, WordAt(at));
  }
  crc = static_cast<uint32_t>(wide);
  for (; left > 0; ++at, --left) {
    crc = __builtin_ia32_crc32qi(crc, static_cast<unsigned char>(*at));
  }
  return crc;
}
#endif

}  // namespace

uint32_t Crc32c(absl::string_view bytes, uint32_t before) {
  uint32_t crc = ~before;
#if defined(__x86_64__)
  if (__builtin_cpu_supports("sse4.2")) return ~UpdateByInstruction(crc, bytes);
#endif
  for (const char c : bytes) crc = crc >> 8 ^ kTable[(crc ^ static_cast<unsigned char>(c)) & 255];
  return ~crc;
}

}  // namespace rubato
