// The core of a worker: records what it has done, and follows the policy of its view
// (common/consistency/policy.h). A single-threaded state machine: events in, actions out; no clock,
// socket, thread or float. The session carries them out (worker_session.h).
#ifndef RUBATO_WORKER_SESSION_WORKER_LOOP_H_
#define RUBATO_WORKER_SESSION_WORKER_LOOP_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "common/consistency/policy.h"
#include "common/space/flat_space.h"
#include "common/space/modes.h"
#include "common/space/sample_schedule.h"
#include "proto/cluster.pb.h"
#include "proto/job.pb.h"
#include "proto/view.pb.h"

namespace rubato {

class WorkerLoop {
 public:
  // Asks all shards for all blocks, as pull number `number`; ends with OnParameters. Answers to
  // earlier pulls are ignored from then on.
  struct Pull {
    uint64_t number = 0;
    int64_t clock = 0;
    bool retire = false;    // see FrameKind::kRetire
    bool observer = false;  // as one that computes nothing
  };
  // Asks the coordinator for `count` contributions; ends with OnWork.
  struct RequestWork {
    int64_t applied = 0;  // this worker's contributions of clocks below it are in all blocks
    int64_t count = 1;
  };
  // Tests the parameters that are here, which have seen `unit` units, beside the next computation;
  // ends with OnTested, unless it only keeps them. One test at a time: the next one that is due,
  // and the computation behind it, wait for that.
  struct Test {
    int64_t unit = 0;
    bool is_final = false;    // on the test split too
    bool only_keeps = false;  // or else they are a script's final ones, which another worker tests
    int64_t version = 0;      // of the parameters, as an EvaluationResult has it
  };
  // A hint: these micro-batches will be computed after those that were announced before.
  struct ReadAhead {
    int64_t unit = 0;
    Range leaves;
  };
  // Computes the gradients of the micro-batches `leaves` of `unit` and pushes each of `nodes`,
  // which make up `leaves`, as one sum; ends with OnComputed or OnLeftOut. `early`: some parameters
  // of the outstanding pull are still to come; ends with OnInterrupted, and nothing is pushed,
  // unless OnParameters has said that all are here.
  struct Compute {
    int64_t clock = 0;
    int64_t unit = 0;  // step (sync) or contribution (on arrival)
    Range leaves;
    std::vector<Range> nodes;  // in order
    bool early = false;
  };
  // Tells the coordinator that nothing is left to do in this view.
  struct SayIdle {
    int64_t applied = 0;  // as in RequestWork
  };
  // Tells the coordinator that this worker goes.
  struct Leave {
    int64_t applied = 0;  // as in RequestWork
  };
  using Action = std::variant<Pull, RequestWork, Test, ReadAhead, Compute, SayIdle, Leave>;
  using Actions = std::vector<Action>;

  explicit WorkerLoop(const proto::Job& job, PolicyFactory policies = BuiltInPolicy)
      : job_(job), prefetch_(job.data().prefetch()), policies_(std::move(policies)) {}

  // view.your_rank() is this worker's. Views come in the order of their numbers.
  void OnView(const proto::View& view, Actions* actions);
  // Some blocks of pull number `pull` have arrived, all at the exact version: a computation may
  // begin early. The next event must be OnParameters (not `passed`) or OnInterrupted: anything else
  // interrupts the computation first.
  void OnSomeParameters(uint64_t pull, Actions* actions);
  // All blocks have arrived for pull number `pull`. `passed`: in sync, a block was at a later
  // version than asked for, so that the step is done everywhere.
  void OnParameters(uint64_t pull, bool passed, Actions* actions);
  // The computation that was begun early has been abandoned.
  void OnInterrupted();
  void OnWork(const proto::Work& work, Actions* actions);
  // On arrival: so many contributions of this lineage are to be given to it before it begins them.
  void SetAhead(int64_t ahead) { ledger_.ahead = ahead; }
  // The first block of the last of the last Compute's sums is about to leave, and nothing that is
  // still to be done of it reads parameters. In steps what comes next is pulled now, so that each
  // block is sent as soon as it is updated, and not when all have left. (On arrival a pull says
  // what it follows.) The next event must be OnComputed, unless this part ends.
  void OnSending(Actions* actions);
  // The last Compute is done: its sums are on their way.
  void OnComputed(Actions* actions);
  // The gradient of the last Compute is not finite and has been left out (on arrival only).
  void OnLeftOut(Actions* actions);
  // The last Test is done, or has come to nothing. It may be told at any time.
  void OnTested(Actions* actions);
  // No test begins any more, and nothing waits for one.
  void OnEndTests(Actions* actions);
  // The worker is to leave as soon as the work that it has begun is done.
  void OnLeave(Actions* actions);
  // It is to leave whatever it has begun, unless it has said that it leaves.
  void LeaveAtOnce(Actions* actions);
  // The coordinator wants the final parameters tested.
  void OnEvaluationRequest(const proto::EvaluationRequest& request, Actions* actions);

  const proto::View& view() const { return ledger_.view; }
  bool waits_for_work() const { return ledger_.has_asked; }
  bool tests() const { return testing_; }
  // Nothing goes on before the test that is under way is done.
  bool waits_for_test() const { return waits_for_test_; }
  // From the first view on.
  const Policy& policy() const { return *policy_; }
  // This worker, in the view.
  const proto::Member& me() const { return view().members(me_); }
  // Where the samples of a unit lie; from the first view on.
  const SampleSchedule& schedule() const { return *schedule_; }

 private:
  // Does what the policy says is next.
  void Advance(Actions* actions);
  void StartPull(int64_t clock, bool retires, Actions* actions);
  // Of the last Pull.
  void AwaitPull(int64_t clock, bool retires);
  void MaybeAskForWork(Actions* actions);
  // Whether the parameters that it computes with are tested first.
  bool Tests(const WorkerTask& task) const;
  static Compute ComputationOf(const WorkerTask& task, bool early);
  void TestFinal(Actions* actions);
  // The task at hand has all its parameters.
  void OnBegun(Actions* actions);
  void Announce(int64_t unit, Range leaves, Actions* actions);
  // The first of the contributions that it has been given, as far as its batches are read ahead.
  void AnnounceGiven(Actions* actions);

  const proto::Job job_;
  const int64_t prefetch_;  // units
  const PolicyFactory policies_;
  std::unique_ptr<const Policy> policy_;
  WorkerLedger ledger_;
  int64_t announced_ = 0;  // of ledger_.given
  int me_ = 0;             // index among the view's members
  std::optional<SampleSchedule> schedule_;
  std::optional<Recurrence> evaluate_every_;

  // kBeginning: computes, and pulls; kIdle: has said so in this view.
  enum class State { kPulling, kBeginning, kComputing, kWaiting, kIdle };
  State state_ = State::kWaiting;
  uint64_t pull_ = 0;     // number of the last one
  WorkerTask task_;       // that is being computed
  bool is_kept_ = false;  // and counts as computed
  // The clock of the last pull, which OnSending has begun; while it computes.
  std::optional<int64_t> ahead_;
  bool stale_ = false;      // and is of an older lineage
  int64_t evaluated_ = -1;  // the last unit that was tested at
  bool testing_ = false;    // a test is under way, maybe of an older lineage
  bool waits_for_test_ = false;
  bool tests_have_ended_ = false;  // but for the final one
  bool left_ = false;

  bool final_ = false;  // the pull is for the final test
  proto::EvaluationRequest final_request_;
};

}  // namespace rubato

#endif  // RUBATO_WORKER_SESSION_WORKER_LOOP_H_
