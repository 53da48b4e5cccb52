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
__attribute__((target("sse4.2"))) uint32_t UpdateByInstruction(uint32_t crc,
                                                               absl::string_view bytes) {
  const char* at = bytes.data();
  size_t left = bytes.size();
  uint64_t wide = crc;
  for (; left >= sizeof(uint64_t); at += sizeof(uint64_t), left -= sizeof(uint64_t)) {
    uint64_t next;
    std::memcpy(&next, at, sizeof(next));
    wide = __builtin_ia32_crc32di(wide, next);
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
