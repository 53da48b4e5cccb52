#include "server/run/run_files.h"

#include <stdlib.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <map>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/boot_id.h"
#include "common/base/bytes.h"
#include "common/base/entropy.h"
#include "common/base/monotonic.h"
#include "common/base/status.h"
#include "common/files/checkpoint_part.h"
#include "common/files/init_from.h"
#include "common/files/message_json.h"
#include "common/files/safetensors.h"
#include "common/job/is_script.h"
#include "common/job/job.h"
#include "server/optimizers/optimizer.h"
#include "server/run/figures.h"
#include "server/run/metrics_file.h"

namespace rubato {
namespace {

// How long no block of any shard may come.
constexpr absl::Duration kCollectSilence = absl::Minutes(2);
// How long the result is kept where no disk takes it.
constexpr absl::Duration kWriteTimeout = absl::Minutes(10);
constexpr absl::Duration kBetweenWrites = absl::Seconds(1);

// Checkpoints that come sooner after one another are not all flushed: see RunFiles::WriteSnapshot.
constexpr absl::Duration kBetweenFlushes = absl::Seconds(1);

// What has been there for longer may be in use, as somebody's current folder, and is not written
// over.
constexpr absl::Duration kUntilUsed = absl::Seconds(10);

constexpr char kPartsPrefix[] = ".parts-";

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// A name that nobody else gives: who sees such a folder shares the file system. It ends with this
// machine's: who is on another one flushes what it writes there (server/process/part_files.h).
std::string PartsFolder(const RunFolder& folder) {
  std::error_code error;
  return absl::StrFormat("%s/%s%016x%016x-%s",
                         std::filesystem::absolute(folder.CheckpointFolder(), error).string(),
                         kPartsPrefix, DrawEntropy(), DrawEntropy(), BootId());
}

}  // namespace

RunFiles::RunFiles(const proto::Job& job, std::string job_digest,
                   const ConnectionOptions& connection, RunFolder folder, const Log* log,
                   bool uses_other_disk)
    : job_(job),
      job_digest_(std::move(job_digest)),
      connection_(connection),
      job_yaml_(ResolvedYaml(job)),
      folder_(std::move(folder)),
      parts_folder_(PartsFolder(folder_)),
      log_(*log),
      uses_other_disk_(uses_other_disk) {}

absl::Status RunFiles::WriteResult(const proto::View& view, int64_t version,
                                   const Summary& summary) {
  if (view.number() == 0) return WriteSummary(summary);  // stopped before it began
  const Result result{view, version, summary};
  const absl::Time deadline = MonotonicNow() + kWriteTimeout;
  const auto gives_up = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return gives_up_; };
  for (bool is_first = true;; is_first = false) {
    bool is_written = false;
    const absl::Status status = WriteResultOnce(result, &is_written);
    lacks_result_ = !is_written && !absl::IsAborted(status);
    if (!lacks_result_ || MonotonicNow() >= deadline) return status;
    if (is_first) {
      log_.Warning(absl::StrCat(status.message(), "; the servers keep the parameters, which are ",
                                "tried to be written again for ",
                                absl::FormatDuration(kWriteTimeout)));
    }
    MonotonicLock lock(&mutex_);
    if (mutex_.AwaitFor(absl::Condition(&gives_up), kBetweenWrites)) return status;
  }
}

absl::StatusOr<std::string> RunFiles::WriteResultTo(const RunFolder& folder, const Result& result) {
  Selection selection;
  selection.version = result.version;
  RUBATO_ASSIGN_OR_RETURN(
      SafetensorsWriter file,
      SafetensorsWriter::Create(folder.ParametersFile(), VectorTensors(result.view.layout(), ""),
                                {{"format", "pt"}}));
  for (int shard = 0; shard < result.view.shards_size(); ++shard) {
    absl::Status disk;
    const absl::Status status =
        ReadBlocks(job_, result.view, shard, selection, job_digest_, connection_, kCollectSilence,
                   &collect_end_, [&](int64_t, size_t, absl::Span<const float> values) {
                     return disk = file.Append(AsBytes(values));
                   });
    RUBATO_RETURN_IF_ERROR(disk);
    if (!status.ok()) return absl::AbortedError(status.message());
  }
  RUBATO_RETURN_IF_ERROR(file.Finish());
  RUBATO_ASSIGN_OR_RETURN(std::string digest, FileDigest(folder.ParametersFile()));
  std::string data;
  {
    MonotonicLock lock(&mutex_);
    data = data_json_;
  }
  if (!data.empty()) RUBATO_RETURN_IF_ERROR(WriteFileAtomically(folder.DataFile(), data));
  RUBATO_RETURN_IF_ERROR(
      WriteFileAtomically(folder.SummaryFile(), ToJson(result.summary, digest, Best())));
  return digest;
}

