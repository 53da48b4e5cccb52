// A small file that a process is given: its key, its certificate.
#ifndef RUBATO_COMMON_WIRE_GIVEN_FILE_H_
#define RUBATO_COMMON_WIRE_GIVEN_FILE_H_

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"

namespace rubato {

enum class Secrecy { kNone, kOwnerOnly };

// The first `most` bytes of the file. FailedPrecondition, naming the file, if it cannot be read, is
// not a regular file, or belongs to this user and others may read it although they must not.
absl::StatusOr<std::string> ReadGivenFile(const std::string& path, size_t most, Secrecy secrecy);

}  // namespace rubato

#endif  // RUBATO_COMMON_WIRE_GIVEN_FILE_H_
