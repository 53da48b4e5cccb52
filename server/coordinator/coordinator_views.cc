// The coordinator's changes of view: who leaves, who joins, which mode holds.
#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "server/coordinator/coordinator.h"

namespace rubato {

using coordinator::Answer;
using coordinator::Log;
using coordinator::Outcomes;
using coordinator::SendStop;
using coordinator::Warn;

namespace {

// A coordinator that was itself frozen for longer than this has heard nobody meanwhile: everybody's
// lease is extended by as much. The shell ticks ten times a second.
constexpr absl::Duration kFrozen = absl::Milliseconds(500);

}  // namespace

void Coordinator::Lose(PeerId id, const std::string& why, absl::Time now, Outcomes* out) {
  const Peer* const peer = registry_.Find(id);
  if (peer == nullptr || !peer->is_worker) return;
  const std::string reason = absl::StrCat(Describe(*peer), " ", why);
  out->push_back(Warn{reason});
  lost_.push_back(peer->worker);
  const bool was_evaluator = phase_ == Phase::kEvaluating && id == evaluator_;
  if (phase_ == Phase::kRunning) ++(peer->leaves ? summary_.workers_left : summary_.workers_lost);
  if (phase_ == Phase::kRunning && peer->is_member && summary_.residuals_lost.has_value()) {
    ++*summary_.residuals_lost;
  }
  registry_.Remove(id);
  ChangeView(reason, now, out);
  if (was_evaluator) AwaitEvaluations(out);
}

void Coordinator::Evict(PeerId id, const std::string& why, absl::Time now, Outcomes* out) {
  proto::Stop stop;
  stop.set_exit_code(1);
  stop.set_evicted(true);
  stop.set_reason(absl::StrCat("taken for dead: it ", why));
  out->push_back(SendStop(id, std::move(stop)));
  Lose(id, why, now, out);
}

void Coordinator::On(const coordinator::Heartbeat& event, absl::Time now, Outcomes*) {
  if (Peer* const peer = registry_.FindWorker(event.worker)) peer->last_heard = now;
}

void Coordinator::CheckLeases(absl::Time now, Outcomes* out) {
  const absl::Duration frozen = now - last_tick_;
  if (frozen > kFrozen) {
    for (auto& [id, peer] : registry_.peers()) {
      peer.last_heard += frozen;
      peer.last_progress += frozen;
    }
    evaluating_since_ += frozen;
    return;
  }
  if (phase_ == Phase::kEvaluating) {
    CheckEvaluator(now, out);
    return;
  }
  if (phase_ != Phase::kRunning || training_is_over_) return;
  std::vector<PeerId> silent, stalled;
  for (const auto& [id, peer] : registry_.peers()) {
    if (!peer.is_worker || !peer.is_member) continue;
    if (now - peer.last_heard > lease_) {
      silent.push_back(id);
    } else if (now - peer.last_progress > absl::Seconds(job_.cluster().stall_timeout())) {
      stalled.push_back(id);
    }
  }
  // While the shards stand still nobody gets what it needs to go on; the next view counts anew.
  if (view_state_ != ViewState::kOpen) stalled.clear();
  if (!stalled.empty()) {  // of those who compute nothing, some may have nothing to compute
    const std::vector<WorkerId> waited_for = WaitedFor();
    const auto is_free = [&](PeerId id) {
      return std::count(waited_for.begin(), waited_for.end(), registry_.Find(id)->worker) == 0;
    };
    stalled.erase(std::remove_if(stalled.begin(), stalled.end(), is_free), stalled.end());
  }
  for (const PeerId id : silent) {
    Evict(id,
          absl::StrFormat("was not heard of for %s (cluster.lease) at step %d",
                          absl::FormatDuration(lease_), metrics_->steps()),
          now, out);
  }
  for (const PeerId id : stalled) {
    Evict(
        id,
        absl::StrFormat(
            "is alive but has computed nothing for %s (cluster.stall_timeout) at step %d",
            absl::FormatDuration(absl::Seconds(job_.cluster().stall_timeout())), metrics_->steps()),
        now, out);
  }
}

void Coordinator::CheckEvaluator(absl::Time now, Outcomes* out) {
  const Peer* const evaluator = registry_.Find(evaluator_);
  const absl::Duration stall_timeout = absl::Seconds(job_.cluster().stall_timeout());
  if (evaluator == nullptr) return;
  const absl::string_view test = is_testing_ ? "the final test" : "a test of earlier parameters";
  if (now - evaluator->last_heard > lease_) {
    Evict(evaluator_,
          absl::StrFormat("was not heard of for %s (cluster.lease) during %s",
                          absl::FormatDuration(lease_), test),
          now, out);
  } else if (now - evaluating_since_ > stall_timeout) {
    Evict(evaluator_,
          absl::StrFormat("is alive but has not done %s in %s (cluster.stall_timeout)", test,
                          absl::FormatDuration(stall_timeout)),
          now, out);
  }
}

std::vector<WorkerId> Coordinator::WaitedFor() const {
  std::vector<WorkerId> workers;
  if (phase_ != Phase::kRunning || !metrics_.has_value()) return workers;
  // Who has done all that it was given is to say so, or to ask for more.
  const auto is_to_answer = [](const Peer& peer) {
    return peer.is_worker && peer.is_member && !peer.idle;
  };
  if (sync() && metrics_->units() >= until_unit_) {
    for (const auto& [id, peer] : registry_.peers()) {
      if (is_to_answer(peer)) workers.push_back(peer.worker);
    }
    return workers;
  }
  if (sync()) {
    for (const int64_t leaf : metrics_->MissingLeaves()) {
      const WorkerId owner = assignments_->Owner(metrics_->units(), leaf);
      if (std::count(workers.begin(), workers.end(), owner) == 0) workers.push_back(owner);
    }
    return workers;
  }
  // With a bound, only the slowest hold up others.
  int64_t slowest = std::numeric_limits<int64_t>::max();
  for (const auto& [id, peer] : registry_.peers()) {
    if (is_to_answer(peer)) slowest = std::min(slowest, peer.clock);
  }
  for (const auto& [id, peer] : registry_.peers()) {
    if (!is_to_answer(peer)) continue;
    if (mode_.mode != proto::View::MODE_BOUNDED || peer.clock == slowest) {
      workers.push_back(peer.worker);
    }
  }
  return workers;
}

void Coordinator::On(const coordinator::SwitchRequested& event, absl::Time now, Outcomes* out) {
  const Mode& mode = event.mode;
  if (phase_ != Phase::kRunning || stopping_ || training_is_over_) {
    out->push_back(Answer{absl::UnavailableError("the job is not training")});
    return;
  }
  if (mode == mode_ && (!asked_.has_value() || asked_holds_) && !new_lineage_) {
    out->push_back(Answer{absl::StrCat("the mode is ", ModeName(mode), " already")});
    return;
  }
  asked_ = mode;
  asked_holds_ = false;
  out->push_back(Log{absl::StrCat("asked to switch to ", ModeName(mode))});
  out->push_back(Answer{
      mode == mode_ ? absl::StrCat("stays in ", ModeName(mode), " instead of switching")
                    : absl::StrFormat("switching from %s to %s %s", ModeName(mode_), ModeName(mode),
                                      sync() ? "after the step at hand"
                                             : "when the contributions under way are applied")});
  if (sync()) {
    cut_ = true;
    ChangeView(absl::StrCat("the switch to ", ModeName(mode)), now, out);
  } else {
    draining_ = true;
    CheckDrained(now, out);
  }
}

void Coordinator::ChangeView(const std::string& reason, absl::Time now, Outcomes* out) {
  if (phase_ != Phase::kRunning || training_is_over_) return;
  if (reason_.size() < 1000) absl::StrAppend(&reason_, reason_.empty() ? "" : "; ", reason);
  if (view_state_ == ViewState::kPaused) {
    TryOpen(now, out);
    return;
  }
  if (view_state_ == ViewState::kClosing) return;
  view_state_ = ViewState::kClosing;
  closed_.clear();
  proto::CoordinatorMessage message;
  message.mutable_close()->set_view(view_.number());
  SendToShards(message, out);
}

void Coordinator::OnShardClosed(const Peer& peer, const proto::ShardClosed& closed, absl::Time now,
                                Outcomes* out) {
  if (view_state_ != ViewState::kClosing || closed.view() != view_.number()) return;
  closed_[peer.worker.rank] = closed;
  if (static_cast<int>(closed_.size()) < job_.cluster().servers()) return;
  TryOpen(now, out);
}

std::pair<int64_t, int64_t> Coordinator::LowestAndHighest() const {
  int64_t lowest = std::numeric_limits<int64_t>::max(), highest = 0;
  for (const auto& [shard, closed] : closed_) {
    if (!closed.has_lowest_version()) continue;  // it has no blocks
    lowest = std::min(lowest, closed.lowest_version());
    highest = std::max(highest, closed.highest_version());
  }
  return {lowest, highest};
}

int64_t Coordinator::ClosedClock(int rank) const {
  int64_t least = std::numeric_limits<int64_t>::max();
  for (const auto& [shard, closed] : closed_) {
    for (const proto::ShardClosed::Clock& clock : closed.clocks()) {
      if (clock.rank() == rank) least = std::min(least, clock.applied());
    }
  }
  return least == std::numeric_limits<int64_t>::max() ? 0 : least;
}

void Coordinator::TryOpen(absl::Time now, Outcomes* out) {
  const int members = registry_.workers();
  const int least = job_.cluster().workers().min();
  if (members >= least) {
    Open(now, out);
    return;
  }
  if (view_state_ != ViewState::kPaused) {
    out->push_back(Warn{
        absl::StrFormat("paused at step %d: %d of at least %d workers (cluster.workers.min) are "
                        "here; goes on when others have joined",
                        metrics_->steps(), members, least)});
  }
  view_state_ = ViewState::kPaused;
  if (stopping_) {
    // Nobody is there to finish what is open.
    EndTraining(now, out);
  }
}

void Coordinator::Open(absl::Time now, Outcomes* out) {
  const auto [lowest, highest] = LowestAndHighest();
  if (!sync()) {
    std::vector<UnitSet> whole;
    std::set<int64_t> partial;
    for (const auto& [shard, closed] : closed_) {
      if (!closed.has_lowest_version()) continue;
      whole.emplace_back(closed.units_below(), closed.units_whole());
      partial.insert(closed.units_partial().begin(), closed.units_partial().end());
    }
    for (const WorkerId& worker : lost_) work_.OnLost(worker, whole, partial);
  }
  lost_.clear();
  if (view_state_ == ViewState::kPaused) {
    out->push_back(Log{absl::StrFormat("goes on at step %d with %d workers", metrics_->steps(),
                                       registry_.workers())});
  }
  view_state_ = ViewState::kOpen;
  int64_t from_step = highest + 1;
  const bool is_new_lineage = new_lineage_;
  if (is_new_lineage) {
    // A contribution that some blocks hold may be left out when it is computed once more.
    if (lowest != highest && job_.train().on_non_finite() != proto::Train::ON_NON_FINITE_SKIP) {
      On(coordinator::Failed{absl::InternalError(absl::StrFormat(
             "blocks are at versions %d to %d where all should be at one", lowest, highest))},
         now, out);
      return;
    }
    const int64_t position = Position();
    const Mode before = mode_;
    const Mode mode = asked_.value_or(StageAt(position).mode);
    from_step = highest;
    snapshots_.Forget();
    asked_evaluations_.clear();
    last_evaluated_ = -1;  // units may be counted anew
    BeginLineage(mode, highest, position);
    asked_holds_ = asked_.has_value();
    ++summary_.switches;
    out->push_back(
        Log{absl::StrFormat("from step %d, epoch %.2f on: %s (was %s)", metrics_->steps(),
                            static_cast<double>(position) / view_.samples_per_epoch(),
                            ModeName(mode), ModeName(before))});
    metrics_->Begin(sync(), *schedule_, highest);
    if (checkpoint_every_.has_value()) {
      next_checkpoint_unit_ = checkpoint_every_->Next(*schedule_, mode_, highest);
    }
  } else if (cut_) {
    until_unit_ = std::min(until_unit_, from_step);
    cut_ = false;
  }
  if (sync()) {
    std::vector<WorkerId> members;
    for (const Peer* worker : registry_.Workers()) members.push_back(worker->worker);
    assignments_->Change(lowest, from_step, members);
    if (checkpoint_wanted_ && !stopping_ && snapshots_.phase() <= Snapshots::Phase::kAnnounced) {
      // Every block can reach that step, and none goes beyond it before it hears of the snapshot.
      checkpoint_wanted_ = false;
      SendToShards(snapshots_.Announce(std::min(from_step, until_unit_), Snapshots::Phase::kTaking),
                   out);
    }
  }
  view_.set_number(view_.number() + 1);
  FillView(from_step);
  AddMembers(is_new_lineage);
  proto::CoordinatorMessage message;
  *message.mutable_view() = view_;
  SendToShards(message, out);
  SendView(now, out);
  if (sync() && snapshots_.phase() == Snapshots::Phase::kNone) {
    ScheduleSnapshot(from_step, out);
  }
}

// All workers that are here. On arrival those who come, and those who had nothing to do, begin at
// the clock of the slowest that is at work, so that nobody has to wait until they have caught up.
void Coordinator::AddMembers(bool is_new_lineage) {
  view_.clear_members();
  int64_t slowest = std::numeric_limits<int64_t>::max(), fastest = 0;
  for (const Peer* worker : registry_.Workers()) {
    if (!worker->is_member) continue;
    const int64_t clock = ClosedClock(worker->worker.rank);
    fastest = std::max(fastest, clock);
    if (!worker->idle) slowest = std::min(slowest, clock);
  }
  int64_t begin = slowest < std::numeric_limits<int64_t>::max() ? slowest : fastest;
  // One that has just nothing left to do, and has not said so yet, may be far behind already.
  if (mode_.mode == proto::View::MODE_BOUNDED) begin = std::max(begin, fastest - mode_.staleness);
  for (Peer* worker : registry_.Workers()) {
    proto::Member* member = view_.add_members();
    member->set_rank(worker->worker.rank);
    member->set_incarnation(worker->worker.incarnation);
    if (is_new_lineage) {
      member->set_start_clock(0);
    } else if (!worker->is_member) {
      member->set_start_clock(begin);
    } else if (worker->idle) {
      member->set_start_clock(std::max(begin, ClosedClock(worker->worker.rank)));
    }
    if (member->has_start_clock()) worker->clock = member->start_clock();
  }
}

}  // namespace rubato
