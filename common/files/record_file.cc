#include "common/files/record_file.h"

#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <vector>

#include "absl/strings/str_cat.h"

namespace rubato {

absl::StatusOr<RecordFile> RecordFile::Open(std::string path) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (fd < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot write ", path));
  return RecordFile(std::move(path), fd);
}

RecordFile::RecordFile(RecordFile&& other)
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)) {}

RecordFile& RecordFile::operator=(RecordFile&& other) {
  std::swap(path_, other.path_);
  std::swap(fd_, other.fd_);
  return *this;
}

RecordFile::~RecordFile() {
  if (fd_ >= 0) close(fd_);
}

absl::Status RecordFile::Append(absl::string_view record) {
  return Append(absl::MakeConstSpan(&record, 1));
}

absl::Status RecordFile::Append(absl::Span<const absl::string_view> pieces) {
  std::vector<iovec> vectors;
  ssize_t size = 0;
  for (const absl::string_view piece : pieces) {
    vectors.push_back({const_cast<char*>(piece.data()), piece.size()});
    size += static_cast<ssize_t>(piece.size());
  }
  const off_t end = lseek(fd_, 0, SEEK_END);
  const ssize_t written = writev(fd_, vectors.data(), static_cast<int>(vectors.size()));
  if (written == size) return absl::OkStatus();
  const int error = written < 0 ? errno : ENOSPC;
  if (written > 0 && end >= 0 && ftruncate(fd_, end) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot repair ", path_));
  }
  return absl::ErrnoToStatus(error, absl::StrCat("cannot write ", path_));
}

}  // namespace rubato
