#include "server/coordinator/work.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/files/checkpoint.h"
#include "common/space/modes.h"

namespace rubato {

using coordinator::Outcomes;
using coordinator::Send;
using coordinator::Warn;

namespace {

// Within this time who lives has told of what the blocks have: well beyond
// ControlClient::kHeldFor.
constexpr absl::Duration kTold = absl::Milliseconds(200);

// Steps before the lineage that the checkpoint is of.
int64_t OriginSteps(const proto::Job& job, const proto::Manifest& checkpoint) {
  if (checkpoint.has_origin_steps()) return checkpoint.origin_steps();
  return checkpoint.mode() == proto::Manifest::MODE_SYNC
             ? checkpoint.origin_unit()
             : checkpoint.origin_samples() / job.train().batch_size();
}

}  // namespace

Work::Work(const proto::Job& job, int64_t samples_per_epoch,
           const std::optional<proto::Manifest>& resume, const proto::Lasting& lasting,
           PolicyFactory policies)
    : job_(job),
      samples_per_epoch_(samples_per_epoch),
      lineage_(job, samples_per_epoch),
      policies_(std::move(policies)) {
  // Where no contribution has been given out yet, there is nothing to be done first either.
  const bool is_of_steps = resume.has_value() &&
                           (resume->mode() == proto::Manifest::MODE_SYNC ||
                            (resume->has_origin_unit() && resume->step() == resume->origin_unit()));
  int64_t position = 0;
  if (resume.has_value()) {
    // Blocks lack the samples of what was left out on arrival, also before the lineage.
    position =
        is_of_steps ? PositionOf(*resume) : std::max(resume->samples(), resume->origin_samples());
  }
  if (lasting.has_mode() && position < lasting.mode_until_samples()) {
    lineage_.Ask(lasting.mode(), lasting.mode_until_samples());
  }
  const proto::Mode wanted = lineage_.WantedAt(position);
  if (!resume.has_value()) {
    lineage_.Begin(wanted, 0, 0);
    return;
  }
  origin_steps_ = OriginSteps(job, *resume);
  if (is_of_steps) {
    if (resume->mode() == proto::Manifest::MODE_SYNC) {
      origin_steps_ += resume->step() - resume->origin_unit();
    }
    // A step that only some blocks have taken is done first, as a step; else all are at one
    // version.
    const bool is_split =
        std::any_of(resume->blocks().begin(), resume->blocks().end(),
                    [&](const auto& block) { return block.version() > resume->step(); });
    const bool holds_back = is_split && OnArrival(wanted);
    lineage_.Begin(holds_back ? FromManifest(resume->mode()) : wanted, resume->step(), position);
    if (holds_back) lineage_.Cut(resume->step() + 1);
    ledger_.Restart(lineage_.origin());
    return;
  }
  // What only some blocks hold is done first, on arrival and in the same numbers.
  lineage_.Begin(OnArrival(wanted) ? wanted : FromManifest(resume->mode()), resume->origin_unit(),
                 resume->origin_samples());
  ledger_ = WorkLedger(resume->step(), UnitsNotWhole(*resume));
  if (!OnArrival(wanted)) lineage_.Cut(ledger_.next());
}

void Work::BeginTraining(double seconds_before, absl::Time now) {
  begin_ = now;
  metrics_.emplace(job_, samples_per_epoch_, now - absl::Seconds(seconds_before), now);
  const SampleSchedule& schedule = lineage_.schedule();
  int64_t samples = schedule.SamplesBefore(ledger_.next());
  // Units of an epoch's end are short.
  for (const int64_t unit : ledger_.redo_units()) {
    samples -= schedule.SamplesBefore(unit + 1) - schedule.SamplesBefore(unit);
  }
  std::vector<MetricsLine> lines;  // none yet
  metrics_->Begin(policy_, lineage_.mode(), schedule, done(), samples, origin_steps_, &lines);
}

void Work::OpenFirstView(const std::vector<WorkerId>& members, proto::View* view) {
  assignments_.emplace(lineage_.schedule().leaves());
  if (divides()) assignments_->Change(lineage_.origin(), lineage_.origin(), members);
  AddTo(lineage_.origin(), view);
}

void Work::OpenView(const ViewChange& change, bool stopping, const std::vector<WorkerId>& members,
                    proto::View* view, Outcomes* out) {
  change.Settle(&ledger_);
  int64_t from_step = change.highest() + 1;
  const bool begins = lineage_.is_over();
  if (begins) {
    // No number comes twice: blocks count what was left out as an update that changed nothing.
    from_step = divides() ? change.highest() : ledger_.next();
    lineage_.BeginNext(from_step);
    origin_steps_ = metrics_->steps();
    assignments_.emplace(lineage_.schedule().leaves());
    ledger_.Restart(from_step);
  }
  if (stopping || lineage_.asked().has_value()) CutAt(from_step);
  if (divides()) assignments_->Change(change.lowest(), from_step, members);
  AddTo(from_step, view);
  if (!begins) return;
  const SampleSchedule& schedule = lineage_.schedule();
  std::vector<MetricsLine> lines;
  metrics_->Begin(policy_, lineage_.mode(), schedule, from_step, schedule.SamplesBefore(from_step),
                  origin_steps_, &lines);
  out->insert(out->end(), lines.begin(), lines.end());
}

void Work::AddTo(int64_t from_step, proto::View* view) {
  const SampleSchedule& schedule = lineage_.schedule();
  view->set_lineage(lineage_.number());
  *view->mutable_mode() = lineage_.mode();
  view->set_leaves(schedule.leaves());
  view->set_origin_unit(schedule.origin_unit());
  view->set_origin_samples(schedule.SamplesBefore(schedule.origin_unit()));
  view->set_origin_steps(origin_steps_);
  view->set_from_step(from_step);
  view->set_until_step(lineage_.until());
  view->set_verdict_steps(job_.optimizer().has_clip_grad_norm() ||
                          job_.train().on_non_finite() == proto::Train::ON_NON_FINITE_SKIP);
  if (job_.optimizer().learning_rate_parity()) {
    view->set_whole_rate_samples(job_.train().batch_size());
  }
  view->clear_assignments();
  if (divides()) assignments_->AddTo(view);
  policy_ = policies_(*view);
}

void Work::AddMembers(const ViewChange& change, bool is_new_lineage, Registry* registry,
                      proto::View* view) const {
  view->clear_members();
  std::optional<int64_t> slowest;
  int64_t fastest = 0;
  for (const Peer* worker : registry->Workers()) {
    if (!worker->is_member) continue;
    const int64_t clock = change.Clock(worker->worker.rank);
    fastest = std::max(fastest, clock);
    if (!worker->idle) slowest = std::min(slowest.value_or(clock), clock);
  }
  const int64_t begin = policy_->StartClock(slowest.value_or(fastest), fastest);
  for (Peer* worker : registry->Workers()) {
    proto::Member* member = view->add_members();
    member->set_rank(worker->worker.rank);
    member->set_incarnation(worker->worker.incarnation);
    if (is_new_lineage) {
      member->set_start_clock(0);
    } else if (!worker->is_member) {
      member->set_start_clock(begin);
    } else if (worker->idle) {
      member->set_start_clock(std::max(begin, change.Clock(worker->worker.rank)));
    }
    if (member->has_start_clock()) worker->clock = member->start_clock();
  }
}

bool Work::CutNow() {
  if (divides()) return false;
  lineage_.Cut(ledger_.next());
  return true;
}

absl::string_view Work::WhenCut() const {
  return divides() ? "after the step at hand" : "when the contributions under way are applied";
}

void Work::CatchUp(int64_t units, absl::Time now, Outcomes* out) {
  std::vector<MetricsLine> lines;
  metrics_->CatchUp(units, now, &lines);
  out->insert(out->end(), lines.begin(), lines.end());
}

void Work::Abandon(const ViewChange& change, absl::Time now, Outcomes* out) {
  change.Settle(&ledger_);
  CutAt(change.highest());
  if (divides()) CatchUp(change.lowest(), now, out);
}

void Work::CatchUpWithBlocks(const ViewChange& change, absl::Time now, Outcomes* out) {
  if (!divides()) return;
  if (!change.lost().empty()) {
    taken_ = change.lowest();
    counts_taken_at_ = now + kTold;
  }
  if (lineage_.is_over()) counts_taken_at_ = std::min(counts_taken_at_, now);
  OnTick(now, out);
}

void Work::OnTick(absl::Time now, Outcomes* out) {
  if (now < counts_taken_at_) return;
  counts_taken_at_ = absl::InfiniteFuture();
  CatchUp(taken_, now, out);
}

void Work::Give(PeerId id, int64_t count, Peer* peer, Evaluations* evaluations, absl::Time now,
                Outcomes* out) {
  if (divides()) return;  // it has asked in a lineage before
  proto::CoordinatorMessage message;
  for (proto::Work* work = message.mutable_work();; work = message.mutable_work()->add_then()) {
    const int64_t first_new = ledger_.next();
    const std::optional<int64_t> unit = ledger_.Give(peer->worker, lineage_.until());
    if (!unit.has_value()) break;
    if (ledger_.Waiting(peer->worker) == 1) peer->last_progress = now;
    work->set_contribution(*unit);
    work->set_evaluate(evaluations->Ask(peer->worker, *unit, *unit == first_new, lineage_));
    if (--count == 0) break;
  }
  out->push_back(Send{id, std::move(message)});
}

bool Work::OnIdle(PeerId id, Peer* peer, Evaluations* evaluations, absl::Time now, Outcomes* out) {
  if (!divides() && (ledger_.redo() > 0 || ledger_.next() < lineage_.until())) {
    Give(id, /*count=*/1, peer, evaluations, now, out);
    return false;
  }
  peer->idle = true;
  return true;
}

void Work::OnLeaving(const WorkerId& worker, int64_t applied) {
  ledger_.OnApplied(worker, applied);
  ledger_.OnLeaving(worker);
}

absl::Status Work::CheckGiven(const WorkerId& worker, const proto::Progress& progress) const {
  const int64_t unit = progress.unit();
  if (!divides()) {
    if (ledger_.Holds(worker, unit)) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrFormat(
        "progress.unit: found %d, expected a contribution that it has been given", unit));
  }
  const int64_t end = progress.first_leaf() + progress.loss_sum_size();
  for (int64_t leaf = progress.first_leaf(); leaf < end; ++leaf) {
    const WorkerId owner = assignments_->Owner(unit, leaf);
    if (owner == worker || owner.rank < 0) continue;
    return absl::InvalidArgumentError(absl::StrFormat(
        "progress.first_leaf: found %d of step %d, expected micro-batches that it has been given",
        progress.first_leaf(), unit));
  }
  return absl::OkStatus();
}

