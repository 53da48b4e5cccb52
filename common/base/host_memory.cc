#include "common/base/host_memory.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
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

std::optional<int64_t> OfControlGroup() {
  std::ifstream file("/proc/self/cgroup");
  std::string line;
  while (std::getline(file, line)) {
    if (line.rfind("0::", 0) != 0) continue;
    const std::string folder = "/sys/fs/cgroup" + line.substr(3);
    const std::optional<int64_t> limit = NumberIn(folder + "/memory.max");
    const std::optional<int64_t> used = NumberIn(folder + "/memory.current");
    if (limit.has_value() && used.has_value()) return *limit - *used;
  }
  return std::nullopt;
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

std::optional<int64_t> AvailableHostMemory() {
  std::ifstream file("/proc/meminfo");
  std::string word;
  int64_t kilobytes;
  while (file >> word) {
    if (word == "MemAvailable:" && file >> kilobytes) return kilobytes * 1024;
  }
  return std::nullopt;
}

std::optional<int64_t> AvailableMemory() {
  std::optional<int64_t> least;
  for (const std::optional<int64_t> bytes : {AvailableHostMemory(), OfControlGroup(), OfLimit()}) {
    if (bytes.has_value()) least = std::min(least.value_or(*bytes), *bytes);
  }
  return least.has_value() ? std::optional<int64_t>(std::max<int64_t>(*least, 0)) : std::nullopt;
}

}  // namespace rubato
