// A lock on a folder that its process holds as long as it lives, however it ends: the folder itself
// is locked (flock(2)), so no file is left.
#ifndef RUBATO_COMMON_FILES_FOLDER_LOCK_H_
#define RUBATO_COMMON_FILES_FOLDER_LOCK_H_

#include <string>
#include <utility>

#include "absl/status/statusor.h"

namespace rubato {

class FolderLock {
 public:
  // FailedPrecondition if another process holds it; the error of the folder. A file system without
  // locks locks nothing.
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
