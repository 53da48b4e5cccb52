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

// The text to add after "expected a number" for a field that ParseNumber refuses: the reason, if it
// looks like a number.
absl::string_view WhyNoNumber(absl::string_view text);

// `text` in quotes, printable and of bounded length.
std::string Quoted(absl::string_view text);

}  // namespace rubato

#endif  // RUBATO_WORKER_DATA_FIELD_H_
