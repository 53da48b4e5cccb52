// Text of others, made safe to be shown.
#ifndef RUBATO_COMMON_BASE_PRINTABLE_H_
#define RUBATO_COMMON_BASE_PRINTABLE_H_

#include <string>

#include "absl/strings/string_view.h"

namespace rubato {

// `text` with what would command a terminal written as \xNN: control characters, C1's among them,
// characters that turn the direction of writing, and bytes that are no UTF-8. Newlines, too: the
// result is one line.
std::string Printable(absl::string_view text);

}  // namespace rubato

#endif  // RUBATO_COMMON_BASE_PRINTABLE_H_
