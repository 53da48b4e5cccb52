#include "tools/bench/convergence/driver.h"

#include <fcntl.h>
#include <sys/file.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "common/base/json.h"
#include "common/base/log.h"
#include "common/base/status.h"
#include "common/files/run_folder.h"
#include "tools/bench/convergence/report.h"
#include "tools/bench/convergence/report_files.h"

namespace rubato {

namespace fs = std::filesystem;

namespace {

// Bytes of the files in `folder`.
int64_t SizeOf(const std::string& folder) {
  int64_t bytes = 0;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder, error)) {
    if (entry.is_regular_file(error)) bytes += static_cast<int64_t>(entry.file_size(error));
  }
  return bytes;
}

// Of the cores, while the cell ran: with whatever else ran on this machine at a normal priority,
// but no less than the cell itself, which may have been given some of the cores or a low priority.
double BusyShare(const Pace::Processors& begin, const CellPool::Ended& ended) {
  const Pace::Processors end = ReadProcessors();
  const double all = end.all - begin.all;
  const double cores = std::max(1U, std::thread::hardware_concurrency());
  const double own = ended.cpu_seconds / std::max(1e-9, ended.wall_seconds * cores);
  return std::min(1.0, std::max(own, all > 0 ? (end.others - begin.others) / all : 0));
}

// Why the study that was begun as `before` is no other than the one now, and still does not go on;
// empty if it is another. Both are JSON.
std::string WhyNotHere(const std::string& before, const std::string& now) {
  nlohmann::json one = ParseJson(before);
  nlohmann::json other = nlohmann::json::parse(now);
  if (!one.is_object()) return "";
  const auto differ_by = [&](const char* key) {
    if (!other.contains(key) || (one.contains(key) && one[key] == other[key])) return false;
    nlohmann::json changed = one;
    changed[key] = other[key];
    return changed == other;
  };
  if (differ_by("timing_model")) {
    return absl::StrCat("was begun by a rubato that simulates times by timing model ",
                        one.contains("timing_model") ? JsonText(one["timing_model"]) : "none",
                        ", this one by ", JsonText(other["timing_model"]),
                        ": give another --out, or go on with that rubato");
  }
  if (const std::string numerics = TextAt(one, "numerics");
      !numerics.empty() && differ_by("numerics")) {
    return absl::StrCat("was begun where workers compute on ", numerics, ", here on ",
                        TextAt(other, "numerics"),
                        ", whose bits differ: give another --out, or begin it with a device.isa "
                        "that both machines have");
  }
  return "";
}

}  // namespace

