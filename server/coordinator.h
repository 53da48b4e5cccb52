// The core of the coordinator, which lives in shard 0's process: decides who takes part, which view
// holds, who works on which samples, and when the job is done or has failed. A single-threaded
// state machine: events in, actions out; time comes in as an argument. The shell is
// server/cluster_service.h.
#ifndef RUBATO_SERVER_COORDINATOR_H_
#define RUBATO_SERVER_COORDINATOR_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/sample_schedule.h"
#include "proto/cluster.pb.h"
#include "proto/job.pb.h"
#include "proto/view.pb.h"
#include "server/metrics.h"

namespace rubato {

// Names a peer's call. Shard 0 itself is peer 0: what is sent to it stays in the process.
using PeerId = uint64_t;
constexpr PeerId kOwnShard = 0;

struct CoordinatorAction {
  enum class Kind {
    kSend,     // `message` to `peer`
    kLog,      // `text` for people
    kWarn,     // the same, as a warning
    kMetrics,  // `metrics` is complete
    kCollect,  // write the final parameters (version `version` of every block in sync), then
               // OnCollected
    kEnd,      // the job is over with `end`; all peers have been sent Stop
  };
  Kind kind;
  PeerId peer = 0;
  proto::CoordinatorMessage message{};
  std::string text{};
  MetricsLine metrics{};
  int64_t version = 0;
  absl::Status end{};
};
using CoordinatorActions = std::vector<CoordinatorAction>;

class Coordinator {
 public:
  // `job_digest` is JobDigest(job); peers must show the same, and the same `version`.
  Coordinator(const proto::Job& job, std::string job_digest, std::string version, absl::Time now);

  void OnMessage(PeerId peer, const proto::PeerMessage& message, absl::Time now,
                 CoordinatorActions* actions);
  void OnPeerGone(PeerId peer, CoordinatorActions* actions);
  // From time to time: deadlines pass.
  void OnTick(absl::Time now, CoordinatorActions* actions);
  // The kCollect action is done, or has failed.
  void OnCollected(const absl::Status& status, CoordinatorActions* actions);
  // The process cannot go on (a signal, its own shard): ends the job.
  void OnFailure(const absl::Status& status, CoordinatorActions* actions);

  const proto::View& view() const { return view_; }
  // Of the whole run, when kCollect is asked for.
  const Summary& summary() const { return summary_; }

 private:
  enum class Phase { kGathering, kOpening, kRunning, kEvaluating, kReporting, kCollecting, kEnded };

  struct Peer {
    proto::Registration registration;
    int rank = -1;  // of a worker; for a shard, its number
    bool is_worker = false;
    bool finished = false;  // opened (shard), no more work (worker)
  };

  void OnRegistration(PeerId peer, const proto::Registration& registration,
                      CoordinatorActions* actions);
  // Why the peer cannot take part, or OK.
  absl::Status CheckRegistration(const proto::Registration& registration) const;
  void AddWorker(PeerId id, const proto::Registration& registration, CoordinatorActions* actions);
  void MaybeBegin(bool deadline_passed, CoordinatorActions* actions);
  void Open(CoordinatorActions* actions);
  void OnShardOpened(PeerId peer, absl::Time now, CoordinatorActions* actions);
  void OnWorkRequest(PeerId peer, CoordinatorActions* actions);
  void OnProgress(const proto::Progress& progress, absl::Time now, CoordinatorActions* actions);
  void OnEvaluation(const proto::Evaluation& evaluation, absl::Time now,
                    CoordinatorActions* actions);
  void OnWorkerFinished(PeerId peer, absl::Time now, CoordinatorActions* actions);
  void OnShardReport(const proto::ShardReport& report, CoordinatorActions* actions);
  void End(const absl::Status& status, int exit_code, const std::string& reason,
           CoordinatorActions* actions);

  bool sync() const { return view_.mode() == proto::View::MODE_SYNC; }
  int CountWorkers() const;
  int CountShards() const;
  std::string Missing() const;
  std::string Describe(const Peer& peer) const;
  // Everyone's part is done.
  bool AllFinished(bool workers) const;

  const proto::Job job_;
  const std::string job_digest_;
  const std::string version_;
  const absl::Time deadline_;  // for gathering

  Phase phase_ = Phase::kGathering;
  std::map<PeerId, Peer> peers_;
  proto::View view_;
  std::string layout_bytes_;  // of the first worker: all must send the same
  std::optional<SampleSchedule> schedule_;
  int64_t units_ = 0;      // of the whole job
  int64_t next_unit_ = 0;  // on arrival: the next to give out
  std::optional<Metrics> metrics_;
  Summary summary_;
  int reports_ = 0;
};

}  // namespace rubato

#endif  // RUBATO_SERVER_COORDINATOR_H_
