#include "common/base/printable.h"

#include <cstddef>
#include <cstdint>

#include "absl/strings/str_format.h"

namespace rubato {
namespace {

struct Character {
  uint32_t code = 0;
  size_t bytes = 0;  // 0: it is none
};

// The first of `text`, in UTF-8 (RFC 3629).
Character First(absl::string_view text) {
  constexpr uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  const size_t bytes = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() < bytes) return {};
  uint32_t code = lead & (0x7fu >> bytes);
  for (size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return {};
    code = code << 6 | (byte(i) & 0x3f);
  }
  const bool is_surrogate = code >= 0xd800 && code <= 0xdfff;
  if (code < kLeast[bytes] || code > 0x10ffff || is_surrogate) return {};
  return {code, bytes};
}

bool IsHarmless(uint32_t code) {
  const auto within = [code](uint32_t first, uint32_t last) {
    return code >= first && code <= last;
  };
  // C0; DEL and C1; marks, embeddings, overrides and isolates of direction, and separators.
  return !within(0, 0x1f) && !within(0x7f, 0x9f) && !within(0x200e, 0x200f) &&
         !within(0x2028, 0x202e) && !within(0x2066, 0x2069);
}

}  // namespace

std::string Printable(absl::string_view text) {
  std::string printable;
  printable.reserve(text.size());
  while (!text.empty()) {
    const Character first = First(text);
    const size_t bytes = first.bytes == 0 ? 1 : first.bytes;
    for (const char byte : text.substr(0, bytes)) {
      if (first.bytes > 0 && IsHarmless(first.code)) {
        printable += byte;
      } else {
        absl::StrAppendFormat(&printable, "\\x%02x", static_cast<uint8_t>(byte));
      }
    }
    text.remove_prefix(bytes);
  }
  return printable;
}

size_t Utf8Prefix(absl::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    const size_t bytes = First(text.substr(at)).bytes;
    if (bytes == 0) break;
    at += bytes;
  }
  return at;
}

bool IsUtf8(absl::string_view text) { return Utf8Prefix(text) == text.size(); }

}  // namespace rubato
