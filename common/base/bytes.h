#ifndef RUBATO_COMMON_BASE_BYTES_H_
#define RUBATO_COMMON_BASE_BYTES_H_

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace rubato {

// Numbers as they lie in memory.
template <typename T>
absl::string_view AsBytes(absl::Span<const T> values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

}  // namespace rubato

#endif  // RUBATO_COMMON_BASE_BYTES_H_
