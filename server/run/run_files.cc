#include "server/run/run_files.h"

#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <iterator>
#include <map>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/json.h"
#include "common/base/monotonic.h"
#include "common/base/status.h"
#include "common/files/init_from.h"
#include "common/job/job.h"
#include "common/space/modes.h"
#include "server/optimizers/optimizer.h"
#include "server/run/metrics_file.h"

namespace rubato {
namespace {

// How long no block of any shard may come.
constexpr absl::Duration kCollectSilence = absl::Minutes(2);
// How long the result is kept where no disk takes it.
constexpr absl::Duration kWriteTimeout = absl::Minutes(10);
constexpr absl::Duration kBetweenWrites = absl::Seconds(1);

// Returns the digest of the parameters.
absl::StatusOr<std::string> WriteResultTo(const RunFolder& folder, const proto::Layout& layout,
                                          const std::vector<float>& parameters,
                                          const Summary& summary) {
  RUBATO_ASSIGN_OR_RETURN(std::string digest,
                          WriteParameters(folder.ParametersFile(), layout, parameters));
  RUBATO_RETURN_IF_ERROR(WriteFileAtomically(folder.SummaryFile(), ToJson(summary, digest)));
  return digest;
}

// What metrics.jsonl tells of tests beside the training, by the samples trained before them.
std::map<int64_t, double> TestsOf(const RunFolder& folder, const char* metric) {
  std::map<int64_t, double> tests;
  const absl::StatusOr<std::string> text = ReadSmallFile(folder.MetricsFile());
  if (!text.ok()) return tests;
  for (const absl::string_view line : absl::StrSplit(*text, '\n', absl::SkipEmpty())) {
    const auto json =
        nlohmann::json::parse(line.begin(), line.end(), nullptr, /*allow_exceptions=*/false);
    if (!json.is_object() || TextAt(json, "kind") != "eval") continue;
    const auto value = json.find(metric);
    if (value == json.end() || !value->is_number()) continue;
    tests[static_cast<int64_t>(NumberAt(json, "samples"))] = value->get<double>();
  }
  return tests;
}

}  // namespace

RunFiles::RunFiles(const proto::Job& job, std::string job_digest,
                   const ConnectionOptions& connection, RunFolder folder, const Log* log)
    : job_(job),
      job_digest_(std::move(job_digest)),
      connection_(connection),
      folder_(std::move(folder)),
      log_(*log) {}

absl::Status RunFiles::WriteResult(const proto::View& view, int64_t version,
                                   const Summary& summary) {
  if (view.number() == 0) return WriteSummary(summary);  // stopped before it began
  Selection selection;
  selection.version = version;
  const absl::StatusOr<TrainingState> collected =
      CollectState(job_, view, selection, job_digest_, connection_, kCollectSilence, &collect_end_);
  if (!collected.ok()) return absl::AbortedError(collected.status().message());
  const TrainingState& state = *collected;
  const absl::Time deadline = MonotonicNow() + kWriteTimeout;
  const auto gives_up = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return gives_up_; };
  for (bool is_first = true;; is_first = false) {
    bool is_written = false;
    const absl::Status status =
        WriteResultOnce(view.layout(), state.parameters, summary, &is_written);
    if (is_written || MonotonicNow() >= deadline) return status;
    if (is_first) {
      log_.Warning(absl::StrCat(status.message(), "; the parameters are kept in memory, and tried ",
                                "to be written again for ", absl::FormatDuration(kWriteTimeout)));
    }
    MonotonicLock lock(&mutex_);
    if (mutex_.AwaitFor(absl::Condition(&gives_up), kBetweenWrites)) return status;
  }
}

absl::Status RunFiles::WriteSummary(const Summary& summary) const {
  return WriteFileAtomically(folder_.SummaryFile(), ToJson(summary, ""));
}

absl::Status RunFiles::WriteResultOnce(const proto::Layout& layout,
                                       const std::vector<float>& parameters, const Summary& summary,
                                       bool* is_written) const {
  const absl::StatusOr<std::string> digest = WriteResultTo(folder_, layout, parameters, summary);
  *is_written = digest.ok();
  if (digest.ok()) {
    LogFields fields = {{"test_loss", summary.test_loss},
                        {"samples_per_second", summary.samples_per_second},
                        {"digest", *digest},
                        {"run", folder_.path()}};
    if (summary.test_accuracy.has_value()) {
      fields.insert(fields.begin(), {"test_accuracy", *summary.test_accuracy});
    }
    log_.Info("done", fields);
    return absl::OkStatus();
  }
  std::error_code error;
  std::string other =
      absl::StrCat(std::filesystem::temp_directory_path(error).string(), "/rubato-XXXXXX");
  if (error || mkdtemp(other.data()) == nullptr) return digest.status();
  const RunFolder elsewhere(other);
  const absl::Status saved = [&] {
    RUBATO_RETURN_IF_ERROR(WriteFileAtomically(elsewhere.JobFile(), ResolvedYaml(job_)));
    return WriteResultTo(elsewhere, layout, parameters, summary).status();
  }();
  *is_written = saved.ok();
  if (!saved.ok()) {
    std::filesystem::remove_all(other, error);
    return absl::Status(digest.status().code(),
                        absl::StrCat(digest.status().message(), "; ", saved.message()));
  }
  return absl::UnavailableError(absl::StrCat(
      digest.status().message(), "; parameters and summary are in ", other, " instead"));
}

