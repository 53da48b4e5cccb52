// Part of the coordinator's core: who computes what, and what has been computed. A view divides
// each step's micro-batches over its members; contributions on arrival are given out on demand and
// tracked one by one. No other part needs to know which of the two applies.
#ifndef RUBATO_SERVER_COORDINATOR_WORK_H_
#define RUBATO_SERVER_COORDINATOR_WORK_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/consistency/policy.h"
#include "proto/checkpoint.pb.h"
#include "proto/cluster.pb.h"
#include "proto/job.pb.h"
#include "proto/run_state.pb.h"
#include "proto/view.pb.h"
#include "server/coordinator/assignments.h"
#include "server/coordinator/coordinator_outcome.h"
#include "server/coordinator/evaluations.h"
#include "server/coordinator/lineage.h"
#include "server/coordinator/registry.h"
#include "server/coordinator/view_change.h"
#include "server/coordinator/work_ledger.h"
#include "server/run/metrics.h"

namespace rubato {

class Work {
 public:
  // The first lineage begins: at the first sample, or where the checkpoint was made.
  // What was asked for in an earlier term, `lasting`, goes on.
  Work(const proto::Job& job, int64_t samples_per_epoch,
       const std::optional<proto::Manifest>& resume, const proto::Lasting& lasting,
       PolicyFactory policies);

  // The training begins, after that of `seconds_before`.
  void BeginTraining(double seconds_before, absl::Time now);
  bool is_training() const { return metrics_.has_value(); }

  // Views.
  // Says in the first view what it is of, and who of its members does what.
  void OpenFirstView(const std::vector<WorkerId>& members, proto::View* view);
  // Fills in the next view, when all shards are closed. Work of lost workers is given to others.
  // Another lineage begins if this one is over. The lineage ends with the work already begun if the
  // job is `stopping` or another mode was requested.
  void OpenView(const ViewChange& change, bool stopping, const std::vector<WorkerId>& members,
                proto::View* view, coordinator::Outcomes* out);
  // Adds the members: all workers that are here. On arrival, new workers and workers that had
  // nothing to do begin at the clock of the slowest active worker, so that nobody has to wait until
  // they have caught up.
  void AddMembers(const ViewChange& change, bool is_new_lineage, Registry* registry,
                  proto::View* view) const;

  // The lineage is to end as early as possible. False if that takes another view.
  bool CutNow();
  // When that will be, for people.
  absl::string_view WhenCut() const;
  // All shards are closed, and nobody is there to finish what is open.
  void Abandon(const ViewChange& change, absl::Time now, coordinator::Outcomes* out);
  // No work is in progress: counts the units that nobody has reported.
  void CatchUp(absl::Time now, coordinator::Outcomes* out) { CatchUp(lineage_.until(), now, out); }
  // All shards are closed: the steps that all blocks have taken are counted, if a worker is lost,
  // which does not tell of its parts of them any more: soon, since the others may have theirs on
  // the way, and at once where the lineage is over.
  void CatchUpWithBlocks(const ViewChange& change, absl::Time now, coordinator::Outcomes* out);
  void OnTick(absl::Time now, coordinator::Outcomes* out);
  bool is_done() const { return ledger_.redo() == 0 && ledger_.under_way() == 0; }

  // To workers, who are members: `count` contributions, or as many as are left.
  void Give(PeerId id, int64_t count, Peer* peer, Evaluations* evaluations, absl::Time now,
            coordinator::Outcomes* out);
  // It was computed at `at`, and is told now.
  void OnProgress(const proto::Progress& progress, absl::Time at, Peer* peer, Registry* registry,
                  Evaluations* evaluations, absl::Time now, coordinator::Outcomes* out);
  MetricsLine OnEvaluation(const proto::EvaluationResult& evaluation, absl::Time now) {
    return metrics_->OnEvaluation(evaluation, now);
  }
  void OnApplied(const WorkerId& worker, int64_t clock) { ledger_.OnApplied(worker, clock); }
  // It has nothing left to do. False if it is given more.
  bool OnIdle(PeerId id, Peer* peer, Evaluations* evaluations, absl::Time now,
              coordinator::Outcomes* out);
  void OnLeaving(const WorkerId& worker, int64_t applied);
  // Whom the job waits for at this moment, to compute.
  std::vector<WorkerId> WaitedFor(const Registry& registry) const;
  // What it waits for `worker` to do, for people.
  std::string WaitText(const Peer& worker, double seconds) const;

  // InvalidArgument if `worker` reports a unit that it was not given. Late reports on steps whose
  // division is no longer known are accepted from any worker.
  absl::Status CheckGiven(const WorkerId& worker, const proto::Progress& progress) const;
  // Of a shard that has come to `unit`: all shards are done with the units below this one.
  int64_t FirstOpen(int64_t unit) const { return divides() ? unit : ledger_.first_open(); }

  // A step or contribution is left out. Returns how many have been.
  int64_t Skip() { return ++skipped_; }

  // The training is over: the last line, and the sums of the run.
  void End(absl::Time now, Summary* summary, coordinator::Outcomes* out);

  Lineage& lineage() { return lineage_; }
  const Lineage& lineage() const { return lineage_; }
  // Of the view that has been opened last.
  const Policy& policy() const { return *policy_; }
  const WorkLedger& ledger() const { return ledger_; }
  // While is_training.
  const Metrics& metrics() const { return *metrics_; }
  double samples_per_second(absl::Time now) const;
  // Units done when the training begins or has just gone on.
  int64_t done() const { return ledger_.next() - ledger_.redo(); }

 private:
  // Whether the view divides what there is to compute; else the ledger gives it out.
  bool divides() const { return !OnArrival(lineage_.mode()); }
  // The lineage ends with what is begun: before `step`, if views divide the steps.
  void CutAt(int64_t step) { lineage_.Cut(divides() ? step : ledger_.next()); }
  void AddTo(int64_t from_step, proto::View* view);
  void CatchUp(int64_t units, absl::Time now, coordinator::Outcomes* out);
  void CatchUpWithMembers(const Registry& registry, absl::Time now,
                          std::vector<MetricsLine>* lines);

  const proto::Job job_;
  const int64_t samples_per_epoch_;
  Lineage lineage_;
  int64_t origin_steps_ = 0;  // steps before it
  const PolicyFactory policies_;
  std::shared_ptr<const Policy> policy_;
  std::optional<Assignments> assignments_;  // if it divides
  WorkLedger ledger_;                       // else
  int64_t taken_ = 0;  // sync: steps below are counted from `counts_taken_at_` on
  absl::Time counts_taken_at_ = absl::InfiniteFuture();
  std::optional<Metrics> metrics_;
  absl::Time begin_;     // of training
  int64_t skipped_ = 0;  // left out because they were not finite
};

}  // namespace rubato

#endif  // RUBATO_SERVER_COORDINATOR_WORK_H_
