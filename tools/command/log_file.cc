#include "tools/command/log_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/files/run_folder.h"

namespace rubato {

absl::Status CutLog(const std::string& path, int64_t max_bytes) {
  struct stat log;
  if (stat(path.c_str(), &log) != 0 || log.st_size <= max_bytes) return absl::OkStatus();
  RUBATO_ASSIGN_OR_RETURN(const std::string text, ReadSmallFile(path));
  RUBATO_RETURN_IF_ERROR(WriteFileAtomically(path + ".1", text));
  if (truncate(path.c_str(), 0) == 0) return absl::OkStatus();
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot empty ", path));
}

}  // namespace rubato
