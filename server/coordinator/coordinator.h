// The core of the coordinator, which lives in shard 0's process: decides who takes part, which view
// holds, who works on which samples, and when the job is done or has failed. A single-threaded
// state machine: events in, outcomes out; time comes in as an argument. The shell is
// server/process/cluster_service.h.
//
// Its parts keep their own state: Starting, Registry, Leases and Latecomers (who is here),
// ViewChange (the two phases), Work with its Lineage, Checkpoints, Evaluations, Decisions, Ending.
// The coordinator passes events to them and does what involves several.
//
// A view is a statement of who takes part and how; every change is the next view. The mode changes
// when no work is in progress. First the lineage's end is set: in sync at the step after the open
// one, on arrival by giving out no more work. Then all members report that they are idle, and the
// next view begins another lineage.
//
// A term is the lifetime of one such core. When a shard is lost, the term ends, unless the shard
// would not be started again (cluster.max_restarts: 0). Every process then begins anew with a core
// of the next term. From the old term only Keep remains, and the blocks of the shards if all have
// kept theirs (kept_values.h), or else the last checkpoint.
#ifndef RUBATO_SERVER_COORDINATOR_COORDINATOR_H_
#define RUBATO_SERVER_COORDINATOR_COORDINATOR_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/base/exit_code.h"
#include "common/base/rate_limit.h"
#include "common/base/seldom.h"
#include "common/consistency/policy.h"
#include "common/space/placement.h"
#include "proto/checkpoint.pb.h"
#include "proto/cluster.pb.h"
#include "proto/job.pb.h"
#include "proto/run_state.pb.h"
#include "proto/view.pb.h"
#include "server/coordinator/checkpoints.h"
#include "server/coordinator/coordinator_event.h"
#include "server/coordinator/coordinator_outcome.h"
#include "server/coordinator/decisions.h"
#include "server/coordinator/ending.h"
#include "server/coordinator/evaluations.h"
#include "server/coordinator/first_values.h"
#include "server/coordinator/latecomers.h"
#include "server/coordinator/leases.h"
#include "server/coordinator/registry.h"
#include "server/coordinator/starting.h"
#include "server/coordinator/value_pieces.h"
#include "server/coordinator/view_change.h"
#include "server/coordinator/work.h"
#include "server/rules/allowed.h"
#include "server/run/metrics.h"

namespace rubato {

class Coordinator {
 public:
  // Limits how often the view changes because workers join: this many changes in a burst, then four
  // a second. Each change stops all workers for a moment, and nothing else prevents a faulty worker
  // from registering and leaving again and again. A worker that has to wait joins with the next
  // change.
  static constexpr int kJoinsAtOnce = 16;
  static constexpr absl::Duration kBetweenJoins = absl::Milliseconds(250);

  // The initial values of the job: `resume`, the checkpoint at `path`, whose floats the shell has;
  // or, if `initial`, parameters that the shell has; or else none.
  struct Begin {
    std::optional<proto::Manifest> resume;
    std::string path;
    // The path of the checkpoint for shards: those that can read it take their floats from there.
    // Empty: the shell sends all floats.
    std::string shared_path;
    bool initial = false;
    // A random key from the shell, by which shards recognise the restored values. 0: nothing is
    // restored.
    uint64_t restore_key = 1;
    // Of the terms before; with the number of this one, from 1.
    proto::RunState state;
    // For how long the training has been interrupted when this term begins, by the shell's clock.
    absl::Duration stood_still = absl::ZeroDuration();
    // None of the above applies: the job has ended well, and what remains is to tell processes that
    // do not know.
    bool is_over = false;
    // Of the values that a worker gives, so many floats travel in one message.
    int64_t values_of_piece = kValuesOfPiece;
  };

  // `job_digest` is JobDigest(job); peers must show the same, and the same `version`.
  Coordinator(const proto::Job& job, const std::string& job_digest, const std::string& version,
              const Begin& begin, absl::Time now, PolicyFactory policies = BuiltInPolicy);

  // Handles an event and returns its outcomes.
  coordinator::Outcomes Handle(const coordinator::Event& event, absl::Time now);

