#include "tools/command/process_logs.h"

#include <cstdint>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "common/base/monotonic.h"
#include "tools/command/log_file.h"
#include "tools/command/log_line.h"
#include "tools/command/say.h"

namespace rubato {
namespace {

constexpr int64_t kMaxLog = 16 << 20;  // bytes of a process's log, and of the one before
constexpr absl::Duration kCutAgain = absl::Minutes(1);  // when that has failed
// Of each log in one go, while processes run: short lines are read at some 10 MB/s, and a script
// may print them faster than that for as long as it likes.
constexpr size_t kMostAtOnce = 1 << 18;
constexpr size_t kAll = std::numeric_limits<size_t>::max();

// What a script says when it ends and its job does not (python/rubato/job.py).
constexpr absl::string_view kEarlyEnd = "rubato: the script ends in epoch ";

// The worker whose script is heard on the terminal, as the process of rank 0 is elsewhere.
constexpr absl::string_view kFirstScript = "worker 0";

// Whether a script has printed the line: its rubato-worker writes events, and why others ended it.
bool IsPrinted(absl::string_view line, const LogLine& parsed) {
  return !line.empty() && !parsed.is_event && !absl::StartsWith(line, "stopped: ");
}

}  // namespace

ProcessLogs::ProcessLogs(const proto::Job& job, const RunFolder& folder, const Log& log)
    : has_scripts_(job.script_size() > 0), folder_(folder), log_(log) {}

void ProcessLogs::Follow(const std::string& process, const std::string& path) {
  logs_.try_emplace(process, path);
}

void ProcessLogs::Read(ProgressDisplay* display, bool passes_on) {
  Read(display, passes_on, kMostAtOnce);
}

void ProcessLogs::ReadToEnd(bool passes_on) { Read(nullptr, passes_on, kAll); }

void ProcessLogs::Read(ProgressDisplay* display, bool passes_on, size_t most) {
  const bool has_ended = display == nullptr && passes_on;
  behind_.clear();
  for (auto& [process, log] : logs_) {
    const bool is_passed_on = passes_on && has_scripts_ && process == kFirstScript;
    size_t bytes = 0;
    while (bytes < most) {
      std::optional<std::string> line = log.Next();
      if (!line.has_value() && has_ended) line = log.TakeRest();
      if (!line.has_value()) break;
      bytes += line->size() + 1;
      OnLine(process, *line, is_passed_on && !log.is_overwritten(), display);
    }
    if (bytes >= most) behind_.insert(process);
  }
  // At the end it is time.
  TellSkipped(display == nullptr ? absl::InfiniteFuture() : MonotonicNow(), display);
}

void ProcessLogs::OnLine(const std::string& process, const std::string& line, bool is_passed_on,
                         ProgressDisplay* display) {
  const LogLine parsed = ParseLogLine(line);
  // Before it takes part a worker has no rank.
  if (absl::StrContains(parsed.name, " ")) names_[process] = parsed.name;
  if (absl::StartsWith(line, kEarlyEnd))
    early_ends_[process] = std::string(absl::StripPrefix(line, "rubato: "));
  if (is_passed_on && IsPrinted(line, parsed)) PassOn(line, display);
  const std::optional<std::string>& warning = parsed.warning;
  if (!warning.has_value()) return;
  const ToldWarnings::Answer answer = warnings_.On(*warning, MonotonicNow());
  if (answer == ToldWarnings::Answer::kKeep) return;
  if (display != nullptr) display->Clear();
  const std::string text =
      answer == ToldWarnings::Answer::kTellOfMore
          ? absl::StrCat("more warnings are ", folder_.IsRemoved()
                                                   ? "not shown"
                                                   : absl::StrCat("in ", folder_.path(), "/logs"))
          : absl::StrCat(parsed.name, ": ", *warning);
  if (log_.format() == LogFormat::kJson) {
    log_.Warning(text);
  } else {
    Say(log_, absl::StrCat("warning: ", text));
  }
}

void ProcessLogs::PassOn(absl::string_view line, ProgressDisplay* display) {
  const absl::Time now = MonotonicNow();
  TellSkipped(now, display);
  if (!passed_.Passes(line.size(), now)) return;
  if (display != nullptr) display->Clear();
  const std::string text = absl::StrReplaceAll(line, {{"\t", "    "}});
  Say(log_, log_.format() == LogFormat::kJson ? absl::StrCat(kFirstScript, ": ", text) : text);
}

void ProcessLogs::TellSkipped(absl::Time now, ProgressDisplay* display) {
  const int64_t skipped = passed_.TakeSkipped(now);
  if (skipped == 0) return;
  if (display != nullptr) display->Clear();
  Say(log_, absl::StrCat(kFirstScript, " printed ", skipped, skipped == 1 ? " line" : " lines",
                         " more", IfThere(": ", folder_.LogFile("worker", 0))));
}

void ProcessLogs::Cut(ProgressDisplay& display) {
  if (MonotonicNow() < cut_at_) return;
  for (const auto& [process, log] : logs_) {
    if (behind_.count(process) > 0) continue;  // what is not read yet would be lost
    const absl::Status status = CutLog(log.path(), kMaxLog);
    if (status.ok()) continue;
    // Each try takes what is left on the disk for a moment.
    cut_at_ = MonotonicNow() + kCutAgain;
    if (std::exchange(has_warned_of_size_, true)) continue;
    display.Clear();
    Say(log_, absl::StrCat("warning: a log grows until it can be cut: ", status.message()));
  }
}

std::string ProcessLogs::NameOf(const std::string& process) const {
  const auto name = names_.find(process);
  return name == names_.end() ? process : name->second;
}

std::string ProcessLogs::EarlyEnds() const {
  std::string text;
  for (const auto& [process, said] : early_ends_) absl::StrAppend(&text, "; ", process, ": ", said);
  return text;
}

}  // namespace rubato
