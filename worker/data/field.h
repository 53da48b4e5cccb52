// Fields of text files: numbers, and how an error message shows them.
#ifndef RUBATO_WORKER_DATA_FIELD_H_
#define RUBATO_WORKER_DATA_FIELD_H_

#include <string>

#include "absl/strings/string_view.h"

namespace rubato {

// A finite decimal number, rounded to nearest; spaces around it and a plus before it are allowed.
// False for anything else, also for what overflows.
bool ParseNumber(absl::string_view text, float* value);
bool ParseNumber(absl::string_view text, double* value);

// What stands behind "expected a number" of a text that ParseNumber refuses: why, where it is one.
absl::string_view WhyNoNumber(absl::string_view text);

// `text` in quotes, printable and of bounded length.
std::string Quoted(absl::string_view text);

}  // namespace rubato

#endif  // RUBATO_WORKER_DATA_FIELD_H_
