// The core of the coordinator, which lives in shard 0's process: decides who takes part, which view
// holds, who works on which samples, and when the job is done or has failed. A single-threaded
// state machine: events in, outcomes out; time comes in as an argument. The shell is
// server/process/cluster_service.h.
//
// A view is a statement of who takes part and how; every change is the next view, in two beats.
// Close: the shards stand still and say how far each block has come and what it holds. When all
// have answered, Open: the next view goes to shards and workers. A change of mode is made when
// nothing is under way: first the lineage's end is set (in sync at the step after the open one, on
// arrival by giving out no more work), then all members report that they are idle, then the next
// view begins another lineage.
#ifndef RUBATO_SERVER_COORDINATOR_COORDINATOR_H_
#define RUBATO_SERVER_COORDINATOR_COORDINATOR_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/space/modes.h"
#include "common/space/placement.h"
#include "common/space/sample_schedule.h"
#include "proto/checkpoint.pb.h"
#include "proto/cluster.pb.h"
#include "proto/job.pb.h"
#include "proto/view.pb.h"
#include "server/coordinator/assignments.h"
#include "server/coordinator/coordinator_event.h"
#include "server/coordinator/coordinator_outcome.h"
#include "server/coordinator/registry.h"
#include "server/coordinator/snapshots.h"
#include "server/coordinator/verdicts.h"
#include "server/coordinator/work_ledger.h"
#include "server/run/metrics.h"

namespace rubato {

class Coordinator {
 public:
  // `job_digest` is JobDigest(job); peers must show the same, and the same `version`. With
  // `resume`, goes on from that checkpoint; the shell has its floats. With `initial`, the shell has
  // parameters to begin with.
  Coordinator(const proto::Job& job, std::string job_digest, std::string version,
              std::optional<proto::Manifest> resume, bool initial, absl::Time now);

  // What comes of the event.
  coordinator::Outcomes Handle(const coordinator::Event& event, absl::Time now);

  // The one that the job goes on from, for people.
  void set_last_checkpoint(std::string path) { last_checkpoint_ = std::move(path); }

  const proto::View& view() const { return view_; }
  // Of the whole run, when Collect is asked for.
  const Summary& summary() const { return summary_; }
  proto::JobStatus Status(absl::Time now) const;

 private:
  using Outcomes = coordinator::Outcomes;
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
  // kPaused: all shards are closed, and there are too few workers to go on.
  enum class ViewState { kOpen, kClosing, kPaused };

  void On(const coordinator::FromPeer& event, absl::Time now, Outcomes* out);
  void On(const coordinator::PeerGone& event, absl::Time now, Outcomes* out);
  void On(const coordinator::Heartbeat& event, absl::Time now, Outcomes* out);
  void On(const coordinator::Tick& event, absl::Time now, Outcomes* out);
  void On(const coordinator::Collected& event, absl::Time now, Outcomes* out);
  void On(const coordinator::Checkpointed& event, absl::Time now, Outcomes* out);
  void On(const coordinator::CheckpointRequested& event, absl::Time now, Outcomes* out);
  void On(const coordinator::SwitchRequested& event, absl::Time now, Outcomes* out);
  void On(const coordinator::StopRequested& event, absl::Time now, Outcomes* out);
  void On(const coordinator::Failed& event, absl::Time now, Outcomes* out);

  void OnRegistration(PeerId peer, const proto::Registration& registration, absl::Time now,
                      Outcomes* out);
  void OnFailureMessage(PeerId id, const Peer& peer, const proto::Failure& failure, absl::Time now,
                        Outcomes* out);

  // The beginning.
  void MaybeBegin(bool deadline_passed, absl::Time now, Outcomes* out);
  void OpenFirst(absl::Time now, Outcomes* out);
  absl::Status CheckResume(const proto::WorkerRegistration& worker) const;
  void BeginFromCheckpoint();
  void OnShardOpened(Peer* peer, absl::Time now, Outcomes* out);
  void SendRestore(Outcomes* out);
  void BeginTraining(absl::Time now, Outcomes* out);

  // Views.
  void BeginLineage(const Mode& mode, int64_t origin_unit, int64_t origin_samples);
  // The stage of the schedule that the sample lies in.
  const ModeSpan& StageAt(int64_t samples) const;
  void ChangeView(const std::string& reason, absl::Time now, Outcomes* out);
  void OnShardClosed(const Peer& peer, const proto::ShardClosed& closed, absl::Time now,
                     Outcomes* out);
  void TryOpen(absl::Time now, Outcomes* out);
  void Open(absl::Time now, Outcomes* out);
  void FillView(int64_t from_step);
  void AddMembers(bool is_new_lineage);
  void SendView(absl::Time now, Outcomes* out);
  // Versions of all shards' blocks, by what they said when they closed.
  std::pair<int64_t, int64_t> LowestAndHighest() const;
  int64_t ClosedClock(int rank) const;
  // A worker is not there any more; `why` completes "worker 1 (host pid 2) ...".
  void Lose(PeerId id, const std::string& why, absl::Time now, Outcomes* out);
  void Evict(PeerId id, const std::string& why, absl::Time now, Outcomes* out);

