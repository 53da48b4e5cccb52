// The logs of a run's processes, as `rubato train` follows them: it repeats their warnings, each
// text once, whichever process it comes from, and what the first script prints.
#ifndef RUBATO_TOOLS_COMMAND_PROCESS_LOGS_H_
#define RUBATO_TOOLS_COMMAND_PROCESS_LOGS_H_

#include <cstddef>
#include <map>
#include <set>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/log.h"
#include "common/files/run_folder.h"
#include "proto/job.pb.h"
#include "tools/command/passed_lines.h"
#include "tools/command/progress.h"
#include "tools/command/told_warnings.h"

namespace rubato {

class ProcessLogs {
 public:
  // `folder` and `log`, of the launcher, must outlive it.
  ProcessLogs(const proto::Job& job, const RunFolder& folder, const Log& log);

  // The log of a process, such as "worker 0".
  void Follow(const std::string& process, const std::string& path);
  // Of a warning that the launcher has told of its own: it is not repeated.
  void IsTold(const std::string& warning) { warnings_.IsTold(warning); }

  // Reads what has come, of each log only so much that other things are done in time, and repeats
  // it; what the first script prints if `passes_on`. `display`, if there is one, is cleared first.
  void Read(ProgressDisplay* display, bool passes_on);
  // Whether the last Read has left something.
  bool is_behind() const { return !behind_.empty(); }
  // The same to the end, when no process runs; with `passes_on` the last line may lack its newline.
  void ReadToEnd(bool passes_on);
  // Keeps logs that have been read below some size.
  void Cut(ProgressDisplay& display);

  // What a process calls itself: a worker may have come back with another rank.
  std::string NameOf(const std::string& process) const;
  // What scripts said that have ended before the job: for the end of a sentence.
  std::string EarlyEnds() const;

 private:
  // Reads `most` bytes of each log or a line more.
  void Read(ProgressDisplay* display, bool passes_on, size_t most);
  void OnLine(const std::string& process, const std::string& line, bool is_passed_on,
              ProgressDisplay* display);
  // Says what the first script has printed.
  void PassOn(absl::string_view line, ProgressDisplay* display);
  // Says how many of its lines were not passed on, if it is time.
  void TellSkipped(absl::Time now, ProgressDisplay* display);

  const bool has_scripts_;
  const RunFolder& folder_;
  const Log& log_;
  std::map<std::string, LineTail> logs_;           // by the process that writes
  std::set<std::string> behind_;                   // of these: whose are not read to their end
  std::map<std::string, std::string> names_;       // by the same
  std::map<std::string, std::string> early_ends_;  // likewise
  ToldWarnings warnings_;
  PassedLines passed_;  // of the first script
  bool has_warned_of_size_ = false;
  absl::Time cut_at_ = absl::InfinitePast();
};

}  // namespace rubato

#endif  // RUBATO_TOOLS_COMMAND_PROCESS_LOGS_H_
