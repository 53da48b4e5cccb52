// The shell of the coordinator: carries messages between its core and the peers' calls, writes
// metrics.jsonl, and has the parameters collected and checkpoints written.
#ifndef RUBATO_SERVER_PROCESS_CLUSTER_SERVICE_H_
#define RUBATO_SERVER_PROCESS_CLUSTER_SERVICE_H_

#include <grpcpp/grpcpp.h>

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <variant>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/log.h"
#include "common/base/monotonic.h"
#include "common/wire/connection_options.h"
#include "common/wire/connections.h"
#include "common/wire/credentials.h"
#include "common/wire/hello.h"
#include "common/wire/refusals.h"
#include "common/wire/unary_calls.h"
#include "proto/cluster.grpc.pb.h"
#include "server/coordinator/commands.h"
#include "server/coordinator/coordinator.h"
#include "server/run/metrics.h"
#include "server/run/recording.h"

namespace rubato {

// Receives messages from gRPC as bytes, so that the caller is authenticated before any of them is
// parsed.
using RawCoordination =
    proto::Coordination::WithRawMethod_Join<proto::Coordination::WithRawMethod_Heartbeat<
        proto::Coordination::WithRawMethod_Command<proto::Coordination::Service>>>;

class ClusterService : public RawCoordination {
 public:
  // None of them may block for long.
  struct Outlets {
    std::function<void(const MetricsLine&)> metrics;
    std::function<void(const coordinator::Journal&)> journal;
    // Stores the state for the next term, before anybody is answered. May be null.
    std::function<void(const proto::Lasting&)> keep;
    // Keeps what models need to know of the data. May be null.
    std::function<void(const proto::DataDescription&)> data;
    // What the coordinator sends to shard 0, which lives in this process.
    std::function<void(const proto::CoordinatorMessage&)> to_own_shard;
  };

  // Without a `recording` nothing is recorded. The credentials of `connection` authenticate
  // callers. Accepted callers are reported to its connections, if it has any, refused ones to its
  // refusals. `log` must outlive the service.
  ClusterService(Coordinator core, std::unique_ptr<RecordingWriter> recording, Outlets outlets,
                 const Log* log, const ConnectionOptions& connection = ConnectionOptions());

  // Commands that change the job must show it; before, there are none.
  void SetToken(std::string token) ABSL_LOCKS_EXCLUDED(mutex_);

  // What else its server has: a data service, whose queue's thread reads the connections and
  // answers hellos, or nothing.
  enum class Beside { kDataService, kNothing };

  // Before the server is built.
  void Register(Beside beside, grpc::ServerBuilder* builder);
  // After it is built: takes calls, on a thread of its own.
  void Start();
  // Waits for the calls to end and the thread to stop. When the server has been shut down, and
  // before it is destroyed.
  void Stop() ABSL_LOCKS_EXCLUDED(mutex_);

  // What happens in this process: shard 0 says something (it is kOwnShard), a signal, a failure.
  // Any thread.
  void Post(const coordinator::Event& event) ABSL_LOCKS_EXCLUDED(mutex_);

  // Any thread: releases `asked` at the coordinator's next tick, or at once if it does not tick.
  void Ask(std::shared_ptr<void> asked) ABSL_LOCKS_EXCLUDED(ask_mutex_);

  // Slow tasks, which run one after the other on a separate thread, so that leases are still
  // checked meanwhile.
  struct Tasks {
    // Writes the final parameters.
    std::function<absl::Status(const proto::View& view, int64_t version, const Summary& summary)>
        collect;
    // Sends the floats that the job begins with to these shards.
    std::function<absl::Status(const proto::View& view, const coordinator::Restore& restore)>
        restore;
    // Keeps a piece of the values that the job begins with.
    std::function<absl::Status(const coordinator::SaveValues& save)> save_values;
    // Writes a snapshot; returns the checkpoint's path.
    std::function<absl::StatusOr<std::string>(const proto::View& view,
                                              const coordinator::WriteCheckpoint& write)>
        checkpoint;
    // Called when there has been no task for a second; may be null.
    std::function<void()> rest;
    // Called when the job is over and waits for the current task. On another thread; may be null.
    std::function<void()> stop;
  };

  // Waits until the job is over and its tasks are done. Returns the job's status.
  absl::Status Wait(const Tasks& tasks) ABSL_LOCKS_EXCLUDED(mutex_);
  // For a process that is to leave its job: requests a checkpoint and waits for it, or for the end
  // of a training that is about to end, at most for `patience`. Returns whether the job, or its
  // term, is over. Any thread.
  bool AwaitCheckpointOrEnd(absl::Duration patience) ABSL_LOCKS_EXCLUDED(mutex_);
  // When the job has ended well: the number of processes that have not been told and have not
  // called since.
  int untold() ABSL_LOCKS_EXCLUDED(mutex_);
  // Tells those that call, until all have heard it, for `patience` at most, or until `stops`.
  void TellOfEnd(absl::Duration patience, absl::FunctionRef<bool()> stops)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // After Wait. Which shard was lost, if only the term is over.
  std::optional<int> lost_shard() ABSL_LOCKS_EXCLUDED(mutex_);
  // How far the term has come, if it has begun.
  struct Place {
    int64_t samples = 0;
    double seconds = 0;  // of training
  };
  std::optional<Place> place() ABSL_LOCKS_EXCLUDED(mutex_);
  bool has_trained() ABSL_LOCKS_EXCLUDED(mutex_);
  Summary summary() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  class Call;

