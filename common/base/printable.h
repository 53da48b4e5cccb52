// Makes text from other processes safe to display.
#ifndef RUBATO_COMMON_BASE_PRINTABLE_H_
#define RUBATO_COMMON_BASE_PRINTABLE_H_

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

namespace rubato {

// Escapes as \xNN what a terminal could interpret: control characters (C0 and C1), characters that
// change the writing direction, and bytes that are not UTF-8. Newlines too, so the result is one
// line.
std::string Printable(absl::string_view text);

// How many bytes at the beginning are UTF-8 of RFC 3629: without surrogates and forms that are
// longer than needed.
size_t Utf8Prefix(absl::string_view text);
bool IsUtf8(absl::string_view text);

}  // namespace rubato

#endif  // RUBATO_COMMON_BASE_PRINTABLE_H_