void RunFiles::GiveUp() {
  MonotonicLock lock(&mutex_);
  gives_up_ = true;
}

int64_t RunFiles::EvaluationBefore(const proto::View& view, int64_t step) const {
  const int64_t n = view.samples_per_epoch();
  return Recurrence(job_.evaluation().every(), job_, n)
      .Last(ScheduleOf(job_, view.mode(), n, view.origin_unit(), view.origin_samples()),
            view.mode(), step);
}

void RunFiles::KeepWritten() {
  const bool is_loss = job_.checkpoint().keep_best().metric() == proto::METRIC_EVAL_LOSS;
  const std::map<int64_t, double> tests = TestsOf(folder_, is_loss ? "loss" : "accuracy");
  MonotonicLock lock(&mutex_);
  for (const std::string& path : ListCheckpoints(folder_.CheckpointFolder())) {
    const absl::StatusOr<proto::Manifest> manifest = ReadManifest(path);
    if (!manifest.ok()) continue;  // nobody's to remove
    kept_.Add({path, manifest->step(), /*due=*/0});
    const auto after = tests.upper_bound(manifest->samples());
    if (after != tests.begin()) kept_.OnEvaluation(manifest->step(), std::prev(after)->second);
  }
}

absl::StatusOr<std::string> RunFiles::WriteSnapshot(const proto::View& view, uint32_t snapshot,
                                                    proto::Manifest manifest) {
  if (access(folder_.path().c_str(), F_OK) != 0) {  // it is not made again for this alone
    return absl::NotFoundError(absl::StrCat("the run's folder ", folder_.path(), " is gone"));
  }
  RUBATO_ASSIGN_OR_RETURN(const Optimizer optimizer, Optimizer::Create(ServerOptimizer(job_)));
  for (const std::string& slot : optimizer.slots()) manifest.add_slots(slot);
  Selection selection;
  selection.snapshot = snapshot;
  selection.slots = manifest.slots_size();
  RUBATO_ASSIGN_OR_RETURN(const TrainingState state,
                          CollectState(job_, view, selection, job_digest_, connection_,
                                       kCollectSilence, &collect_end_));
  RUBATO_ASSIGN_OR_RETURN(const std::string path,
                          WriteCheckpoint(folder_.CheckpointFolder(), manifest, ResolvedYaml(job_),
                                          view.layout(), state));
  std::vector<std::string> expired;
  {
    MonotonicLock lock(&mutex_);
    kept_.Add({path, manifest.step(), EvaluationBefore(view, manifest.step())});
    expired = kept_.Expire(job_.checkpoint());
  }
  for (const std::string& old : expired) {
    const absl::Status status = RemoveCheckpoint(old);
    if (!status.ok()) log_.Warning(status.message());
  }
  return path;
}

absl::Status RunFiles::Restore(const proto::View& view, const std::string& checkpoint,
                               const proto::Manifest& manifest,
                               std::function<void(absl::Status)> on_failure) {
  RUBATO_ASSIGN_OR_RETURN(TrainingState state,
                          ReadTrainingState(checkpoint, manifest, view.layout()));
  RUBATO_ASSIGN_OR_RETURN(
      restoring_, SendState(job_, view, std::make_shared<const TrainingState>(std::move(state)),
                            job_digest_, connection_, std::move(on_failure)));
  return absl::OkStatus();
}

absl::Status RunFiles::SendInitial(const proto::View& view, const std::string& file,
                                   std::function<void(absl::Status)> on_failure) {
  RUBATO_ASSIGN_OR_RETURN(const SafetensorsReader reader,
                          OpenInitialParameters(file, view.layout()));
  TrainingState state;
  state.parameters.resize(ValueCount(view.layout()));
  RUBATO_RETURN_IF_ERROR(
      ReadInitialValues(reader, view.layout(), 0, absl::MakeSpan(state.parameters)));
  RUBATO_ASSIGN_OR_RETURN(
      restoring_, SendState(job_, view, std::make_shared<const TrainingState>(std::move(state)),
                            job_digest_, connection_, std::move(on_failure)));
  return absl::OkStatus();
}

void RunFiles::OnMetrics(const MetricsLine& line) {
  if (line.kind != MetricsLine::Kind::kEval) return;
  const bool is_loss = job_.checkpoint().keep_best().metric() == proto::METRIC_EVAL_LOSS;
  if (!is_loss && !line.accuracy.has_value()) return;
  MonotonicLock lock(&mutex_);
  kept_.OnEvaluation(line.unit, is_loss ? line.loss : *line.accuracy);
}

}  // namespace rubato
