// Messages of `rubato train` during a run.
#ifndef RUBATO_TOOLS_COMMAND_SAY_H_
#define RUBATO_TOOLS_COMMAND_SAY_H_

#include <unistd.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "common/base/log.h"
#include "common/base/printable.h"
#include "proto/job.pb.h"

namespace rubato {

inline Log LauncherLog(const proto::Job& job) {
  return Log("launcher", 0, static_cast<LogLevel>(job.log().level()),
             static_cast<LogFormat>(job.log().format()));
}

// Writes a line to standard error: as plain text for people, or in the log's JSON format for
// programs.
inline void Say(const Log& log, absl::string_view text) {
  if (log.format() == LogFormat::kJson) {
    log.Info(text);
  } else {
    for (const absl::string_view line : absl::StrSplit(text, '\n')) {
      WriteAll(2, absl::StrCat(Printable(line), "\n"));
    }
  }
}

// The file's name between these words; empty if it is not there: somebody may have removed the
// run's folder.
inline std::string IfThere(absl::string_view before, const std::string& file,
                           absl::string_view after = "") {
  return access(file.c_str(), F_OK) == 0 ? absl::StrCat(before, file, after) : "";
}

}  // namespace rubato

#endif  // RUBATO_TOOLS_COMMAND_SAY_H_
