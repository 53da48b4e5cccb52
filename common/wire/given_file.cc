#include "common/wire/given_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"

namespace rubato {

absl::StatusOr<std::string> ReadGivenFile(const std::string& path, size_t most, Secrecy secrecy) {
  const auto failure = [&](absl::string_view what) {
    return absl::FailedPreconditionError(absl::StrCat(path, ": ", what));
  };
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return failure(std::strerror(errno));
  const auto close_fd = absl::MakeCleanup([fd] { close(fd); });
  struct stat about = {};
  if (fstat(fd, &about) != 0) return failure(std::strerror(errno));
  if (!S_ISREG(about.st_mode)) return failure("this is no file");
  if (secrecy == Secrecy::kOwnerOnly && (about.st_mode & (S_IRWXG | S_IRWXO)) != 0 &&
      about.st_uid == geteuid()) {
    return failure("others may read this key: chmod 600");
  }
  std::string contents(most, '\0');
  const ssize_t size = read(fd, contents.data(), contents.size());
  if (size < 0) return failure(std::strerror(errno));
  contents.resize(static_cast<size_t>(size));
  return contents;
}

}  // namespace rubato
