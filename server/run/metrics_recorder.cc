#include "server/run/metrics_recorder.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/json.h"
#include "common/base/status.h"
#include "server/run/line_stride.h"
#include "server/run/run_state.h"

namespace rubato {
namespace {

// Seconds of training.
double TimeOf(const nlohmann::json& line) {
  if (!line.is_object()) return 0;
  const auto time = line.find("time");
  return time != line.end() && time->is_number() ? time->get<double>() : 0;
}

bool HasEventFile(const RunFolder& folder) {
  std::error_code error;
  for (std::filesystem::directory_iterator it(folder.path(), error), end; !error && it != end;
       it.increment(error)) {
    if (absl::StartsWith(it->path().filename().string(), "events.out.tfevents.")) return true;
  }
  return false;
}

}  // namespace

absl::StatusOr<MetricsRecorder> MetricsRecorder::Create(const RunFolder& folder, bool tensorboard,
                                                        bool goes_on, absl::Time now,
                                                        const Log* log) {
  RUBATO_ASSIGN_OR_RETURN(MetricsFile file, MetricsFile::Create(folder.MetricsFile()));
  MetricsRecorder recorder(std::move(file), log);
  const bool copies = tensorboard && !(goes_on && HasEventFile(folder));
  if (tensorboard) {
    absl::StatusOr<TensorboardFile> made =
        copies ? TensorboardFile::CreateUnpublished(folder.path(), now)
               : TensorboardFile::Create(folder.path(), now);
    recorder.WarnOnce(made.status(), &recorder.warned_of_tensorboard_);
    if (made.ok()) recorder.tensorboard_.emplace(*std::move(made));
  }
  const double last = copies ? ReadLastMetrics(folder).seconds : 0;
  // Line by line, and parsed where they are copied alone: a week's are 90 MB, and a job that goes
  // back waits for this.
  RUBATO_RETURN_IF_ERROR(ForEachLine(folder.MetricsFile(), [&](absl::string_view text) {
    if (IsEvaluation(text)) {
      while (!recorder.CountEvaluation()) {
      }
    }
    if (!copies || !recorder.tensorboard_.has_value()) return;
    const auto line = ParseJson(text);
    // As far apart as they came, as if the last had come now.
    const absl::Time time = now - absl::Seconds(std::max(0.0, last - TimeOf(line)));
    recorder.WarnOnce(recorder.tensorboard_->AppendJson(line, time),
                      &recorder.warned_of_tensorboard_);
  }));
  if (copies && recorder.tensorboard_.has_value()) {
    recorder.WarnOnce(recorder.tensorboard_->Publish(), &recorder.warned_of_tensorboard_);
  }
  return recorder;
}

bool MetricsRecorder::CountEvaluation() {
  ++evaluations_;
  return evaluations_ % LineStride(evaluations_, kMetricsLines) == 0;
}

bool MetricsRecorder::Record(const MetricsLine& line, absl::Time now) {
  if (line.kind == MetricsLine::Kind::kEval && !CountEvaluation()) return true;
  const bool is_written = WarnOnce(file_.Append(line), &warned_);
  if (tensorboard_.has_value()) {
    WarnOnce(tensorboard_->Append(line, now), &warned_of_tensorboard_);
  }
  return is_written;
}

void MetricsRecorder::GoBack(int64_t updates) { WarnOnce(file_.GoBack(updates), &warned_); }

bool MetricsRecorder::WarnOnce(const absl::Status& status, bool* warned) {
  if (status.ok() || *warned) return status.ok();
  *warned = true;
  log_->Warning(
      absl::StrCat(status.message(), ": lines of metrics are lost, training goes on; said once"));
  return false;
}

}  // namespace rubato
