#include "tools/simulator/kept_folder.h"

#include <stdlib.h>

#include <filesystem>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/check.h"
#include "common/files/run_folder.h"

namespace rubato {
namespace {

namespace fs = std::filesystem;

std::string PathOf(int64_t step) { return absl::StrCat("step-", step); }

int64_t StepOf(absl::string_view path) {
  int64_t step = -1;
  RUBATO_CHECK(absl::SimpleAtoi(path.substr(path.find('-') + 1), &step));
  return step;
}

}  // namespace

KeptFolder::KeptFolder(const proto::Job& job)
    : job_(job), folder_((fs::temp_directory_path() / "rubato-drawn-XXXXXX").string()) {
  RUBATO_CHECK(mkdtemp(folder_.data()) != nullptr);
  path_ = RunFolder(folder_).MetricsFile();
  Open();
}

KeptFolder::~KeptFolder() {
  std::error_code error;
  fs::remove_all(folder_, error);
}

void KeptFolder::Open() {
  absl::StatusOr<MetricsFile> file = MetricsFile::Create(path_);
  RUBATO_CHECK(file.ok());
  metrics_.emplace(*std::move(file));
  begun_at_ = fs::file_size(path_);
}

void KeptFolder::OnLine(const MetricsLine& line) {
  RUBATO_CHECK(metrics_->Append(line).ok());
  if (line.kind != MetricsLine::Kind::kEval) return;
  const std::optional<double> value = MetricOf(line, job_.checkpoint().keep_best().metric());
  RUBATO_CHECK(value.has_value());
  kept_.OnEvaluation(line.due, *value);
  tests_[line.due] = {*value, fs::file_size(path_)};
}

void KeptFolder::OnCheckpoint(const proto::Manifest& manifest) {
  const int64_t step = manifest.step();
  for (auto& [before, is_flushed] : written_) {
    is_flushed = true;
    kept_.OnFlushed(PathOf(before));
  }
  written_.emplace(step, false);
  there_[step] = manifest;
  kept_.Add(KeptCheckpoints::EntryOf(job_, PathOf(step), manifest));
  for (const std::string& path : kept_.Expire(job_.checkpoint())) {
    there_.erase(StepOf(path));
  }
}

absl::Status KeptFolder::OnTerm(std::optional<int64_t> step) {
  Open();
  kept_ = {};
  for (const auto& [at, manifest] : there_) {
    kept_.Add(KeptCheckpoints::EntryOf(job_, PathOf(at), manifest));
  }
  const auto evaluations = WrittenEvaluations(path_, job_.checkpoint().keep_best().metric());
  if (!evaluations.ok()) return absl::InternalError("best: the metrics cannot be read");
  for (const auto& [due, value] : *evaluations) kept_.OnEvaluation(due, value);
  if (!step.has_value() || there_.empty() || there_.rbegin()->first == *step) {
    return absl::OkStatus();
  }
  return absl::InternalError(
      absl::StrFormat("best: a term begins with the checkpoint of step %d; the newest one that is "
                      "kept is of step %d",
                      *step, there_.rbegin()->first));
}

void KeptFolder::GoBack(int64_t step) {
  kept_.GoBack(step);
  RUBATO_CHECK(metrics_->GoBack(step).ok());
  begun_at_ = fs::file_size(path_);  // it is flushed
  tests_.erase(tests_.upper_bound(step), tests_.end());
  written_.erase(written_.upper_bound(step), written_.end());
}

void KeptFolder::OnPowerLoss(uint64_t draw) {
  const uint64_t size = fs::file_size(path_);
  const uint64_t cut = begun_at_ + draw % (size - begun_at_ + 1);
  fs::resize_file(path_, cut);
  for (auto test = tests_.begin(); test != tests_.end();) {
    test = test->second.end > cut ? tests_.erase(test) : std::next(test);
  }
  if (written_.empty() || written_.rbegin()->second) return;
  there_.erase(written_.rbegin()->first);
  written_.erase(std::prev(written_.end()));
}

std::optional<double> KeptFolder::ValueOf(int64_t step) const {
  const auto after = tests_.upper_bound(step);
  if (after == tests_.begin()) return std::nullopt;
  return std::prev(after)->second.value;
}

absl::Status KeptFolder::CheckTruth() const {
  const std::optional<KeptCheckpoints::Best> best = kept_.best(job_.checkpoint().keep_best());
  if (!best.has_value()) return absl::OkStatus();
  const int64_t step = StepOf(best->path);
  const std::optional<double> value = ValueOf(step);
  if (value == best->metric && there_.count(step) > 0) return absl::OkStatus();
  return absl::InternalError(absl::StrFormat(
      "best: that of step %d is told to have %g; it has %s, and is %sthere", step, best->metric,
      value.has_value() ? absl::StrCat(*value) : "none", there_.count(step) > 0 ? "" : "not "));
}

absl::Status KeptFolder::CheckBest() const {
  // Where nobody was left to test the end, the last ones wait for their tests.
  if (tests_.empty() || written_.empty() || tests_.rbegin()->first < written_.rbegin()->first) {
    return absl::OkStatus();
  }
  const std::optional<KeptCheckpoints::Best> best = kept_.best(job_.checkpoint().keep_best());
  for (const auto& [step, is_flushed] : written_) {
    const std::optional<double> value = ValueOf(step);
    if (!value.has_value()) continue;
    if (best.has_value() && !IsBetter(*value, best->metric)) continue;
    return absl::InternalError(absl::StrFormat(
        "best: the checkpoint of step %d had %g; %s is told to be the best, and step %d is %sthere",
        step, *value, best.has_value() ? absl::StrCat(best->path, " with ", best->metric) : "none",
        step, there_.count(step) > 0 ? "" : "not "));
  }
  return absl::OkStatus();
}

}  // namespace rubato