absl::Status Driver::Lock() {
  std::error_code error;
  fs::create_directories(Path("cells"), error);
  if (error) {
    return absl::FailedPreconditionError(
        absl::StrCat("cannot make ", Path("cells"), ": ", error.message()));
  }
  lock_ = open(Path("lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);  // until the end
  if (lock_ < 0 || flock(lock_, LOCK_EX | LOCK_NB) != 0) {
    return absl::FailedPreconditionError(
        absl::StrCat(folder_, " is in use by another rubato bench convergence"));
  }
  return absl::OkStatus();
}

// Somebody's files are not to lie among those of a study. One that was broken off at its beginning
// has no study.json yet.
absl::Status Driver::CheckFolder() const {
  std::error_code error;
  if (fs::exists(Path("study.json"), error)) return absl::OkStatus();
  for (const fs::directory_entry& entry : fs::directory_iterator(folder_, error)) {
    const std::string name = entry.path().filename().string();
    if (name == "cells" || name == "lock" || absl::StartsWith(name, "study.json")) continue;
    return absl::FailedPreconditionError(
        absl::StrCat(folder_, " is not empty and holds no study: give another --out"));
  }
  return absl::OkStatus();
}

absl::Status Driver::Open() {
  RUBATO_ASSIGN_OR_RETURN(std::string study, StudyJson(study_));
  study += "\n";
  RUBATO_RETURN_IF_ERROR(CheckFolder());
  RUBATO_RETURN_IF_ERROR(Lock());
  const absl::StatusOr<std::string> before = ReadSmallFile(Path("study.json"));
  if (before.ok() && *before != study) {
    if (const std::string why = WhyNotHere(*before, study); !why.empty()) {
      return absl::FailedPreconditionError(absl::StrCat(folder_, " ", why));
    }
    return absl::FailedPreconditionError(
        absl::StrCat(folder_, " holds another study, or of a job that has changed since; ",
                     Path("study.json"), " describes it: give another --out"));
  }
  if (!before.ok()) RUBATO_RETURN_IF_ERROR(WriteFileAtomically(Path("study.json"), study));
  return absl::OkStatus();
}

void Driver::Add(const std::vector<Cell>& cells) {
  done_before_ += std::exchange(done_, 0);
  for (const Cell& cell : cells) {
    cells_.push_back(cell);
    results_.emplace_back();
    const absl::StatusOr<std::string> text = ReadSmallFile(ResultOf(cell));
    if (!text.ok()) continue;
    const absl::StatusOr<CellResult> result = ParseResult(*text);
    // One that failed is tried again.
    if (!result.ok() || !result->error.empty()) continue;
    results_.back() = *result;
    const nlohmann::json measured = ParseJson(ReadSmallFile(MeasuredOf(cell)).value_or(""));
    if (measured.contains("busy")) results_.back()->busy = NumberAt(measured, "busy");
    ++done_before_;
  }
}

absl::Status Driver::StartCell(CellPool* pool, size_t index) {
  const Cell& cell = cells_[index];
  std::error_code error;
  fs::remove_all(RunFolderOf(cell), error);  // of a run that was broken off
  std::vector<std::string> arguments = cell.arguments;
  arguments.insert(arguments.end(), {"--run-dir", RunFolderOf(cell)});
  fs::create_directories(RunFolderOf(cell), error);
  began_with_[index] = ReadProcessors();
  return pool->Start(index, arguments, LogOf(cell));
}

absl::Status Driver::Finish(const CellPool::Ended& ended) {
  const Cell& cell = cells_[ended.cell];
  CellResult result;
  const absl::StatusOr<CellResult> read = ReadCell(RunFolderOf(cell), study_.target);
  if (read.ok() && (ended.exit_code == 0 || !read->diverged.empty())) {
    result = *read;
  } else if (ended.exit_code == 0) {
    result.error = std::string(read.status().message());
  } else {
    const std::string log = ReadSmallFile(LogOf(cell)).value_or("");
    const size_t last = log.rfind("error: ");
    result.error = last == std::string::npos
                       ? absl::StrCat("exited with code ", ended.exit_code)
                       : std::string(absl::StripAsciiWhitespace(log.substr(last + 7)));
  }
  result.busy = BusyShare(began_with_[ended.cell], ended);
  nlohmann::ordered_json measured;
  measured["wall_seconds"] = ended.wall_seconds;
  measured["cpu_seconds"] = ended.cpu_seconds;
  measured["busy"] = *result.busy;
  measured["peak_bytes"] = ended.peak_bytes;
  measured["disk_bytes"] = SizeOf(RunFolderOf(cell));
  RUBATO_RETURN_IF_ERROR(WriteFileAtomically(MeasuredOf(cell), JsonText(measured) + "\n"));
  RUBATO_RETURN_IF_ERROR(WriteFileAtomically(ResultOf(cell), ResultJson(result) + "\n"));
  std::error_code error;
  for (const char* large : {"/checkpoints", "/parameters.safetensors"}) {
    fs::remove_all(RunFolderOf(cell) + large, error);
  }
  results_[ended.cell] = std::move(result);
  return absl::OkStatus();
}

void Driver::Say(const CellPool& pool, const std::string& event) const {
  const size_t all = done_before_ + done_;
  std::string left;
  if (done_ > 0 && all < cells_.size()) {
    const absl::Duration each = (absl::Now() - begun_) / static_cast<int64_t>(done_);
    left = absl::StrCat(", some ",
                        absl::FormatDuration(absl::Ceil(
                            each * static_cast<int64_t>(cells_.size() - all), absl::Seconds(1))),
                        " left");
  }
  WriteAll(2, absl::StrFormat("%d of %d cells are done, %d running%s: %s\n", all, cells_.size(),
                              pool.running(), left, event));
}

absl::StatusOr<int> Driver::Run(SignalWatcher* signals) {
  CellPool pool(signals);
  begun_ = absl::Now();
  size_t next = 0;
  if (done_before_ > 0) {
    WriteAll(2, absl::StrFormat("%d of %d cells are done already\n", done_before_, cells_.size()));
  }
  while (true) {
    for (; next < cells_.size() && pool.running() < jobs_; ++next) {
      if (!results_[next].has_value()) RUBATO_RETURN_IF_ERROR(StartCell(&pool, next));
    }
    if (pool.running() == 0) return 0;
    const CellPool::Ended ended = pool.Wait(absl::Seconds(3600));
    if (ended.what == CellPool::Ended::What::kSignal) return ended.signal;
    if (ended.what == CellPool::Ended::What::kTimeout) continue;
    RUBATO_RETURN_IF_ERROR(Finish(ended));
    ++done_;
    const std::string& error = results_[ended.cell]->error;
    Say(pool, absl::StrCat(cells_[ended.cell].name, error.empty() ? "" : " failed: ", error));
  }
}

std::vector<DoneCell> Driver::Done() const {
  std::vector<DoneCell> done;
  for (size_t i = 0; i < cells_.size(); ++i) {
    if (results_[i].has_value()) done.push_back({cells_[i], *results_[i]});
  }
  return done;
}

absl::Status Driver::WriteResults(const std::string& command) const {
  const std::vector<DoneCell> done = Done();
  std::string measured;
  for (const DoneCell& cell : done) {
    const absl::StatusOr<std::string> text = ReadSmallFile(MeasuredOf(cell.cell));
    if (!text.ok()) continue;
    absl::StrAppend(&measured, "{\"cell\":", JsonText(nlohmann::json(cell.cell.name)), ",",
                    text->substr(1));
  }
  RUBATO_RETURN_IF_ERROR(WriteFileAtomically(Path("measured.jsonl"), measured));
  RUBATO_RETURN_IF_ERROR(WriteFileAtomically(Path("results.jsonl"), ResultsJsonl(study_, done)));
  RUBATO_RETURN_IF_ERROR(WriteFileAtomically(Path("results.csv"), ResultsCsv(study_, done)));
  RUBATO_RETURN_IF_ERROR(
      WriteFileAtomically(Path("report.md"), ReportMarkdown(study_, done, command)));
  return WriteReportPage(folder_, study_, done, command);
}

}  // namespace rubato