  // What takes time.
  using Task = std::variant<coordinator::Collect, coordinator::Restore, coordinator::SaveValues,
                            coordinator::WriteCheckpoint>;

  void Run();
  // Waits for the next peer's call.
  void AwaitJoin() ABSL_LOCKS_EXCLUDED(mutex_);
  // One that has come.
  void OnJoin(Call* call) ABSL_LOCKS_EXCLUDED(mutex_);
  void OnHeartbeat(UnaryCalls::Call* call) ABSL_LOCKS_EXCLUDED(mutex_);
  void OnCommand(UnaryCalls::Call* call) ABSL_LOCKS_EXCLUDED(mutex_);
  // The role of the caller that begins a call of `method`, or why it is refused. For a call that
  // will send messages, also the flag to set for each message.
  absl::StatusOr<Role> Admit(const grpc::ServerContext& context, absl::string_view method,
                             Connections::HasRead* has_read = nullptr);
  void Refuse(const grpc::ServerContext& context, const absl::Status& why);
  // Does what comes of the event. Returns what the person who asked is answered; OK if none did.
  absl::StatusOr<std::string> Handle(const coordinator::Event& event)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // One overload for each outcome.
  void Do(const coordinator::Send& send) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Do(const coordinator::Log& log) { log_->Info(log.text); }
  void Do(const coordinator::Warn& warn) { log_->Warning(warn.text); }
  void Do(const MetricsLine& line) { outlets_.metrics(line); }
  void Do(const coordinator::Journal& journal) { outlets_.journal(journal); }
  void Do(const coordinator::Collect& task) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Do(const coordinator::Restore& task) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Do(const coordinator::SaveValues& task) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Do(const coordinator::SaveData& save) {
    if (outlets_.data) outlets_.data(save.data);
  }
  void Do(const coordinator::WriteCheckpoint& task) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Do(const coordinator::Keep& keep) {
    if (outlets_.keep) outlets_.keep(keep.lasting);
  }
  void Do(const coordinator::End& end) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Do(const coordinator::Answer& answer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RunTasks(const Tasks& tasks) ABSL_LOCKS_EXCLUDED(mutex_);
  // Says whether it ticks, and lets go what was asked before.
  void OnTicked(bool goes_on) ABSL_LOCKS_EXCLUDED(ask_mutex_);
  // Ends the calls of peers that never send a message, and resumes reading from peers that have
  // sent too much at once.
  void TickCalls() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  int Untold() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RunTask(const Task& task, const Tasks& tasks) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Outlets outlets_;
  const Log* const log_;
  const absl::Duration tick_;
  const Credentials credentials_;
  const std::shared_ptr<Connections> connections_;
  const std::shared_ptr<Refusals> refusals_;

  std::unique_ptr<grpc::ServerCompletionQueue> queue_;
  std::unique_ptr<HelloService> hellos_;  // null if others answer them, or nobody asks for a key
  UnaryCalls heartbeats_, command_calls_;
  std::thread thread_;

  MonotonicMutex mutex_;
  Commands commands_ ABSL_GUARDED_BY(mutex_);
  Coordinator core_ ABSL_GUARDED_BY(mutex_);
  const std::unique_ptr<RecordingWriter> recording_ ABSL_GUARDED_BY(mutex_);
  int open_joins_ ABSL_GUARDED_BY(mutex_) = 0;             // with the one that is waited for
  std::map<PeerId, Call*> calls_ ABSL_GUARDED_BY(mutex_);  // each deletes itself when it is done
  PeerId last_peer_ ABSL_GUARDED_BY(mutex_) = kOwnShard;
  std::deque<Task> tasks_ ABSL_GUARDED_BY(mutex_);
  absl::StatusOr<std::string> answer_ ABSL_GUARDED_BY(mutex_);  // of the event at hand
  std::optional<absl::Status> end_ ABSL_GUARDED_BY(mutex_);
  std::optional<int> lost_shard_ ABSL_GUARDED_BY(mutex_);
  PeerId last_before_end_ ABSL_GUARDED_BY(mutex_) = kOwnShard;

  absl::Mutex ask_mutex_;  // of its own: mutex_ may be what does not come round
  bool ticks_ ABSL_GUARDED_BY(ask_mutex_) = false;
  std::shared_ptr<void> asked_ ABSL_GUARDED_BY(ask_mutex_);
};

}  // namespace rubato

#endif  // RUBATO_SERVER_PROCESS_CLUSTER_SERVICE_H_
