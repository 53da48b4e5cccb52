// A lock on a folder that is released when the process ends, however it ends. The folder itself is
// locked (flock(2)), so no lock file is left.
#ifndef RUBATO_COMMON_FILES_FOLDER_LOCK_H_
#define RUBATO_COMMON_FILES_FOLDER_LOCK_H_

#include <string>
#include <utility>

#include "absl/status/statusor.h"

namespace rubato {

class FolderLock {
 public:
  // FailedPrecondition if another process holds it, or the error of opening the folder. On a file
  // system without locks nothing is locked.
  static absl::StatusOr<FolderLock> Take(const std::string& path);

  FolderLock(FolderLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FolderLock& operator=(FolderLock&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~FolderLock();

 private:
  explicit FolderLock(int fd) : fd_(fd) {}

  int fd_;
};

}  // namespace rubato

#endif  // RUBATO_COMMON_FILES_FOLDER_LOCK_H_