  // Work, and its end.
  void OnWorkRequest(PeerId id, Peer* peer, const proto::WorkRequest& request, absl::Time now,
                     Outcomes* out);
  void GiveWork(PeerId id, Peer* peer, absl::Time now, Outcomes* out);
  void OnProgress(Peer* peer, const proto::Progress& progress, absl::Time now, Outcomes* out);
  // Before a worker computes a unit that a test is due at, it begins the test.
  void ExpectEvaluation(const Peer& peer, const proto::Progress& progress);
  // Sync: steps that all members are past are done, whoever was lost before it told of them.
  void CatchUp(absl::Time now, std::vector<MetricsLine>* lines);
  void OnIdle(PeerId id, Peer* peer, const proto::Idle& idle, absl::Time now, Outcomes* out);
  void CheckDrained(absl::Time now, Outcomes* out);
  int64_t Position() const;  // samples before what comes next, when nothing is under way
  void EndTraining(absl::Time now, Outcomes* out);
  // Training is over: what is to be done before the end, one thing after the other.
  void MaybeEnd(Outcomes* out);
  // Waits for the tests that are under way, whose results would be lost or come out of order, and
  // asks for the final one.
  void AwaitEvaluations(Outcomes* out);
  void Evaluate(Outcomes* out);
  void OnEvaluation(const proto::EvaluationResult& evaluation, absl::Time now, Outcomes* out);
  void AskForReports(Outcomes* out);
  void OnShardReport(const proto::ShardReport& report, Outcomes* out);
  void End(const absl::Status& status, int exit_code, const std::string& reason, Outcomes* out);

  // Checkpoints.
  void StartWanted(absl::Time now, Outcomes* out);
  void ScheduleSnapshot(int64_t after, Outcomes* out);
  proto::Manifest MakeManifest() const;

  void OnShardMeasured(const proto::ShardMeasured& measured, Outcomes* out);
  // A loss or gradient is not finite: `peer` found it, for `reason`. Ends the job, with the last
  // good checkpoint in the sentence; one that is being written is waited for.
  void OnDiverged(PeerId peer, const std::string& reason, Outcomes* out);
  void EndDiverged(Outcomes* out);
  void SendToShards(const proto::CoordinatorMessage& message, Outcomes* out);
  bool sync() const { return !mode_.on_arrival(); }
  // Whom the job waits for at this moment, to compute.
  std::vector<WorkerId> WaitedFor() const;
  void CheckLeases(absl::Time now, Outcomes* out);
  void CheckEvaluator(absl::Time now, Outcomes* out);

  const proto::Job job_;
  const std::string job_digest_;
  const std::string version_;
  const absl::Time deadline_;  // for gathering
  const absl::Duration lease_;

  Phase phase_ = Phase::kGathering;
  Registry registry_;
  proto::View view_;
  std::optional<Placement> placement_;  // from the first view on
  std::vector<ModeSpan> stages_;
  Summary summary_;
  int reports_ = 0;
  absl::Time last_tick_;

  // Of the lineage.
  Mode mode_;
  std::optional<SampleSchedule> schedule_;
  int64_t until_unit_ = 0;
  std::optional<Assignments> assignments_;  // sync
  WorkLedger work_;                         // on arrival
  bool draining_ = false;                   // on arrival: what is given out is the last

  // The change of view that is under way.
  ViewState view_state_ = ViewState::kOpen;
  std::map<int, proto::ShardClosed> closed_;  // by shard
  std::string reason_;
  bool cut_ = false;          // sync: the lineage ends at the step after the open one
  bool new_lineage_ = false;  // the next view begins another
  std::vector<WorkerId> lost_;
  std::optional<Mode> asked_;  // by hand, up to the end of the stage
  bool asked_holds_ = false;

  // A checkpoint to go on from.
  const std::optional<proto::Manifest> resume_;
  const bool initial_;
  int restored_ = 0;       // shards
  absl::Time begin_time_;  // of training
  double seconds_before_ = 0;

  std::optional<Metrics> metrics_;
  std::optional<Recurrence> evaluate_every_;
  std::optional<Recurrence> checkpoint_every_;
  absl::Duration checkpoint_every_time_ = absl::InfiniteDuration();
  absl::Time last_snapshot_time_;
  int64_t next_checkpoint_unit_ = 0;  // on arrival
  Snapshots snapshots_;
  bool checkpoint_wanted_ = false;  // as soon as none is under way
  bool training_is_over_ = false;
  bool final_checkpoint_done_ = false;
  bool checkpoint_failed_ = false;  // the last one
  std::string last_checkpoint_;
  double eval_loss_ = 0;
  std::optional<double> eval_accuracy_;
  int64_t final_unit_ = 0;  // that the final test is of
  PeerId evaluator_ = 0;
  absl::Time evaluating_since_;
  bool has_evaluation_ = false;
  // Tests during training whose results have not come, by unit, and who makes them: on arrival
  // those that were asked for, and those that have certainly begun.
  std::map<int64_t, WorkerId> asked_evaluations_, evaluations_;
  int64_t last_evaluated_ = -1;  // the unit of the last result
  bool is_testing_ = false;      // those are done, and the final test has been asked for

  bool stopping_ = false;
  absl::Status stop_end_;  // what the job ends with
  std::optional<Verdicts> verdicts_;
  std::string diverged_;  // why, once something is not finite
  PeerId diverged_peer_ = kOwnShard;
  int64_t skipped_ = 0;
};

}  // namespace rubato

#endif  // RUBATO_SERVER_COORDINATOR_COORDINATOR_H_
