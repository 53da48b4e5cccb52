// What shard 0's process does for the coordinator with files: results, checkpoints, and the state
// to go on from.
#ifndef RUBATO_SERVER_RUN_RUN_FILES_H_
#define RUBATO_SERVER_RUN_RUN_FILES_H_

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/log.h"
#include "common/base/monotonic.h"
#include "common/files/checkpoint.h"
#include "common/files/run_folder.h"
#include "common/files/safetensors.h"
#include "common/wire/connection_options.h"
#include "common/wire/shard_streams.h"
#include "proto/checkpoint.pb.h"
#include "proto/data_description.pb.h"
#include "proto/job.pb.h"
#include "proto/view.pb.h"
#include "server/run/collect.h"
#include "server/run/kept_checkpoints.h"
#include "server/run/metrics.h"
#include "server/run/metrics_file.h"

namespace rubato {

class RunFiles {
 public:
  // `log` must outlive it. `uses_other_disk`: see WriteResult.
  RunFiles(const proto::Job& job, std::string job_digest, const ConnectionOptions& connection,
           RunFolder folder, const Log* log, bool uses_other_disk = true);

  // Collects the parameters of all shards, at `version` or later, and writes them and the summary.
  // Aborted if they do not come.
  // If they cannot be written to the run's folder, they go to a new folder under the system's
  // temporary folder, which the error names: not if the process has no disk that outlives it, as in
  // a pod. If that fails too, both are tried again every second, for ten minutes or until GiveUp;
  // the shards keep the parameters meanwhile.
  absl::Status WriteResult(const proto::View& view, int64_t version, const Summary& summary);
  // Whether it has failed for want of a place, and the result is nowhere.
  bool lacks_result() const { return lacks_result_; }
  // From any thread.
  void GiveUp() ABSL_LOCKS_EXCLUDED(mutex_);

  // Of a job that has diverged: there are no parameters.
  absl::Status WriteSummary(const Summary& summary) const ABSL_LOCKS_EXCLUDED(mutex_);

  // For a run that continues: treats the checkpoints in the folder as written by this object, with
  // their evaluations from metrics.jsonl.
  void KeepWritten() ABSL_LOCKS_EXCLUDED(mutex_);
  // The job goes back to this step of it, and not on with what the shards have.
  void GoBack(int64_t step) ABSL_LOCKS_EXCLUDED(mutex_);
  // Where shards that see it write their parts of snapshots: see proto::Snapshot.
  const std::string& parts_folder() const { return parts_folder_; }
  // Before the first snapshot. A warning if it cannot be made: then shards write no parts.
  void MakePartsFolder() const;
  // That of this term and of earlier ones, with what lies there.
  void RemovePartsFolder() const;
  // Makes a checkpoint, whose path it returns, of the parts of a snapshot that shards have written
  // and of those of `unseen`, which are read; or removes them and returns `failure`, if there is
  // one. Removes checkpoints that are not kept. NotFound only if the run's folder was removed.
  // A checkpoint that comes less than a second after another was flushed to the disk is not
  // flushed, because flushing takes longer than all the rest. It survives a crash of all processes;
  // after a loss of power the job resumes from the last flushed one, which is kept.
  absl::StatusOr<std::string> WriteSnapshot(const proto::View& view, uint32_t snapshot,
                                            proto::Manifest manifest,
                                            const std::vector<int>& unseen,
                                            const absl::Status& failure)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Flushes the last checkpoint to the disk, unless it is there. By the thread that writes them,
  // when it has had nothing to do for a second, and when the term is over.
  void FlushLast() ABSL_LOCKS_EXCLUDED(mutex_);
  // Which checkpoints are kept may depend on it. Warns once of a script's test that does not tell
  // what train.stop_when or checkpoint.keep_best goes by. From any thread; other lines are ignored.
  void OnMetrics(const MetricsLine& line) ABSL_LOCKS_EXCLUDED(mutex_);

