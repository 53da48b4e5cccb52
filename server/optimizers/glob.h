// Patterns over names.
#ifndef RUBATO_SERVER_OPTIMIZERS_GLOB_H_
#define RUBATO_SERVER_OPTIMIZERS_GLOB_H_

#include "absl/strings/string_view.h"

namespace rubato {

// Whether the whole of `text` is what `pattern` says: `*` is any text, also none, `?` any one
// character, `\` and a character that one, everything else itself. Takes at most |pattern| · |text|
// steps.
bool MatchesGlob(absl::string_view pattern, absl::string_view text);

}  // namespace rubato

#endif  // RUBATO_SERVER_OPTIMIZERS_GLOB_H_
