#include "common/files/record_file.h"

#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <fstream>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"

namespace rubato {

absl::StatusOr<RecordFile> RecordFile::Open(std::string path, int64_t max_bytes) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (fd < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot write ", path));
  return RecordFile(std::move(path), fd, max_bytes);
}

absl::StatusOr<RecordFile> RecordFile::OpenLines(std::string path, int64_t max_bytes) {
  RUBATO_ASSIGN_OR_RETURN(RecordFile file, Open(std::move(path), max_bytes));
  file.may_be_torn_ = true;
  return file;
}

absl::Status RecordFile::CutTornLine() {
  std::ifstream file(path_, std::ios::binary | std::ios::ate);
  const std::streamoff size = file.tellg();
  if (size <= 0) return absl::OkStatus();  // nothing is there, or it is a pipe
  std::streamoff end = size;
  for (char buffer[4096]; end > 0;) {
    const std::streamoff piece = std::min<std::streamoff>(end, sizeof buffer);
    file.seekg(end - piece);
    if (!file.read(buffer, piece)) break;
    const size_t newline = absl::string_view(buffer, static_cast<size_t>(piece)).rfind('\n');
    if (newline != absl::string_view::npos) {
      end += static_cast<std::streamoff>(newline) + 1 - piece;
      break;
    }
    end -= piece;
  }
  if (!file) return absl::UnavailableError(absl::StrCat("cannot read ", path_));
  if (end >= size || ftruncate(fd_, end) == 0) return absl::OkStatus();
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot repair ", path_));
}

RecordFile::RecordFile(RecordFile&& other)
    : path_(std::move(other.path_)),
      fd_(std::exchange(other.fd_, -1)),
      max_bytes_(other.max_bytes_),
      may_be_torn_(other.may_be_torn_) {}

RecordFile& RecordFile::operator=(RecordFile&& other) {
  std::swap(path_, other.path_);
  std::swap(fd_, other.fd_);
  std::swap(max_bytes_, other.max_bytes_);
  std::swap(may_be_torn_, other.may_be_torn_);
  return *this;
}

RecordFile::~RecordFile() {
  if (fd_ >= 0) close(fd_);
}

absl::Status RecordFile::Rename(std::string path) {
  if (rename(path_.c_str(), path.c_str()) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot rename ", path_, " to ", path));
  }
  path_ = std::move(path);
  return absl::OkStatus();
}

absl::Status RecordFile::Append(absl::string_view record) {
  return Append(absl::MakeConstSpan(&record, 1));
}

absl::Status RecordFile::Append(absl::Span<const absl::string_view> pieces) {
  if (may_be_torn_) RUBATO_RETURN_IF_ERROR(CutTornLine());
  may_be_torn_ = false;
  std::vector<iovec> vectors;
  ssize_t size = 0;
  for (const absl::string_view piece : pieces) {
    vectors.push_back({const_cast<char*>(piece.data()), piece.size()});
    size += static_cast<ssize_t>(piece.size());
  }
  off_t end = lseek(fd_, 0, SEEK_END);
  if (end > 0 && end > max_bytes_ - size) {
    RUBATO_RETURN_IF_ERROR(Rotate());
    end = 0;
  }
  const ssize_t written = writev(fd_, vectors.data(), static_cast<int>(vectors.size()));
  if (written == size) return absl::OkStatus();
  const int error = written < 0 ? errno : ENOSPC;
  if (written > 0 && end >= 0 && ftruncate(fd_, end) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot repair ", path_));
  }
  return absl::ErrnoToStatus(error, absl::StrCat("cannot write ", path_));
}

absl::Status RecordFile::Flush() {
  if (fdatasync(fd_) == 0) return absl::OkStatus();
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot flush ", path_));
}

absl::Status RecordFile::Rotate() {
  const std::string old = path_ + ".1";
  // It may be renamed already, where the new one could not be made.
  if (rename(path_.c_str(), old.c_str()) != 0 && errno != ENOENT) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot rename ", path_));
  }
  absl::StatusOr<RecordFile> next = Open(path_, max_bytes_);
  if (!next.ok()) return next.status();
  *this = *std::move(next);
  return absl::OkStatus();
}

}  // namespace rubato
