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
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/sample_schedule.h"
#include "common/sum_of_squares.h"
#include "proto/checkpoint.pb.h"
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
    kSend,        // `message` to `peer`
    kLog,         // `text` for people
    kWarn,        // the same, as a warning
    kMetrics,     // `metrics` is complete
    kCollect,     // write the final parameters (version `version` of every block in sync), then
                  // OnCollected
    kRestore,     // send the checkpoint's floats to the shards, then it is for them to answer
    kCheckpoint,  // write snapshot `snapshot` as a checkpoint with `manifest`, then OnCheckpointed
    kEnd,         // the job is over with `end`; all peers have been sent Stop
  };
  Kind kind;
  PeerId peer = 0;
  proto::CoordinatorMessage message{};
  std::string text{};
  MetricsLine metrics{};
  int64_t version = 0;
  uint32_t snapshot = 0;
  proto::Manifest manifest{};
  absl::Status end{};
};
using CoordinatorActions = std::vector<CoordinatorAction>;

class Coordinator {
 public:
  // `job_digest` is JobDigest(job); peers must show the same, and the same `version`. With
  // `resume`, goes on from that checkpoint; the shell has its floats. With `initial`, the shell has
  // parameters to begin with.
  Coordinator(const proto::Job& job, std::string job_digest, std::string version,
              std::optional<proto::Manifest> resume, bool initial, absl::Time now);

  void OnMessage(PeerId peer, const proto::PeerMessage& message, absl::Time now,
                 CoordinatorActions* actions);
  void OnPeerGone(PeerId peer, CoordinatorActions* actions);
  // From time to time: deadlines pass.
  void OnTick(absl::Time now, CoordinatorActions* actions);
  // The kCollect action is done, or has failed.
  void OnCollected(const absl::Status& status, CoordinatorActions* actions);
  // The kCheckpoint action is done: `path` is the new checkpoint; or has failed, and training goes
  // on.
  void OnCheckpointed(uint32_t snapshot, const absl::StatusOr<std::string>& path,
                      CoordinatorActions* actions);
  // Writes a checkpoint as soon as may be. Unavailable if the job is not training.
  absl::Status RequestCheckpoint(CoordinatorActions* actions);
  // Ends the job in order, with a checkpoint: with `end` if that is an error (a signal) and then
  // without testing and collecting the final parameters; a second time, or before training, at
  // once.
  void RequestStop(const absl::Status& end, const std::string& reason, CoordinatorActions* actions);
  // The process cannot go on (its own shard): ends the job.
  void OnFailure(const absl::Status& status, CoordinatorActions* actions);

  // The one that the job goes on from, for people.
  void set_last_checkpoint(std::string path) { last_checkpoint_ = std::move(path); }

  const proto::View& view() const { return view_; }
  // Of the whole run, when kCollect is asked for.
  const Summary& summary() const { return summary_; }

 private:
  enum class Phase {
    kGathering,
    kOpening,
    kRestoring,
    kRunning,
    kEvaluating,
    kReporting,
    kCollecting,
    kEnded
  };

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
  void OnEvaluation(const proto::EvaluationResult& evaluation, absl::Time now,
                    CoordinatorActions* actions);
  void OnWorkerFinished(PeerId peer, absl::Time now, CoordinatorActions* actions);
  void OnEvaluated(const MetricsLine& line, CoordinatorActions* actions);
  absl::Status CheckResume(const proto::WorkerRegistration& worker) const;
  int64_t BlockValues() const;
  void BeginTraining(absl::Time now, CoordinatorActions* actions);
  void SendRestore(CoordinatorActions* actions);
  // Each of the shards.
  void SendToShards(const proto::CoordinatorMessage& message, CoordinatorActions* actions);
  // All workers have finished: what is to be done before the end, one thing after the other.
  void MaybeEnd(CoordinatorActions* actions);

  // Snapshots: at most one is under way, from Hold or its announcement until it is written.
  void StartWanted(CoordinatorActions* actions);
  void Hold(CoordinatorActions* actions);
  void Snapshot(int64_t step, CoordinatorActions* actions);
  void ScheduleSnapshot(int64_t after, CoordinatorActions* actions);
  void OnShardHeld(const proto::ShardHeld& held, CoordinatorActions* actions);
  void OnSnapshotCopied(const proto::SnapshotCopied& copied, CoordinatorActions* actions);
  void OnSnapshotMissed(const proto::SnapshotMissed& missed, CoordinatorActions* actions);
  proto::Manifest MakeManifest() const;

  void OnShardMeasured(const proto::ShardMeasured& measured, CoordinatorActions* actions);
  // A loss or gradient is not finite: `peer` found it, for `reason`. Ends the job, with the last
  // good checkpoint in the sentence; one that is being written is waited for.
  void OnDiverged(PeerId peer, const std::string& reason, CoordinatorActions* actions);
  void EndDiverged(CoordinatorActions* actions);
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

  // A checkpoint to go on from, and what is left to do of the contributions that it does not hold
  // whole.
  const std::optional<proto::Manifest> resume_;
  const bool initial_;
  std::vector<int64_t> redo_;  // on arrival: to be given out again, first
  int restored_ = 0;           // shards
  absl::Time begin_time_;      // of training
  double seconds_before_ = 0;

  enum class SnapshotPhase { kNone, kHolding, kAnnounced, kTaking, kWriting };
  struct {
    SnapshotPhase phase = SnapshotPhase::kNone;
    uint32_t id = 0;  // the last one given
    int64_t step = 0;
    int answers = 0;  // shards that have held, or copied
    int64_t highest = 0;
    std::map<int64_t, proto::BlockState> blocks;
  } snapshot_;
  int64_t every_units_ = 0;  // between scheduled checkpoints; 0: none
  absl::Duration every_time_ = absl::InfiniteDuration();
  absl::Time last_snapshot_time_;
  bool checkpoint_wanted_ = false;  // as soon as none is under way
  bool final_checkpoint_done_ = false;
  bool checkpoint_failed_ = false;  // the last one
  std::string last_checkpoint_;
  double eval_loss_ = 0;
  std::optional<double> eval_accuracy_;
  int64_t final_unit_ = 0;  // that the final test is of
  bool has_evaluation_ = false;

  bool stopping_ = false;
  absl::Status stop_end_;  // what the job ends with

  struct Measured {
    explicit Measured(int64_t values) : squares(values) {}
    int shards = 0;
    int64_t samples = 0;
    int64_t non_finite = -1;
    SumOfSquares squares;
  };
  std::map<int64_t, Measured> measured_;  // by step
  std::string diverged_;                  // why, once something is not finite
  PeerId diverged_peer_ = kOwnShard;
  int64_t skipped_ = 0;
};

}  // namespace rubato

#endif  // RUBATO_SERVER_COORDINATOR_H_
