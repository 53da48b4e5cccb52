// How much memory this process may still take.
#ifndef RUBATO_COMMON_BASE_HOST_MEMORY_H_
#define RUBATO_COMMON_BASE_HOST_MEMORY_H_

#include <cstdint>
#include <optional>

namespace rubato {

// Bytes that the host has available; nothing where the system does not tell.
std::optional<int64_t> AvailableHostMemory();

// Bytes: the least of what the host has available, what the process's control group (version 2) is
// still granted, and what RLIMIT_AS leaves; nothing where the system tells none of them.
std::optional<int64_t> AvailableMemory();

}  // namespace rubato

#endif  // RUBATO_COMMON_BASE_HOST_MEMORY_H_
