// The session of a worker with its cluster: it registers, connects to the shards, rejoins after it
// was taken for dead, and leaves. In between, it carries out the pulls, computations and messages
// of the loop (worker_loop.h). A single-threaded state machine: an event in, outcomes out; no
// clock, socket, thread or float. Its shells are worker.h and the simulated process
// (tools/simulator/worker_process.h).
#ifndef RUBATO_WORKER_SESSION_WORKER_SESSION_H_
#define RUBATO_WORKER_SESSION_WORKER_SESSION_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/consistency/policy.h"
#include "common/frames/frame.h"
#include "common/space/placement.h"
#include "common/space/sample_schedule.h"
#include "proto/cluster.pb.h"
#include "proto/job.pb.h"
#include "proto/view.pb.h"
#include "worker/session/pulled_blocks.h"
#include "worker/session/worker_loop.h"

namespace rubato {

class WorkerSession {
 public:
  // Events. Those of a connection count only until Disconnect.

  struct Started {};
  // Connect has failed: DeadlineExceeded if some process has not answered in time, Unavailable if a
  // server has ended.
  struct NotConnected {
    absl::Status status;
  };
  // Connect has succeeded. The worker now waits for its first view, which does not come while the
  // job is paused.
  struct Registered {};
  struct FromCoordinator {
    std::shared_ptr<const proto::CoordinatorMessage> message;
  };
  // The call to the coordinator has broken without a Stop.
  struct CallBroke {
    absl::Status status;
  };
  // A stream to a shard has broken.
  struct StreamBroke {
    absl::Status status;
  };
  // It cannot go on: a shard has violated the protocol, or the computation has failed.
  struct Failed {
    absl::Status status;
  };
  // PulledBlocks::MayBegin.
  struct SomeArrived {
    uint64_t pull = 0;
  };
  // All blocks of a pull are here. If none was passed, this event may arrive while a computation
  // that was begun early runs; any other event follows Interrupted.
  struct AllArrived {
    PulledBlocks::Arrived arrived;
  };
  // What was begun early has come to nothing.
  struct Interrupted {};
  // WorkerLoop::OnSending, within a computation.
  struct Sending {};
  // The computation is done and its sums are being sent. `progress` has its results and its
  // duration; the session adds which computation it was.
  struct Computed {
    proto::Progress progress;
  };
  // A result of the last Test is on its way to the coordinator. A final test has two, of which the
  // second, `is_final`, ends it.
  struct Tested {
    bool is_final = false;
  };
  // The job cannot go on: a loss or gradient is not finite, as `reason` says.
  struct Diverged {
    std::string reason;
  };
  // The worker is to leave, because of `why`: a signal.
  struct AskedToLeave {
    absl::Status why;
  };
  // No other event has come by deadline(). `heard_at`: when the coordinator last answered a
  // heartbeat of me(), as far as is known.
  struct DeadlinePassed {
    absl::Time heard_at = absl::InfinitePast();
  };

  using Event = std::variant<Started, NotConnected, Registered, FromCoordinator, CallBroke,
                             StreamBroke, Failed, SomeArrived, AllArrived, Interrupted, Sending,
                             Computed, Tested, Diverged, AskedToLeave, DeadlinePassed>;

  // Outcomes, to be carried out in order. Pull, Test, ReadAhead and Compute are the loop's.

  using Test = WorkerLoop::Test;
  using ReadAhead = WorkerLoop::ReadAhead;
  using Compute = WorkerLoop::Compute;
  // Connects to the coordinator and registers as a new worker. If `servers` are given, it must
  // reach these first, or others would wait for a worker that cannot work.
  struct Connect {
    absl::Duration patience;           // with which it tries
    absl::Status again;                // why it was cut off from what it took part in before, if so
    std::vector<std::string> servers;  // addresses; none if it has not taken part before
    // If all of these accept connections but send nothing for this long, the job is over: they have
    // been silent for a lease by then.
    absl::Duration longest_mute;
    // The term of the worker's last view, which its registration states; 0: none.
    uint32_t last_term = 0;
  };
  // view() is another.
  struct UseView {};
  // Opens the streams to the view's shards, and sends heartbeats for me().
  struct OpenStreams {};
  struct SendToCoordinator {
    proto::PeerMessage message;
  };
  // From now on blocks count for this pull only. The frames that ask for it follow.
  struct StartPull {
    PulledBlocks::Pull pull;
  };
  struct SendFrame {
    int shard = 0;
    Frame frame;
  };
  // Sends the coordinator these of the values that the job begins with.
  struct GiveValues {
    Range values;
  };
  // Ends the streams and the call, once what was sent on it has left.
  struct Disconnect {};
  // Nothing follows.
  struct End {
    absl::Status status;
  };

  using Outcome = std::variant<Connect, UseView, OpenStreams, SendToCoordinator, StartPull,
                               SendFrame, Test, ReadAhead, Compute, GiveValues, Disconnect, End>;
  using Outcomes = std::vector<Outcome>;

  // On arrival: what a worker has been given and has not begun takes about so long, so that short
  // contributions are given out several at once. No more than that waits behind a worker where the
  // training ends, the mode changes or the worker is lost.
  static constexpr absl::Duration kAhead = absl::Milliseconds(5);
  static constexpr int64_t kMostAhead = 16;  // contributions

