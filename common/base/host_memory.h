// How much memory this process may still take, and what its host grants to all of a job's.
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

// Bytes that processes started by this one could ever hold together: memory, of the host or of the
// control group (version 2) where that is less, and swap. Nothing where the system does not tell.
std::optional<int64_t> TotalMemory();

// How many processes can ever run beside each other here: the least of pid_max, the control group's
// pids.max and, but for root, RLIMIT_NPROC; nothing where the system tells none of them.
std::optional<int64_t> MostProcesses();

}  // namespace rubato

#endif  // RUBATO_COMMON_BASE_HOST_MEMORY_H_