void Work::OnProgress(const proto::Progress& progress, absl::Time at, Peer* peer,
                      Registry* registry, Evaluations* evaluations, absl::Time now, Outcomes* out) {
  peer->last_progress = now;
  peer->staleness = progress.staleness();
  peer->clock = (divides() ? progress.unit() : progress.clock()) + 1;
  if (progress.has_computing_seconds()) {
    metrics_->OnComputed(peer->worker.rank, progress.computing_seconds());
  }
  if (divides()) {
    evaluations->OnComputed(peer->worker, progress, lineage_);
  } else {
    evaluations->OnGivenComputed(peer->worker, progress.unit());
    const bool is_first =
        ledger_.OnComputed(peer->worker, progress.unit(), progress.clock(), progress.left_out());
    if (progress.left_out()) {
      out->push_back(Warn{
          absl::StrFormat("contribution %d is left out: its gradient is not finite (%d so far)",
                          progress.unit(), Skip())});
      // Else the blocks would keep a place for it for ever.
      proto::CoordinatorMessage message;
      message.mutable_left_out()->set_unit(progress.unit());
      registry->SendToShards(message, out);
    }
    if (!is_first) return;
  }
  std::vector<MetricsLine> lines;
  const bool was_at_end = metrics_->units() >= lineage_.until();
  metrics_->OnProgress(progress, at, &lines);
  if (divides() && metrics_->units() + 1 < progress.unit())
    CatchUpWithMembers(*registry, now, &lines);
  if (divides() && !was_at_end && metrics_->units() >= lineage_.until()) {
    // From now on all are waited for, those too who had nothing to compute.
    for (auto& [id, other] : registry->peers()) other.last_progress = now;
  }
  out->insert(out->end(), lines.begin(), lines.end());
}

