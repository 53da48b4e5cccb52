#ifndef RUBATO_COMMON_BASE_BYTES_H_
#define RUBATO_COMMON_BASE_BYTES_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace rubato {

// Numbers as they lie in memory.
template <typename T>
absl::string_view AsBytes(absl::Span<const T> values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

// The lowest `bytes` bytes of a number, in the byte order of files and messages.
inline std::string LittleEndian(uint64_t value, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i) text += static_cast<char>(value >> 8 * i & 255);
  return text;
}

}  // namespace rubato

#endif  // RUBATO_COMMON_BASE_BYTES_H_