  const proto::View& view() const { return view_; }
  // Of the whole run, when Collect comes; or, of a job that has diverged, when End comes.
  const Summary& summary() const { return summary_; }
  // Whether a requested checkpoint has still to be taken. One that is already being written does
  // not count, because it was taken before the request.
  bool wants_checkpoint() const { return checkpoints_.is_wanted(); }
  // Samples trained so far, including those before the checkpoint from which the job was resumed.
  int64_t samples() const;
  // If the term continues with values that the shards have kept: the manifest that a checkpoint of
  // them would have. Set from the moment when its first view is sent.
  const proto::Manifest* kept() const {
    return starting_.is_kept() ? &*starting_.resume() : nullptr;
  }
  // Of training, up to the last unit that is done.
  double seconds() const;
  // Whether the training has begun, or goes on.
  bool has_begun() const { return starting_.state() == Starting::State::kDone; }
  // Whether the training is over and the job is not: last tests, checkpoint and result are due.
  bool is_ending() const { return !is_over_ && has_begun() && !is_training(); }
  // Whether this term has trained anything.
  bool has_trained() const { return samples() > first_samples(); }
  // The number of refused messages, each of which has ended its call. A peer that follows the
  // protocol never sends one, not even late.
  int64_t refused() const { return refused_; }
  // When the job has ended well: the number of processes that are missing, or may be cut off, and
  // do not know it.
  int absent() const { return absent_; }
  // How the job stands (coordinator_status.cc).
  proto::JobStatus Status(absl::Time now) const;

 private:
  void On(const coordinator::FromPeer& event);
  // Tells a process that registers after the job has ended well that it is done.
  void TellOfEnd(const coordinator::FromPeer& event);
  void On(const coordinator::PeerGone& event);
  void On(const coordinator::Heartbeat& event);
  void On(const coordinator::Tick& event);
  void On(const coordinator::Collected& event);
  void On(const coordinator::Checkpointed& event);
  void On(const coordinator::CheckpointRequested& event);
  void On(const coordinator::SwitchRequested& event);
  void On(const coordinator::StopRequested& event);
  void On(const coordinator::Failed& event);
  void On(const coordinator::RestoreBroke& event);
  void On(const coordinator::ValuesSaved& event);
  void On(const coordinator::PartsFolder& event) { checkpoints_.SetPartsFolder(event.path); }
  void OnRegistration(PeerId id, const proto::Registration& registration);
  // The registering process belongs to a run that has begun already, while this coordinator would
  // begin another run of the same job. So this one ends, and the others wait for the right
  // coordinator.
  void RefuseToBegin(PeerId id, const proto::Registration& registration);
  // As what the peer of this call speaks (server/rules/allowed.h).
  Speaker SpeakerOf(PeerId id);
  void RefuseStranger(PeerId id, const proto::PeerMessage& message);
  // One that waits for the end says something.
  void OnLatecomer(PeerId id, Verdict verdict, const proto::PeerMessage& message);
  // Why the peer cannot have said this, or OK.
  absl::Status Check(PeerId id, const Peer& peer, const proto::PeerMessage& message) const;
  // The peer has violated the protocol: ends its call, and for a worker nothing else.
  void EndCall(PeerId id, const Peer& peer, const absl::Status& why);
  void OnFailure(PeerId id, const Peer& peer, const proto::Failure& failure);
  void OnShard(PeerId id, const ShardId& shard, const proto::PeerMessage& message);
  // Whether the worker may be given `count` contributions; else its call ends.
  bool MayAskFor(int64_t count, PeerId id, const Peer& peer);
  void OnWorker(PeerId id, Peer* peer, const proto::PeerMessage& message);
  void OnQuestion(PeerId id, const ShardId& shard, const proto::Question& question);
  void OnEvaluation(PeerId id, const Peer& peer, const proto::EvaluationResult& evaluation);

  int64_t first_samples() const {
    return starting_.resume().has_value() ? starting_.resume()->samples() : 0;
  }
  void AddWaits(absl::Time now, proto::JobStatus* status) const;

  // Between the beginning and the end.
  bool is_training() const {
    return !is_over_ && has_begun() && ending_.state() == Ending::State::kTraining;
  }

  // The beginning.
  void Gather();
  // What is waited for while the processes of the job gather.
  std::string AwaitedAtStart() const;
  // That no shard takes for ever to read its part of the checkpoint.
  void CheckReaders();
  // Whether the job has what it begins with; sees to it.
  bool HasFirstValues();
  void OpenFirstView();
  void BeginTraining();