// Sync: steps that all members who compute are past are done, whoever has not told of them.
void Work::CatchUpWithMembers(const Registry& registry, absl::Time now,
                              std::vector<MetricsLine>* lines) {
  int64_t slowest = lineage_.until();
  for (const auto& [id, peer] : registry.peers()) {
    if (!peer.is_member || peer.idle || peer.clock > slowest) continue;
    if (assignments_->HasAny(peer.worker)) slowest = peer.clock - 1;
    if (slowest <= metrics_->units()) return;
  }
  metrics_->CatchUp(slowest, now, lines);
}

std::vector<WorkerId> Work::WaitedFor(const Registry& registry) const {
  std::vector<WorkerId> workers;
  const auto add = [&workers](const WorkerId& worker) {
    if (std::count(workers.begin(), workers.end(), worker) == 0) workers.push_back(worker);
  };
  if (divides() && metrics_->units() < lineage_.until()) {
    for (const int64_t leaf : metrics_->MissingLeaves()) {
      add(assignments_->Owner(metrics_->units(), leaf));
    }
    return workers;
  }
  // Who has done all that it was given is to say so, or to ask for more.
  int64_t slowest = std::numeric_limits<int64_t>::max();
  for (const auto& [id, peer] : registry.peers()) {
    if (peer.is_member && !peer.idle) slowest = std::min(slowest, peer.clock);
  }
  for (const auto& [id, peer] : registry.peers()) {
    if (peer.is_member && !peer.idle && policy_->IsWaitedFor(peer.clock, slowest)) {
      add(peer.worker);
    }
  }
  return workers;
}

