#include "common/files/folder_lock.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"

namespace rubato {

absl::StatusOr<FolderLock> FolderLock::Take(const std::string& path) {
  FolderLock lock(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (lock.fd_ < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot open ", path));
  if (flock(lock.fd_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    return absl::FailedPreconditionError(
        absl::StrCat("another server holds the run's folder ", path,
                     ": end that process first, also if it is frozen"));
  }
  return lock;
}

FolderLock::~FolderLock() {
  if (fd_ >= 0) close(fd_);
}

}  // namespace rubato
