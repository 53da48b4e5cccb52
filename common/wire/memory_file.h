// Files that are memory only (memfd), by which processes of one host share some.
#ifndef RUBATO_COMMON_WIRE_MEMORY_FILE_H_
#define RUBATO_COMMON_WIRE_MEMORY_FILE_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace rubato {

// Reserves memory of a file, so that writing there cannot be fatal. Returns an errno, or 0.
int ReserveMemory(int fd, uint64_t offset, uint64_t bytes);

// Whether the file has all of these seals, which it keeps. False of what can have none.
bool HasSeals(int fd, int seals);

// Where a process of this host finds another's descriptor.
std::string DescriptorPath(int pid, int fd);

// Opens another process's memory file at DescriptorPath, by the flags of open(2), if it has `name`
// and these seals: a descriptor of the caller's. Unavailable, beginning with the path; so it is if
// the memory is another user's.
absl::StatusOr<int> OpenMemoryFile(const std::string& path, absl::string_view name, int flags,
                                   int seals);

}  // namespace rubato

#endif  // RUBATO_COMMON_WIRE_MEMORY_FILE_H_
