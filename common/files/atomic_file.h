// A file that appears whole or not at all.
#ifndef RUBATO_COMMON_FILES_ATOMIC_FILE_H_
#define RUBATO_COMMON_FILES_ATOMIC_FILE_H_

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace rubato {

// What Commit() flushes to the disk: contents and name; contents only, if the process that
// publishes the folder flushes its names; or nothing, if the file only has to outlive the process
// or is flushed later.
enum class Flush { kName, kContents, kNothing };

// Bytes are written to a temporary file beside `path`, which Commit() flushes to the disk and
// renames. Without Commit() (an error, a destructor) nothing is left behind and an older file of
// that name stays as it was. A crash may leave the temporary file, never part of a file under the
// final name. For one thread.
//
// Errors name the path and the reason: ResourceExhausted if the disk or a quota is full, NotFound
// or FailedPrecondition if the folder is missing or may not be written, Unavailable for everything
// else.
class AtomicFile {
 public:
  // `mode` is the file's mode, reduced by the process's umask.
  static absl::StatusOr<AtomicFile> Create(std::string path, mode_t mode = 0666);
  // For a folder that nobody reads before it is published: the bytes are written to `path` itself,
  // and the file is complete when Commit() returns OK. An existing file is overwritten in place,
  // because creating a file and allocating memory for its contents takes longer than copying them.
  // It is not overwritten if another process has it open, if it has another hard link, or if the
  // file system does not tell. Without Commit() the file is removed.
  static absl::StatusOr<AtomicFile> Reuse(std::string path);

  AtomicFile(AtomicFile&& other);
  AtomicFile& operator=(AtomicFile&& other);
  ~AtomicFile();

  const std::string& path() const { return path_; }

  // For a large file, before the first Append: bytes are gathered into pieces of kPiece, which go
  // to the disk without a copy in the page cache (O_DIRECT); that copy takes several times as long
  // if the kernel has to find memory first. If the file system does not support it, only the
  // gathering remains.
  void BypassCache();
  static constexpr size_t kPiece = size_t{2} << 20;  // bytes

  // After an error the file is gone, and Append and Commit fail.
  absl::Status Append(absl::string_view bytes);
  absl::Status Commit(Flush flush = Flush::kName);

 private:
  AtomicFile(std::string path, std::string temporary_path, int descriptor, int64_t size_before);
  absl::Status Write(absl::string_view bytes);
  // Writes the gathered bytes, which may be less than a piece at the end of the file.
  absl::Status WriteGathered();
  void UseCache();
  // Removes the temporary file and reports what failed, by errno.
  absl::Status Fail(absl::string_view action, int error);
  void Discard();

  std::string path_;
  std::string temporary_path_;
  int descriptor_ = -1;  // -1: committed, discarded or moved from
  int64_t size_before_ = 0;
  int64_t written_ = 0;  // bytes
  // Of kPiece bytes, of which `gathered_` have yet to be written; null: all are written at once.
  std::unique_ptr<char, void (*)(void*)> piece_{nullptr, std::free};
  size_t gathered_ = 0;
};

// For a small file that is replaced again and again, also while the disk is full: contents are
// written over those of a second file, whose space is there already, and the two swap names. So
// readers see the old contents or the new, as with AtomicFile. Only the first call needs space, and
// contents that need more of it than those before (up to 4 KiB they do not, on most file systems;
// those that never overwrite in place need some at all times), or a reader who still has the second
// file open.
//
// The second file stays beside `path`: SecondFile(path), which is hidden. Errors as AtomicFile,
// which may name it.
absl::Status ReplaceFile(const std::string& path, absl::string_view contents, Flush flush);
std::string SecondFile(const std::string& path);

// Whether `name` is that of a file that was to become `of`, as AtomicFile::Create calls it; names
// without their folder.
bool IsUnfinished(absl::string_view name, absl::string_view of);

}  // namespace rubato

#endif  // RUBATO_COMMON_FILES_ATOMIC_FILE_H_