absl::Status RunFiles::WriteSummary(const Summary& summary) const {
  return WriteFileAtomically(folder_.SummaryFile(), ToJson(summary, "", Best()));
}

std::optional<BestCheckpoint> RunFiles::Best() const {
  const proto::KeepBest& settings = job_.checkpoint().keep_best();
  if (!job_.checkpoint().has_keep_best()) return std::nullopt;
  std::optional<KeptCheckpoints::Best> best;
  {
    MonotonicLock lock(&mutex_);
    best = kept_.best(settings);
  }
  if (!best.has_value()) return std::nullopt;
  const std::filesystem::path path(best->path), in = path.parent_path().filename();
  return BestCheckpoint{(in / path.filename()).string(), settings.metric(), best->metric};
}

absl::Status RunFiles::WriteResultOnce(const Result& result, bool* is_written) {
  const Summary& summary = result.summary;
  const absl::StatusOr<std::string> digest = WriteResultTo(folder_, result);
  *is_written = digest.ok();
  if (absl::IsAborted(digest.status())) return digest.status();
  if (digest.ok()) {
    LogFields fields = {{"samples_per_second", summary.samples_per_second},
                        {"digest", *digest},
                        {"run", folder_.path()}};
    if (summary.test_loss.has_value()) {
      fields.insert(fields.begin(), {"test_loss", *summary.test_loss});
    }
    if (summary.test_accuracy.has_value()) {
      fields.insert(fields.begin(), {"test_accuracy", *summary.test_accuracy});
    }
    log_.Info("done", fields);
    return absl::OkStatus();
  }
  if (!uses_other_disk_) return digest.status();
  std::error_code error;
  std::string other =
      absl::StrCat(std::filesystem::temp_directory_path(error).string(), "/rubato-XXXXXX");
  if (error || mkdtemp(other.data()) == nullptr) return digest.status();
  const RunFolder elsewhere(other);
  const absl::Status saved = [&] {
    RUBATO_RETURN_IF_ERROR(WriteFileAtomically(elsewhere.JobFile(), job_yaml_));
    return WriteResultTo(elsewhere, result).status();
  }();
  *is_written = saved.ok();
  if (!saved.ok()) {
    std::filesystem::remove_all(other, error);
    if (absl::IsAborted(saved)) return saved;
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

void RunFiles::KeepWritten() {
  MonotonicLock lock(&mutex_);
  for (const std::string& path : ListCheckpoints(folder_.CheckpointFolder())) {
    const absl::StatusOr<proto::Manifest> manifest = ReadManifest(path);
    if (!manifest.ok()) continue;  // nobody's to remove
    kept_.Add(KeptCheckpoints::EntryOf(job_, path, *manifest));
  }
  const std::string& metric = job_.checkpoint().keep_best().metric();
  if (metric.empty()) return;
  const auto evaluations = WrittenEvaluations(folder_.MetricsFile(), metric);
  if (!evaluations.ok()) return;
  for (const auto& [due, value] : *evaluations) kept_.OnEvaluation(due, value);
}

void RunFiles::GoBack(int64_t step) {
  MonotonicLock lock(&mutex_);
  kept_.GoBack(step);
}

void RunFiles::MakePartsFolder() const {
  const absl::Status status = BeginCheckpoint(folder_.CheckpointFolder(), parts_folder_);
  if (!status.ok()) log_.Warning(status.message());
}

void RunFiles::RemovePartsFolder() const {
  std::error_code error;
  std::filesystem::directory_iterator files(folder_.CheckpointFolder(), error);
  std::vector<std::string> found;
  for (; !error && files != std::filesystem::directory_iterator(); files.increment(error)) {
    if (absl::StartsWith(files->path().filename().string(), kPartsPrefix)) {
      found.push_back(files->path().string());
    }
  }
  for (const std::string& path : found) std::filesystem::remove_all(path, error);
}

absl::Status RunFiles::WritePart(const proto::View& view, int shard, uint32_t snapshot,
                                 const std::string& folder, proto::Manifest* manifest) {
  RUBATO_ASSIGN_OR_RETURN(CheckpointPart part, CreatePart(folder, *manifest, shard));
  Selection selection;
  selection.snapshot = snapshot;
  selection.slots = manifest->slots_size();
  RUBATO_RETURN_IF_ERROR(ReadBlocks(job_, view, shard, selection, job_digest_, connection_,
                                    kCollectSilence, &collect_end_,
                                    [&](int64_t, size_t vector, absl::Span<const float> values) {
                                      return part.Append(vector, values);
                                    }));
  AddChecksums(PlaceOf(*manifest, shard).blocks, part.checksums(), manifest);
  return part.Finish();
}

absl::StatusOr<std::string> RunFiles::WriteSnapshot(const proto::View& view, uint32_t snapshot,
                                                    proto::Manifest manifest,
                                                    const std::vector<int>& unseen,
                                                    const absl::Status& failure) {
  const absl::Status gone =
      absl::NotFoundError(absl::StrCat("the run's folder ", folder_.path(), " is gone"));
  if (folder_.IsRemoved()) return gone;  // it is not made again for this alone
  const std::string temporary = absl::StrCat(parts_folder_, "/", snapshot);
  const bool flushes = MonotonicNow() - last_flush_ >= kBetweenFlushes;
  const absl::StatusOr<std::string> path = [&]() -> absl::StatusOr<std::string> {
    RUBATO_RETURN_IF_ERROR(failure);
    // Else shards have made it. Somebody may have removed what it lies in.
    if (!unseen.empty() && !BeginParts(parts_folder_, snapshot).ok()) {
      RUBATO_RETURN_IF_ERROR(BeginCheckpoint(folder_.CheckpointFolder(), temporary));
    }
    RUBATO_ASSIGN_OR_RETURN(
        const Optimizer optimizer,
        Optimizer::Create(ServerOptimizer(WithOptimizerOf(view.layout(), job_))));
    for (const std::string& slot : optimizer.slots()) manifest.add_slots(slot);
    for (const int shard : unseen) {
      RUBATO_RETURN_IF_ERROR(WritePart(view, shard, snapshot, temporary, &manifest));
    }
    return PublishCheckpoint(folder_.CheckpointFolder(), temporary, manifest, job_yaml_, flushes);
  }();
  snapshot_ = snapshot;
  RemoveLeftParts();
  if (!path.ok() && folder_.IsRemoved()) return gone;
  // It is another file that is missing: older checkpoints are there.
  if (absl::IsNotFound(path.status())) return absl::UnavailableError(path.status().message());
  RUBATO_RETURN_IF_ERROR(path.status());
  {
    MonotonicLock lock(&mutex_);
    kept_.Add(KeptCheckpoints::EntryOf(job_, *path, manifest));
  }
  unflushed_ = *path;
  if (unseen.empty()) recyclable_[*path] = MonotonicNow();
  if (flushes) OnFlushed();
  RemoveExpired();
  return *path;
}

void RunFiles::RemoveLeftParts() const {
  std::error_code error;
  std::vector<std::string> left;
  for (const auto& file : std::filesystem::directory_iterator(parts_folder_, error)) {
    uint32_t snapshot = 0;
    if (!absl::SimpleAtoi(file.path().filename().string(), &snapshot) || snapshot <= snapshot_) {
      left.push_back(file.path().string());
    }
  }
  for (const std::string& old : left) std::filesystem::remove_all(old, error);
}

void RunFiles::OnFlushed() {
  last_flush_ = MonotonicNow();
  MonotonicLock lock(&mutex_);
  kept_.OnFlushed(std::exchange(unflushed_, ""));
}

void RunFiles::RemoveExpired() {
  std::vector<std::string> expired;
  {
    MonotonicLock lock(&mutex_);
    expired = kept_.Expire(job_.checkpoint());
  }
  for (const std::string& old : expired) {
    if (const absl::Status status = Remove(old); !status.ok()) log_.Warning(status.message());
  }
}

absl::Status RunFiles::Remove(const std::string& checkpoint) {
  const auto recyclable = recyclable_.find(checkpoint);
  if (recyclable == recyclable_.end()) return RemoveCheckpoint(checkpoint);
  const bool is_new = MonotonicNow() - recyclable->second < kUntilUsed;
  recyclable_.erase(recyclable);
  // When one has been flushed, two expire: the one that was before and the oldest. From then on one
  // more is kept, so that with the next none does.
  const uint32_t snapshot = std::max(recycled_for_, snapshot_) + 1;
  if (!is_new || snapshot > snapshot_ + 2) return RemoveCheckpoint(checkpoint);
  recycled_for_ = snapshot;
  return RecycleCheckpoint(checkpoint, parts_folder_, snapshot);
}

void RunFiles::FlushLast() {
  if (unflushed_.empty()) return;
  if (const absl::Status status = FlushCheckpoint(unflushed_); !status.ok()) {
    log_.Warning(absl::StrCat("a checkpoint may not outlive this machine: ", status.message()));
    unflushed_.clear();
    return;
  }
  OnFlushed();
  RemoveExpired();
}

absl::Status RunFiles::Restore(const proto::View& view, const std::vector<int>& shards,
                               const std::string& checkpoint, const proto::Manifest& manifest,
                               int slots, const std::function<void(absl::Status)>& on_failure) {
  RUBATO_ASSIGN_OR_RETURN(const CheckpointReader reader,
                          CheckpointReader::Open(checkpoint, manifest, view.layout()));
  return Send(view, shards, 1 + slots, on_failure,
              [&](size_t vector, int64_t begin, absl::Span<float> out) {
                return reader.Read(vector, begin, out);
              });
}

absl::Status RunFiles::SaveInitial(const proto::Layout& layout, int64_t begin,
                                   absl::string_view values, bool is_last) {
  if (begin == 0) {
    initial_.reset();
    RUBATO_ASSIGN_OR_RETURN(
        initial_,
        SafetensorsWriter::Create(folder_.InitialFile(), VectorTensors(layout, /*slot=*/""), {}));
  }
  RUBATO_RETURN_IF_ERROR(initial_->Append(values));
  return is_last ? initial_->Finish() : absl::OkStatus();
}

absl::Status RunFiles::SaveData(const proto::DataDescription& data) {
  std::string json = MessageJson(data);
  const absl::Status status = WriteFileAtomically(folder_.DataFile(), json, Flush::kNothing);
  MonotonicLock lock(&mutex_);
  data_json_ = std::move(json);
  return status;
}

absl::Status RunFiles::SendInitial(const proto::View& view, const std::vector<int>& shards,
                                   const std::string& file,
                                   const std::function<void(absl::Status)>& on_failure) {
  RUBATO_ASSIGN_OR_RETURN(const SafetensorsReader reader,
                          OpenInitialParameters(file, view.layout()));
  return Send(view, shards, /*vectors=*/1, on_failure,
              [&](size_t, int64_t begin, absl::Span<float> out) {
                return ReadInitialValues(reader, view.layout(), begin, out);
              });
}

absl::Status RunFiles::Send(const proto::View& view, const std::vector<int>& shards, int vectors,
                            const std::function<void(absl::Status)>& on_failure,
                            FloatSource source) {
  for (const int shard : shards) {
    RUBATO_ASSIGN_OR_RETURN(restoring_.emplace_back(),
                            SendBlocks(job_, view, shard, vectors, job_digest_, connection_,
                                       &collect_end_, on_failure, source));
  }
  return absl::OkStatus();
}

void RunFiles::OnMetrics(const MetricsLine& line) {
  if (line.kind != MetricsLine::Kind::kEval) return;
  const std::string& best = job_.checkpoint().keep_best().metric();
  if (IsScript(job_)) {  // others tell what they are to
    if (job_.train().has_stop_when()) {
      WarnOfNone(line, "train.stop_when", job_.train().stop_when().metric());
    }
    if (job_.checkpoint().has_keep_best()) WarnOfNone(line, "checkpoint.keep_best", best);
  }
  MonotonicLock lock(&mutex_);
  kept_.OnEvaluation(line.due, MetricOf(line, best).value_or(kNaN));
}

void RunFiles::WarnOfNone(const MetricsLine& line, absl::string_view key,
                          const std::string& metric) {
  if (MetricOf(line, metric).has_value()) return;
  {
    MonotonicLock lock(&mutex_);
    if (!told_.emplace(key).second) return;
  }
  const std::string has = MetricsIn(line);
  log_.Warning(absl::StrCat("the test at step ", line.step, " has no number for ", metric,
                            ", by which ", key, " goes; it has ", has.empty() ? "no number" : has));
}

}  // namespace rubato