  // Views.
  void ChangeView(const std::string& reason);
  void BeginChange();
  // Workers that have come since the view began, if it may change for them.
  void LetJoin();
  // All shards have closed the view.
  void TryOpen();
  void OpenNextView();
  void OnNewLineage(const proto::Mode& before);
  // To the workers that are its members.
  void SendViewToWorkers();
  void CheckLeases();
  // Its call is broken.
  void LosePeer(PeerId id);
  // A worker is not there any more; `why` completes "worker 1 (host pid 2) ...".
  void Lose(PeerId id, const std::string& why);
  void Evict(const Leases::Expired& expired);
  // A shard is not there any more: the job goes back, or ends if it may not.
  void LoseShard(PeerId shard, const std::string& why);
  bool MayGoBack() const;
  // A shard, perhaps that one, does not do its part: ends the term, or the job if it may not go
  // back.
  void GoBackOrEnd(int lost_shard, const std::string& reason);
  // Ends the term because of `reason`.
  void GoBack(int lost_shard, const std::string& reason);
  // Has the peer register again.
  void SendBack(PeerId id, const std::string& reason);
  // Counts changes of mode that the last term had sent to a shard but had not recorded when it
  // ended.
  void CountLastSwitches();
  // Decides whether the term continues with the values that the shards have kept, and if not,
  // counts the samples that were trained in vain.
  void DecideOnKept();
  // Logs where the term begins, after the loss of a server has ended the one before.
  void TellOfGoingBack();
  void KeepCounts();
  void Keep() { out_.push_back(coordinator::Keep{lasting_}); }

  // Work, and its end.
  // The lineage ends with what is begun: for a stop, or for another mode.
  void EndLineage(const std::string& reason);
  void CheckDrained();
  void TakeWantedCheckpoint();
  void AnnounceCheckpoint(int64_t after);
  void EndTraining();
  // The job was stopped, and nobody is there to finish the step at hand.
  void EndAbandoned();
  // The next thing to be done once the training is over.
  void GoOnEnding();
  // Who is not here to hear that the job has ended.
  int CountAbsent() const;
  void Diverge(PeerId culprit, const std::string& reason);
  // Ends the job: one that has diverged as that, whatever else ends it.
  void End(const absl::Status& status, int exit_code, const std::string& reason);
  void EndDiverged();
  void EndAll(const absl::Status& status, int exit_code, const std::string& reason);
  // What the others are told of a stop.
  std::string WhyStopped(const absl::Status& end) const;
  // What this process is called.
  std::string Name() const {
    return job_.cluster().dedicated_coordinator() ? "the coordinator" : "shard 0";
  }

  const proto::Job job_;
  const PolicyFactory policies_;
  const uint64_t restore_key_;
  const proto::RunState before_;
  const absl::Duration stood_still_;  // before this term,
  const absl::Time begun_;            // which began then
  proto::Lasting lasting_;
  Starting starting_;
  FirstValues first_values_;
  Registry registry_;
  Leases leases_;
  Latecomers latecomers_;
  ViewChange change_;
  proto::View view_;
  // From the first view on.
  std::optional<Placement> placement_;
  std::optional<Work> work_;
  std::optional<Evaluations> evaluations_;
  std::optional<Decisions> decisions_;
  Checkpoints checkpoints_;
  Ending ending_;
  RateLimit join_limit_{kJoinsAtOnce, kBetweenJoins};
  int64_t refused_ = 0;
  Seldom tells_refusal_;
  bool is_over_ = false;
  bool has_ended_well_ = false;
  int absent_ = 0;
  bool goes_back_ = false;  // only the term is
  // A shard that was lost while the result was collected. The collection may have succeeded all the
  // same.
  std::optional<int> lost_;
  std::string why_lost_;
  Summary summary_;
  // Of a term that follows another: the kept decisions; or why it cannot go on with what is kept.
  std::vector<proto::Decision> kept_decisions_;
  std::string why_not_kept_;

  // Of the event at hand.
  absl::Time now_;
  coordinator::Outcomes out_;
};

}  // namespace rubato

#endif  // RUBATO_SERVER_COORDINATOR_COORDINATOR_H_