  // The model has `values` values. A simulation in which one block stands for several passes a
  // placement `instead` of the view's, and one whose contributions take long another time `ahead`.
  WorkerSession(const proto::Job& job, int64_t values,
                std::optional<Placement> instead = std::nullopt,
                PolicyFactory policies = BuiltInPolicy, absl::Duration ahead = kAhead);

  Outcomes Handle(const Event& event, absl::Time now);

  // When it wants to be told that it has passed; no computation waits beyond it.
  absl::Time deadline() const { return deadline_; }

  // Whether it is in a view, and its streams are open.
  bool is_member() const { return state_ == State::kMember; }
  // The rest once it has been a member.
  const proto::View& view() const { return loop_->view(); }
  const proto::Member& me() const { return loop_->me(); }
  const Placement& placement() const { return *placement_; }
  const SampleSchedule& schedule() const { return loop_->schedule(); }
  const Policy& policy() const { return loop_->policy(); }
  bool waits_for_work() const { return loop_->waits_for_work(); }
  bool waits_for_test() const { return loop_->waits_for_test(); }
  // The header of the sum of `node`, one of compute.nodes, but for the block and its version.
  Frame PushOf(const Compute& compute, Range node) const;

 private:
  // kCutOff: it waits to join anew. kJoining: it has no view yet.
  enum class State { kCutOff, kJoining, kMember, kEnded };

  void On(const Started& event);
  void On(const NotConnected& event);
  void On(const Registered& event);
  void On(const FromCoordinator& event);
  void On(const CallBroke& event);
  void On(const StreamBroke& event);
  void On(const Failed& event);
  void On(const SomeArrived& event);
  void On(const AllArrived& event);
  void On(const Interrupted& event);
  void On(const Sending& event);
  void On(const Computed& event);
  void On(const Tested& event);
  void On(const Diverged& event);
  void On(const AskedToLeave& event);
  void On(const DeadlinePassed& event);

  void OnView(const proto::View& view);
  // Which shard holds which blocks, in it.
  absl::StatusOr<Placement> PlacementOf(const proto::View& view) const;
  void OnStop(const proto::Stop& stop);
  // It has computed a contribution: how many more it is to have been given.
  void PlanAhead();

  // Whether it has waited for a view, or had one, long enough for this attempt to count as
  // successful.
  bool HasTakenItsPlace() const;

  // Carries out what the loop wants.
  void Run(const WorkerLoop::Actions& actions);
  void Run(const WorkerLoop::Pull& pull);
  void Run(const Compute& compute);
  void Run(const WorkerLoop::RequestWork& request);
  void Run(const WorkerLoop::SayIdle& idle);
  void Run(const WorkerLoop::Leave& leave);
  void Run(const Test& test);
  void Run(const ReadAhead& read) { outcomes_.emplace_back(read); }

  void Join(absl::Duration patience);
  // Begins nothing more.
  void Leave();
  // Tells the coordinator so, whatever is begun. Returns false if it has, or is ended by a failure.
  bool SaysThatItLeaves();
  // This worker's participation is over: rejoins if `may_join_anew`, else ends with `status`.
  void EndPart(absl::Status status, bool may_join_anew);
  void EndWith(const absl::Status& status);
  void SendFailure(const absl::Status& status, bool non_finite);
  void WaitNoLongerThan(absl::Duration time) { deadline_ = std::min(deadline_, now_ + time); }

  const proto::Job job_;
  const int64_t values_;
  const std::optional<Placement> instead_;
  const PolicyFactory policies_;
  const absl::Duration ahead_;
  const absl::Duration patience_;  // with which it joins anew

  State state_ = State::kCutOff;
  std::optional<WorkerLoop> loop_;
  absl::Time deadline_ = absl::InfiniteFuture();
  absl::Status asked_to_leave_;
  absl::Time leaves_by_ = absl::InfiniteFuture();
  bool leaves_when_tested_ = false;
  bool has_taken_part_ = false;                      // ever
  uint32_t last_term_ = 0;                           // in which it has
  absl::Status cut_off_;                             // why it joins anew
  std::vector<std::string> servers_;                 // of the last view
  absl::Time heard_at_ = absl::InfinitePast();       // the coordinator, the last time
  absl::Time gives_up_at_ = absl::InfiniteFuture();  // unless parameters come before
  absl::Duration pause_;  // before it joins anew, if a stream breaks soon once more

  // Of one taking part.
  std::optional<Placement> placement_;
  bool has_parameters_ = false;  // all shards have answered: it is worth joining again
  bool was_stopped_ = false;     // by the coordinator
  absl::Time registered_at_ = absl::InfiniteFuture();
  absl::Time member_since_ = absl::InfiniteFuture();
  absl::Status stream_failure_;
  absl::Time grace_ends_;  // in which the coordinator may say why a stream has broken
  absl::Status diverged_;
  Compute computing_;
  bool tests_final_ = false;  // the last test is the final one
  int64_t version_ = 0;       // of the parameters: PulledBlocks::Arrived's
  double staleness_ = 0;      // mean over blocks, of this worker's last contribution
  // On arrival, in this lineage: when it has computed its last contribution, and the moving mean of
  // the time from one to the next.
  std::optional<absl::Time> computed_at_;
  std::optional<absl::Duration> between_;

  // While Handle runs.
  absl::Time now_;
  Outcomes outcomes_;
};

}  // namespace rubato

#endif  // RUBATO_WORKER_SESSION_WORKER_SESSION_H_
