// A small file that a process is given: its key, its certificate.
#ifndef RUBATO_COMMON_WIRE_GIVEN_FILE_H_
#define RUBATO_COMMON_WIRE_GIVEN_FILE_H_

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"

namespace rubato {

enum class Secrecy { kNone, kOwnerOnly };

// The first `most` bytes of the file. FailedPrecondition, naming it, if it cannot be read, is no
// file, or, being this user's, may be read by others where it must not.
absl::StatusOr<std::string> ReadGivenFile(const std::string& path, size_t most, Secrecy secrecy);

}  // namespace rubato

#endif  // RUBATO_COMMON_WIRE_GIVEN_FILE_H_
