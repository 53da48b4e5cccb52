// An append-only file of records, each of which is written completely or not at all. A file that
// has become too large is renamed, and a new one is begun.
#ifndef RUBATO_COMMON_FILES_RECORD_FILE_H_
#define RUBATO_COMMON_FILES_RECORD_FILE_H_

#include <cstdint>
#include <limits>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace rubato {

// For one thread.
class RecordFile {
 public:
  // Makes the file, or goes on at its end. The error names it. Before a record would make it larger
  // than `max_bytes` it is renamed to PATH.1, in place of the one that was there.
  static absl::StatusOr<RecordFile> Open(std::string path,
                                         int64_t max_bytes = std::numeric_limits<int64_t>::max());

  // The same of a file whose records are lines. What a loss of power has left of a last line is cut
  // off before the first record, which would continue it.
  static absl::StatusOr<RecordFile> OpenLines(
      std::string path, int64_t max_bytes = std::numeric_limits<int64_t>::max());

  RecordFile(RecordFile&& other);
  RecordFile& operator=(RecordFile&& other);
  ~RecordFile();

  const std::string& path() const { return path_; }

  // Renames the file. The error names both paths.
  absl::Status Rename(std::string path);

  // In one write(2), so that a process that dies leaves no part of it. ResourceExhausted,
  // Unavailable, … if the write fails: a partial record is cut off again, and the next record may
  // be tried.
  absl::Status Append(absl::string_view record);
  // The same for a record that lies in a few pieces.
  absl::Status Append(absl::Span<const absl::string_view> pieces);
  // What was appended is on the disk when it returns.
  absl::Status Flush();

 private:
  RecordFile(std::string path, int fd, int64_t max_bytes)
      : path_(std::move(path)), fd_(fd), max_bytes_(max_bytes) {}

  // What is behind the last newline.
  absl::Status CutTornLine();
  // Begins a new file.
  absl::Status Rotate();

  std::string path_;
  int fd_;
  int64_t max_bytes_;
  bool may_be_torn_ = false;  // its last line
};

}  // namespace rubato

#endif  // RUBATO_COMMON_FILES_RECORD_FILE_H_
