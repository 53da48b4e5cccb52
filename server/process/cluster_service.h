// The shell of the coordinator: carries messages between its core and the peers' calls, writes
// metrics.jsonl, and tells the process's main thread when to collect the parameters and when the
// job is over.
#ifndef RUBATO_SERVER_PROCESS_CLUSTER_SERVICE_H_
#define RUBATO_SERVER_PROCESS_CLUSTER_SERVICE_H_

#include <grpcpp/grpcpp.h>

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/log.h"
#include "proto/cluster.grpc.pb.h"
#include "server/coordinator/recorded_coordinator.h"
#include "server/run/metrics.h"

namespace rubato {

class ClusterService : public proto::Coordination::CallbackService {
 public:
  // None of them may block for long.
  struct Outlets {
    std::function<void(const MetricsLine&)> metrics;
    // A view is about to hold, because of `reason`.
    std::function<void(const proto::View& view, const std::string& reason)> journal;
    // What the coordinator sends to shard 0, which lives in this process.
    std::function<void(const proto::CoordinatorMessage&)> to_own_shard;
  };

  // `log` must outlive the service.
  ClusterService(RecordedCoordinator coordinator, Outlets outlets, const Log* log);

  // Commands that change the job must show it; before, there are none.
  void SetToken(std::string token) ABSL_LOCKS_EXCLUDED(mutex_);

  grpc::ServerBidiReactor<proto::PeerMessage, proto::CoordinatorMessage>* Join(
      grpc::CallbackServerContext* context) override;

  grpc::ServerUnaryReactor* Heartbeat(grpc::CallbackServerContext* context,
                                      const proto::HeartbeatRequest* request,
                                      proto::HeartbeatReply* reply) override;

  grpc::ServerUnaryReactor* Command(grpc::CallbackServerContext* context,
                                    const proto::CommandRequest* request,
                                    proto::CommandReply* reply) override;

  // What shard 0 has to say. Any thread.
  void FromOwnShard(const proto::PeerMessage& message) ABSL_LOCKS_EXCLUDED(mutex_);
  // The process must end (its own failure): so must the job. Any thread.
  void Fail(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mutex_);
  // See Coordinator. Any thread.
  void RequestStop(const absl::Status& end, const std::string& reason) ABSL_LOCKS_EXCLUDED(mutex_);

  // What takes time, done by the thread that waits.
  struct Tasks {
    // Writes the final parameters.
    std::function<absl::Status(const proto::View& view, int64_t version, const Summary& summary)>
        collect;
    // Sends the floats that the job begins with to the shards.
    std::function<absl::Status(const proto::View& view)> restore;
    // Writes a snapshot; returns the checkpoint's path.
    std::function<absl::StatusOr<std::string>(const proto::View& view, uint32_t snapshot,
                                              const proto::Manifest& manifest)>
        checkpoint;
  };

  // Waits until the job is over and does its tasks. Returns the job's status.
  absl::Status Wait(const Tasks& tasks) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  class Call;

  void Run(const CoordinatorActions& actions) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Answers those who wait for a checkpoint.
  void AnswerWaiting(const absl::StatusOr<std::string>& path) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RunTask(const CoordinatorAction& task, const Tasks& tasks)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Outlets outlets_;
  const Log* const log_;

  absl::Mutex mutex_;
  std::string token_ ABSL_GUARDED_BY(mutex_);
  RecordedCoordinator coordinator_ ABSL_GUARDED_BY(mutex_);
  std::map<PeerId, Call*> calls_ ABSL_GUARDED_BY(mutex_);  // each deletes itself when it is done
  PeerId last_peer_ ABSL_GUARDED_BY(mutex_) = kOwnShard;
  std::deque<CoordinatorAction> tasks_ ABSL_GUARDED_BY(mutex_);
  // Who waits for a checkpoint to be written.
  struct Waiting {
    grpc::ServerUnaryReactor* reactor;
    proto::CommandReply* reply;
  };
  std::vector<Waiting> waiting_ ABSL_GUARDED_BY(mutex_);
  std::optional<absl::Status> end_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace rubato

#endif  // RUBATO_SERVER_PROCESS_CLUSTER_SERVICE_H_
