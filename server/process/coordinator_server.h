// The process that coordinates a job: the coordinator, the run's folder, and shard 0 beside it
// unless the job has cluster.dedicated_coordinator.
#ifndef RUBATO_SERVER_PROCESS_COORDINATOR_SERVER_H_
#define RUBATO_SERVER_PROCESS_COORDINATOR_SERVER_H_

#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/log.h"
#include "common/base/process_exit.h"
#include "common/files/record_file.h"
#include "common/files/run_folder.h"
#include "common/wire/listener.h"
#include "proto/job.pb.h"
#include "server/coordinator/coordinator.h"
#include "server/process/cluster_service.h"
#include "server/process/engine_watch.h"
#include "server/process/server_options.h"
#include "server/process/shard_host.h"
#include "server/process/term_begin.h"
#include "server/run/metrics_recorder.h"
#include "server/run/recording.h"
#include "server/run/run_files.h"
#include "server/run/run_state.h"

namespace rubato {

class CoordinatorServer {
 public:
  // Finds what the term begins with. Errors of the checkpoint and of the recordings. `log` must
  // outlive it. `remains`: of the term before, if this process had one.
  static absl::StatusOr<std::unique_ptr<CoordinatorServer>> Create(const proto::Job& job,
                                                                   const ServerOptions& options,
                                                                   const std::string& job_digest,
                                                                   const Log* log,
                                                                   ShardHost::Remains remains);
  ~CoordinatorServer();

  // Serves until the job or its term is over. Returns the final status.
  absl::Status Run(SignalWatcher* signals);
  // After that: whether another term follows, in the run's folder and at the same address.
  bool goes_back() const { return goes_back_; }
  const std::string& run_dir() const { return folder_.path(); }
  const std::string& address() const {
    return host_.has_value() ? host_->address() : listener_->address();
  }
  // Breaks all calls.
  ShardHost::Remains TakeRemains();

 private:
  CoordinatorServer(const proto::Job& job, const ServerOptions& options,
                    const std::string& job_digest, const Log* log, TermBegin term, absl::Time now,
                    std::unique_ptr<RecordingWriter> shard_recording,
                    std::unique_ptr<RecordingWriter> recording, ShardHost::Remains remains);

  absl::Status Listen();
  void Stop();
  void OnSignal(int signal);
  // Says so and ends the process.
  void OnStuck();
  // Where others reach this server.
  const std::string& advertised() const {
    return options_.advertise.empty() ? address() : options_.advertise;
  }
  bool is_first_term() const { return begin_.state.term() == 1; }
  // The run's folder, and what is written there.
  absl::Status OpenFiles();
  // Writes the keys that users who may read the folder need to control the job or to join it.
  absl::Status WriteKeys();
  // From any thread. A warning if it cannot be written.
  void KeepState(absl::FunctionRef<void(proto::RunState*)> change,
                 decltype(WriteRunState) write = WriteRunState) ABSL_LOCKS_EXCLUDED(state_mutex_);
  // Once in a term, when its first view has held: a loss of power does not undo that.
  void FlushBegun() ABSL_LOCKS_EXCLUDED(state_mutex_);
  void OnView(const proto::View& view, const std::string& reason);
  ClusterService::Outlets Outlets();
  ClusterService::Tasks Tasks();

  const proto::Job job_;
  const ServerOptions options_;
  const std::string job_digest_;
  const Log& log_;
  const Coordinator::Begin begin_;
  std::string initial_file_;  // with the values that the job begins with; empty: none
  absl::Mutex state_mutex_;
  proto::RunState state_ ABSL_GUARDED_BY(state_mutex_);
  bool has_flushed_begun_ ABSL_GUARDED_BY(state_mutex_) = false;
  bool has_trained_ = false;     // a line of metrics says so
  bool last_is_written_ = true;  // the last such line
  std::optional<FolderLock> lock_;
  bool goes_back_ = false;
  proto::Registration registration_;  // of the shard, if it has one
  // In the order of creation: the shard and the coordinator exchange messages as soon as the shard
  // listens; the files are opened next, and callers are accepted after that.
  std::optional<ShardHost> host_;
  ClusterService service_;
  std::optional<Listener> listener_;  // without a shard, as the watch
  std::optional<EngineWatch> watch_;
  RunFolder folder_;
  std::optional<MetricsRecorder> metrics_;
  std::optional<RecordFile> journal_;
  std::optional<RunFiles> files_;
  bool has_view_ = false;
};

// Runs instead of a coordinator if the run has ended well (term_begin.h): tells processes that do
// not know it, for kTellPatience at most.
absl::Status TellOfEnd(const proto::Job& job, const ServerOptions& options,
                       const std::string& job_digest, const Log& log, SignalWatcher* signals);

}  // namespace rubato

#endif  // RUBATO_SERVER_PROCESS_COORDINATOR_SERVER_H_
