#include "common/wire/memory_file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace rubato {

int ReserveMemory(int fd, uint64_t offset, uint64_t bytes) {
  int error;
  do {
    error = posix_fallocate(fd, static_cast<off_t>(offset), static_cast<off_t>(bytes));
  } while (error == EINTR);
  return error;
}

bool HasSeals(int fd, int seals) {
  const int has = fcntl(fd, F_GET_SEALS);
  return has >= 0 && (has & seals) == seals;
}

std::string DescriptorPath(int pid, int fd) { return absl::StrCat("/proc/", pid, "/fd/", fd); }

absl::StatusOr<int> OpenMemoryFile(const std::string& path, absl::string_view name, int flags,
                                   int seals) {
  // In another container the number may be that of any process: open nothing but such memory.
  char target[64] = {};
  if (readlink(path.c_str(), target, sizeof(target) - 1) < 0) {
    return absl::UnavailableError(absl::StrCat(path, ": ", std::strerror(errno)));
  }
  if (!absl::StartsWith(target, absl::StrCat("/memfd:", name))) {
    return absl::UnavailableError(
        absl::StrCat(path, " is of another process (another container?)"));
  }
  // By now the number may be another file's: it is not waited for.
  const int fd = open(path.c_str(), flags | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return absl::UnavailableError(absl::StrCat(path, ": ", std::strerror(errno)));
  struct stat about = {};
  if (fstat(fd, &about) != 0 || about.st_uid != geteuid()) {  // root may open all
    close(fd);
    return absl::UnavailableError(absl::StrCat(path, " is another user's"));
  }
  if (!HasSeals(fd, seals)) {
    close(fd);
    return absl::UnavailableError(absl::StrCat(path, " is not what was offered"));
  }
  return fd;
}

}  // namespace rubato
