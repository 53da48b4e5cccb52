#include "common/base/host_memory.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <initializer_list>
#include <string>

namespace rubato {
namespace {

// The number at the beginning of a file; nothing if there is none, as in "max".
std::optional<int64_t> NumberIn(const std::string& path) {
  std::ifstream file(path);
  int64_t number;
  if (file >> number) return number;
  return std::nullopt;
}

// What the control group's file of that name says.
std::optional<int64_t> OfControlGroup(const std::string& name) {
  std::ifstream file("/proc/self/cgroup");
  std::string line;
  while (std::getline(file, line)) {
    if (line.rfind("0::", 0) == 0) return NumberIn("/sys/fs/cgroup" + line.substr(3) + "/" + name);
  }
  return std::nullopt;
}

std::optional<int64_t> LeftToControlGroup() {
  const std::optional<int64_t> limit = OfControlGroup("memory.max");
  const std::optional<int64_t> used = OfControlGroup("memory.current");
  if (limit.has_value() && used.has_value()) return *limit - *used;
  return std::nullopt;
}

// Bytes in the line of /proc/meminfo that begins with `word`.
std::optional<int64_t> OfHost(const std::string& word) {
  std::ifstream file("/proc/meminfo");
  std::string found;
  int64_t kilobytes;
  while (file >> found) {
    if (found == word && file >> kilobytes) return kilobytes * 1024;
  }
  return std::nullopt;
}

std::optional<int64_t> Least(std::initializer_list<std::optional<int64_t>> numbers) {
  std::optional<int64_t> least;
  for (const std::optional<int64_t>& number : numbers) {
    if (number.has_value()) least = std::min(least.value_or(*number), *number);
  }
  return least;
}

std::optional<int64_t> OfLimit() {
  rlimit limit;
  const std::optional<int64_t> pages = NumberIn("/proc/self/statm");
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY || !pages.has_value()) {
    return std::nullopt;
  }
  return static_cast<int64_t>(limit.rlim_cur) - *pages * sysconf(_SC_PAGESIZE);
}

}  // namespace

std::optional<int64_t> AvailableHostMemory() { return OfHost("MemAvailable:"); }

std::optional<int64_t> AvailableMemory() {
  const std::optional<int64_t> least =
      Least({AvailableHostMemory(), LeftToControlGroup(), OfLimit()});
  return least.has_value() ? std::optional<int64_t>(std::max<int64_t>(*least, 0)) : std::nullopt;
}

std::optional<int64_t> TotalMemory() {
  const std::optional<int64_t> memory = Least({OfHost("MemTotal:"), OfControlGroup("memory.max")});
  if (!memory.has_value()) return std::nullopt;
  return *memory + OfHost("SwapTotal:").value_or(0);
}

std::optional<int64_t> MostProcesses() {
  std::optional<int64_t> of_user;
  rlimit limit;
  if (geteuid() != 0 && getrlimit(RLIMIT_NPROC, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
    of_user = static_cast<int64_t>(limit.rlim_cur);
  }
  return Least({NumberIn("/proc/sys/kernel/pid_max"), OfControlGroup("pids.max"), of_user});
}

}  // namespace rubato
