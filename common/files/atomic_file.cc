#include "common/files/atomic_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/log.h"
#include "common/base/status.h"

namespace rubato {
namespace {

absl::StatusCode CodeOf(int error) {
  switch (error) {
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
    case ENOMEM:
    case EMFILE:
    case ENFILE:
      return absl::StatusCode::kResourceExhausted;
    case ENOENT:
    case ENOTDIR:
      return absl::StatusCode::kNotFound;
    case EACCES:
    case EPERM:
    case EROFS:
    case EISDIR:
    case ENAMETOOLONG:
    case ELOOP:
      return absl::StatusCode::kFailedPrecondition;
    default:
      return absl::StatusCode::kUnavailable;
  }
}

absl::Status ErrorOf(absl::string_view action, absl::string_view path, int error) {
  return absl::Status(CodeOf(error), absl::StrCat("cannot ", action, " ", path, ": ",
                                                  std::generic_category().message(error)));
}

std::string FolderOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return path.substr(0, slash == 0 ? 1 : slash);
}

// The new name is on the disk when the folder is. Where folders cannot be flushed, nothing more can
// be done.
void FlushName(const std::string& path) {
  const int folder = open(FolderOf(path).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) return;
  (void)fsync(folder);
  close(folder);
}

std::string TemporaryPath(const std::string& path) {
  // The number keeps two writers of one path apart, in one process as well; the last to commit
  // wins.
  static std::atomic<uint64_t> last{0};
  return absl::StrCat(path, ".", getpid(), "-", ++last, ".tmp");
}

// The size of a file that `descriptor` alone holds open, under one name; else nothing.
std::optional<int64_t> SizeOfOwn(int descriptor) {
  struct stat file = {};
  if (descriptor < 0 || fstat(descriptor, &file) != 0) return std::nullopt;
  if (!S_ISREG(file.st_mode) || file.st_nlink != 1) return std::nullopt;
  // The kernel gives a lease to write only while nobody else has the file open or mapped. Whoever
  // opens it while we have the lease would have us sent a signal: one that is ignored.
  (void)fcntl(descriptor, F_SETSIG, SIGURG);
  if (fcntl(descriptor, F_SETLEASE, F_WRLCK) != 0) return std::nullopt;
  (void)fcntl(descriptor, F_SETLEASE, F_UNLCK);
  return file.st_size;
}

// To write over what is there, of which `*size` tells the bytes; or a new file in place of what
// others have too. Below 0: errno says why.
int OpenOwn(const std::string& path, int64_t* size) {
  int descriptor = open(path.c_str(), O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (const std::optional<int64_t> found = SizeOfOwn(descriptor); found.has_value()) {
    *size = *found;
    return descriptor;
  }
  if (descriptor >= 0 || errno != ENOENT) unlink(path.c_str());
  if (descriptor >= 0) close(descriptor);
  *size = 0;
  return open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
}

}  // namespace

absl::StatusOr<AtomicFile> AtomicFile::Create(std::string path, mode_t mode) {
  std::string temporary_path = TemporaryPath(path);
  const auto create = [&] {
    return open(temporary_path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
  };
  int descriptor = create();
  if (descriptor < 0 && errno == EEXIST) {  // of a process before, which had the same number
    unlink(temporary_path.c_str());
    descriptor = create();
  }
  if (descriptor < 0) return ErrorOf("create", path, errno);
  return AtomicFile(std::move(path), std::move(temporary_path), descriptor, /*size_before=*/0);
}

absl::StatusOr<AtomicFile> AtomicFile::Reuse(std::string path) {
  int64_t size = 0;
  const int descriptor = OpenOwn(path, &size);
  if (descriptor < 0) return ErrorOf("create", path, errno);
  return AtomicFile(path, path, descriptor, size);
}

AtomicFile::AtomicFile(std::string path, std::string temporary_path, int descriptor,
                       int64_t size_before)
    : path_(std::move(path)),
      temporary_path_(std::move(temporary_path)),
      descriptor_(descriptor),
      size_before_(size_before) {}

AtomicFile::AtomicFile(AtomicFile&& other)
    : path_(std::move(other.path_)),
      temporary_path_(std::move(other.temporary_path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      size_before_(other.size_before_),
      written_(other.written_),
      piece_(std::move(other.piece_)),
      gathered_(other.gathered_) {}

AtomicFile& AtomicFile::operator=(AtomicFile&& other) {
  Discard();
  path_ = std::move(other.path_);
  temporary_path_ = std::move(other.temporary_path_);
  descriptor_ = std::exchange(other.descriptor_, -1);
  size_before_ = other.size_before_;
  written_ = other.written_;
  piece_ = std::move(other.piece_);
  gathered_ = other.gathered_;
  return *this;
}

AtomicFile::~AtomicFile() { Discard(); }

void AtomicFile::BypassCache() {
  // Aligned to a large page: the kernel then looks up one for each piece, and not 512.
  piece_.reset(static_cast<char*>(std::aligned_alloc(kPiece, kPiece)));
  if (piece_ == nullptr) return;
  (void)madvise(piece_.get(), kPiece, MADV_HUGEPAGE);
  (void)fcntl(descriptor_, F_SETFL, O_DIRECT);
}

void AtomicFile::UseCache() { (void)fcntl(descriptor_, F_SETFL, 0); }

absl::Status AtomicFile::Append(absl::string_view bytes) {
  if (descriptor_ < 0) {
    return absl::FailedPreconditionError(absl::StrCat(path_, " is no longer being written"));
  }
  if (piece_ == nullptr) return Write(bytes);
  while (!bytes.empty()) {
    const size_t some = std::min(bytes.size(), kPiece - gathered_);
    std::memcpy(piece_.get() + gathered_, bytes.data(), some);
    bytes.remove_prefix(some);
    gathered_ += some;
    if (gathered_ == kPiece) RUBATO_RETURN_IF_ERROR(WriteGathered());
  }
  return absl::OkStatus();
}

absl::Status AtomicFile::WriteGathered() {
  if (gathered_ < kPiece) UseCache();  // which alone takes what ends within a sector
  return Write({piece_.get(), std::exchange(gathered_, 0)});
}

absl::Status AtomicFile::Write(absl::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(descriptor_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && errno == EINVAL && (fcntl(descriptor_, F_GETFL) & O_DIRECT) != 0) {
      UseCache();
      continue;
    }
    if (written < 0) return Fail("write", errno);
    bytes.remove_prefix(written);
    written_ += written;
  }
  return absl::OkStatus();
}

absl::Status AtomicFile::Commit(Flush flush) {
  if (descriptor_ < 0) {
    return absl::FailedPreconditionError(absl::StrCat(path_, " is no longer being written"));
  }
  if (gathered_ > 0) RUBATO_RETURN_IF_ERROR(WriteGathered());
  piece_.reset();
  if (written_ < size_before_ && ftruncate(descriptor_, written_) != 0) return Fail("write", errno);
  if (flush != Flush::kNothing && fsync(descriptor_) != 0) return Fail("write", errno);
  // Some file systems report a full disk only now.
  if (close(std::exchange(descriptor_, -1)) != 0) return Fail("write", errno);
  if (temporary_path_ != path_ && rename(temporary_path_.c_str(), path_.c_str()) != 0) {
    return Fail("rename to", errno);
  }
  if (flush == Flush::kName) FlushName(path_);
  return absl::OkStatus();
}

absl::Status AtomicFile::Fail(absl::string_view action, int error) {
  if (descriptor_ >= 0) close(std::exchange(descriptor_, -1));
  unlink(temporary_path_.c_str());
  return ErrorOf(action, path_, error);
}

void AtomicFile::Discard() {
  if (descriptor_ < 0) return;
  close(std::exchange(descriptor_, -1));
  unlink(temporary_path_.c_str());
}

namespace {

// Unlike AtomicFile::Reuse, keeps what space the file has if the contents do not fit.
absl::Status WriteOver(const std::string& path, absl::string_view contents, Flush flush) {
  int64_t size_before = 0;
  const int descriptor = OpenOwn(path, &size_before);
  if (descriptor < 0) return ErrorOf("create", path, errno);
  const auto fail = [&] {
    const int error = errno;
    close(descriptor);
    return ErrorOf("write", path, error);
  };
  const auto size = static_cast<off_t>(contents.size());
  if (!WriteAll(descriptor, contents)) return fail();
  if (size < size_before && ftruncate(descriptor, size) != 0) return fail();
  if (flush != Flush::kNothing && fsync(descriptor) != 0) return fail();
  if (close(descriptor) != 0) return ErrorOf("write", path, errno);
  return absl::OkStatus();
}

}  // namespace

std::string SecondFile(const std::string& path) {
  const size_t name = path.rfind('/') + 1;  // 0 where there is no slash
  return absl::StrCat(path.substr(0, name), ".", path.substr(name));
}

absl::Status ReplaceFile(const std::string& path, absl::string_view contents, Flush flush) {
  const std::string second = SecondFile(path);
  const Flush of_contents = flush == Flush::kNothing ? flush : Flush::kContents;
  RUBATO_RETURN_IF_ERROR(WriteOver(second, contents, of_contents));
  if (renameat2(AT_FDCWD, second.c_str(), AT_FDCWD, path.c_str(), RENAME_EXCHANGE) != 0) {
    // There was none yet, or the file system cannot swap names.
    if (rename(second.c_str(), path.c_str()) != 0) return ErrorOf("rename to", path, errno);
    (void)WriteOver(second, contents, Flush::kNothing);  // takes the space that the next one needs
  }
  if (flush == Flush::kName) FlushName(path);
  return absl::OkStatus();
}

bool IsUnfinished(absl::string_view name, absl::string_view of) {
  // As TemporaryPath makes it.
  if (!absl::ConsumePrefix(&name, of) || !absl::ConsumePrefix(&name, ".") ||
      !absl::ConsumeSuffix(&name, ".tmp")) {
    return false;
  }
  const std::vector<absl::string_view> numbers = absl::StrSplit(name, '-');
  return numbers.size() == 2 &&
         std::all_of(numbers.begin(), numbers.end(), [](absl::string_view number) {
           return !number.empty() && std::all_of(number.begin(), number.end(), absl::ascii_isdigit);
         });
}

}  // namespace rubato
