// The shell of the coordinator: carries messages between its core and the peers' calls, writes
// metrics.jsonl, and tells the process's main thread when to collect the parameters and when the
// job is over.
#ifndef RUBATO_SERVER_CLUSTER_SERVICE_H_
#define RUBATO_SERVER_CLUSTER_SERVICE_H_

#include <grpcpp/grpcpp.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/log.h"
#include "common/run_folder.h"
#include "proto/cluster.grpc.pb.h"
#include "server/coordinator.h"
#include "server/metrics_recorder.h"

namespace rubato {

class ClusterService : public proto::Coordination::CallbackService {
 public:
  // `to_own_shard` gets what the coordinator sends to shard 0, which lives in this process; it must
  // not block. The others must outlive the service.
  ClusterService(Coordinator coordinator, MetricsRecorder* metrics, const Log* log,
                 std::function<void(const proto::CoordinatorMessage&)> to_own_shard);

  grpc::ServerBidiReactor<proto::PeerMessage, proto::CoordinatorMessage>* Join(
      grpc::CallbackServerContext* context) override;

  // What shard 0 has to say. Any thread.
  void FromOwnShard(const proto::PeerMessage& message) ABSL_LOCKS_EXCLUDED(mutex_);
  // The process must end (a signal, its own failure): so must the job. Any thread.
  void Fail(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mutex_);

  // Waits until the job is over; meanwhile `collect` is called, once, when the final parameters are
  // to be written. Returns the job's status.
  absl::Status Wait(
      std::function<absl::Status(const proto::View& view, int64_t version, const Summary& summary)>
          collect) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  class Call;

  void Run(const CoordinatorActions& actions) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  MetricsRecorder* const metrics_;
  const Log* const log_;
  const std::function<void(const proto::CoordinatorMessage&)> to_own_shard_;

  absl::Mutex mutex_;
  Coordinator coordinator_ ABSL_GUARDED_BY(mutex_);
  std::map<PeerId, Call*> calls_ ABSL_GUARDED_BY(mutex_);  // each deletes itself when it is done
  PeerId last_peer_ ABSL_GUARDED_BY(mutex_) = kOwnShard;
  std::optional<int64_t> collect_ ABSL_GUARDED_BY(mutex_);  // the version to collect
  std::optional<absl::Status> end_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace rubato

#endif  // RUBATO_SERVER_CLUSTER_SERVICE_H_