  // Sends the parameters and so many slots of a checkpoint to these shards; `on_failure` hears if a
  // stream breaks.
  absl::Status Restore(const proto::View& view, const std::vector<int>& shards,
                       const std::string& checkpoint, const proto::Manifest& manifest, int slots,
                       const std::function<void(absl::Status)>& on_failure);
  // Writes it to the run folder's DataFile, and again beside the result: on a full disk it may come
  // no sooner. From any thread.
  absl::Status SaveData(const proto::DataDescription& data) ABSL_LOCKS_EXCLUDED(mutex_);
  // Takes the next values of the flat vector. `begin` is the end of the previous ones, or 0 to
  // start, with `layout`. After the last ones all values are in the run folder's InitialFile.
  absl::Status SaveInitial(const proto::Layout& layout, int64_t begin, absl::string_view values,
                           bool is_last);
  // The same with the parameters in this file, as those of model.init_from.
  absl::Status SendInitial(const proto::View& view, const std::vector<int>& shards,
                           const std::string& file,
                           const std::function<void(absl::Status)>& on_failure);
  // Cancels the collection from shards. From any thread.
  void StopCollecting() { collect_end_.Set(); }

  // Before the shards go away: the streams to them are of no use any more.
  void StopRestoring() { restoring_.clear(); }

 private:
  // The final parameters, and how they are read.
  struct Result {
    const proto::View& view;
    int64_t version;
    const Summary& summary;
  };
  // Reads them and writes them to `folder`; returns their digest. Aborted if they do not come.
  absl::StatusOr<std::string> WriteResultTo(const RunFolder& folder, const Result& result)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // The same to the run's folder, or elsewhere: then the error says where.
  absl::Status WriteResultOnce(const Result& result, bool* is_written);
  // Sends these shards their blocks, one after the other.
  absl::Status Send(const proto::View& view, const std::vector<int>& shards, int vectors,
                    const std::function<void(absl::Status)>& on_failure, FloatSource source);
  // Reads the part of a shard that does not see `folder` and writes it there.
  absl::Status WritePart(const proto::View& view, int shard, uint32_t snapshot,
                         const std::string& folder, proto::Manifest* manifest);
  // Parts of snapshots up to the last, which were not taken.
  void RemoveLeftParts() const;
  // What was not flushed is.
  void OnFlushed() ABSL_LOCKS_EXCLUDED(mutex_);
  void RemoveExpired() ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status Remove(const std::string& checkpoint);
  // If the line does not tell the metric that this key of the job names; of each key once.
  void WarnOfNone(const MetricsLine& line, absl::string_view key, const std::string& metric)
      ABSL_LOCKS_EXCLUDED(mutex_);
  std::optional<BestCheckpoint> Best() const ABSL_LOCKS_EXCLUDED(mutex_);
  const proto::Job job_;
  const std::string job_digest_;
  const ConnectionOptions connection_;
  const std::string job_yaml_;  // resolved: to make it takes as long as to write a small file
  const RunFolder folder_;
  const std::string parts_folder_;
  const Log& log_;
  const bool uses_other_disk_;
  std::atomic<bool> lacks_result_{false};
  mutable MonotonicMutex mutex_;
  KeptCheckpoints kept_ ABSL_GUARDED_BY(mutex_);
  std::set<std::string> told_ ABSL_GUARDED_BY(mutex_);  // keys
  bool gives_up_ ABSL_GUARDED_BY(mutex_) = false;
  std::string data_json_ ABSL_GUARDED_BY(mutex_);  // empty: there is nothing to say
  absl::Time last_flush_ = absl::InfinitePast();   // of this term's checkpoints
  std::string unflushed_;                          // the last checkpoint, if it is not on the disk
  // Those of this term whose parts servers have written, by when.
  std::map<std::string, absl::Time> recyclable_;
  uint32_t snapshot_ = 0;      // the last one
  uint32_t recycled_for_ = 0;  // the last one whose parts are written over an older checkpoint
  CollectEnd collect_end_;
  std::vector<std::unique_ptr<ShardStreams>> restoring_;
  std::optional<SafetensorsWriter> initial_;
};

}  // namespace rubato

#endif  // RUBATO_SERVER_RUN_RUN_FILES_H_