std::string Work::WaitText(const Peer& worker, double seconds) const {
  const int rank = worker.worker.rank;
  const bool finishes =
      divides() ? metrics_->units() >= lineage_.until() : ledger_.Waiting(worker.worker) == 0;
  if (finishes) {
    return absl::StrFormat("worker %d is to finish what it has begun, for %.1f s", rank, seconds);
  }
  if (divides()) {
    return absl::StrFormat("clock %d waits for worker %d, for %.1f s", metrics_->units(), rank,
                           seconds);
  }
  return absl::StrFormat("worker %d computes clock %d, for %.1f s", rank, worker.clock, seconds);
}

double Work::samples_per_second(absl::Time now) const {
  const double seconds = absl::ToDoubleSeconds(now - begin_);
  return seconds > 0 ? static_cast<double>(metrics_->new_samples()) / seconds : 0;
}

void Work::End(absl::Time now, Summary* summary, Outcomes* out) {
  std::vector<MetricsLine> lines;
  metrics_->CloseWindow(now, &lines);
  out->insert(out->end(), lines.begin(), lines.end());
  summary->steps = metrics_->steps();
  summary->samples = metrics_->samples();
  summary->seconds = metrics_->Seconds(now);
  summary->samples_per_second = samples_per_second(now);
  summary->skipped = skipped_;
  summary->overlap = metrics_->overlap();
  summary->workers = metrics_->WorkerTimes(now);
  summary->work = ledger_.counts();
}

}  // namespace rubato
