#include "tools/simulator/liveness.h"

#include <algorithm>
#include <cstdio>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/space/modes.h"

namespace rubato {
namespace {

// Asking for the status costs more than an event.
constexpr int64_t kEventsBetweenLooks = 256;

// A worker whose stream is broken goes within so long, if the coordinator does not end the job.
constexpr SimTime kLongestAlone = 3 * kSecond;

bool IsMember(const proto::View& view, const WorkerId& worker) {
  return std::any_of(view.members().begin(), view.members().end(), [&](const auto& member) {
    return member.rank() == worker.rank && member.incarnation() == worker.incarnation;
  });
}

bool HasRank(const proto::View& view, int rank) {
  return std::any_of(view.members().begin(), view.members().end(),
                     [rank](const auto& member) { return member.rank() == rank; });
}

// "shard 1 was not heard of for 3.0 s", whoever else is waited for.
bool IsOfSilence(const std::string& wait) { return absl::StrContains(wait, " was not heard of "); }

// Whether the member of that rank has been, and does not wait for others.
bool IsAtOneThingFor(SimTime time, int rank, const Simulation& simulation) {
  const proto::View& view = simulation.coordinator().view();
  return std::any_of(simulation.workers().begin(), simulation.workers().end(),
                     [&](const auto& worker) {
                       // Another may have had its name in an earlier term.
                       return worker->id().rank == rank && worker->term() == view.term() &&
                              simulation.network().alive(worker->self()) &&
                              IsMember(view, worker->id()) && worker->busy() > time;
                     });
}

}  // namespace

void Liveness::OnFault(const Fault& fault, std::optional<WorkerId> worker,
                       const Simulation& simulation) {
  const SimTime now = simulation.queue().now();
  // One that hangs holds up no view: it is waited for until the stall timeout, and no longer.
  const SimTime end = fault.kind == Fault::Kind::kHang ? now : now + fault.duration;
  for (Lost& lost : lost_) lost.deadline = std::max(lost.deadline, DeadlineFrom(end));
  const bool dies = fault.kind == Fault::Kind::kCrash || fault.kind == Fault::Kind::kRestart;
  const bool stands_still = fault.kind == Fault::Kind::kFreeze || fault.kind == Fault::Kind::kCut;
  if (worker.has_value() && (dies || stands_still) &&
      IsMember(simulation.coordinator().view(), *worker)) {
    lost_.push_back(
        {*worker, now, dies ? kNever : end, DeadlineFrom(std::max(now, disturbed_until_))});
  }
  disturbed_until_ = std::max(disturbed_until_, end);
}

void Liveness::OnText(const std::string& text) {
  int rank = -1, index = -1;
  const bool is_stall = absl::StrContains(text, "(cluster.stall_timeout)");
  if ((!absl::StrContains(text, " was not heard of ") && !is_stall) ||
      std::sscanf(text.c_str(), "worker %d (simulated worker %d)", &rank, &index) != 2) {
    return;
  }
  // What a server is not to hear costs nobody a stall timeout.
  if ((is_stall || !servers_struck_) && struck_.count(index) == 0) {
    Violated(absl::StrCat("blame: nothing has happened to the one of whom is said: ", text));
  }
}

void Liveness::OnEvent(const Simulation& simulation) {
  if (!simulation.is_in_term()) return;
  if (!lost_.empty()) CheckLost(simulation);
  if (simulation.queue().happened() % kEventsBetweenLooks != 0) return;
  CheckWaits(simulation);
  CheckWorkers(simulation);
}

void Liveness::CheckWorkers(const Simulation& simulation) {
  const SimTime now = simulation.queue().now();
  const auto seconds = [](SimTime time) { return static_cast<double>(time) * 1e-9; };
  for (const auto& worker : simulation.workers()) {
    const SimTime since = worker->left_alone_since();
    if (since != kNever && now - since > kLongestAlone) {
      Violated(absl::StrFormat(
          "broken stream: worker %d does nothing about a stream that broke %.3f s ago",
          worker->index(), seconds(now - since)));
    }
    if (worker->gave_up_after() < 2 * lease_ + kSecond) {
      Violated(absl::StrFormat(
          "patience: worker %d had parameters %.3f s before it gave up: the lease is %.3f s",
          worker->index(), seconds(worker->gave_up_after()), seconds(lease_)));
    }
  }
}

void Liveness::CheckLost(const Simulation& simulation) {
  const SimTime now = simulation.queue().now();
  const proto::View& view = simulation.coordinator().view();
  lost_.erase(std::remove_if(lost_.begin(), lost_.end(),
                             [&](const Lost& lost) {
                               return lost.until <= now || !IsMember(view, lost.worker);
                             }),
              lost_.end());
  const bool somebody_is_left = static_cast<int>(lost_.size()) < view.members_size();
  for (Lost& lost : lost_) {
    if (lost.deadline >= now) continue;
    // When the training is over, nobody waits for it to compute.
    const proto::JobStatus status = simulation.coordinator().Status(ToTime(now));
    const bool is_waited_for =
        !std::all_of(status.waits().begin(), status.waits().end(), IsOfSilence);
    if (somebody_is_left && status.state() == "training" && is_waited_for) {
      Violated(
          absl::StrFormat("lease: worker %d was lost %.3f s ago, and view %d still counts on it: "
                          "the lease is %.3f s",
                          lost.worker.rank, static_cast<double>(now - lost.since) * 1e-9,
                          view.number(), static_cast<double>(lease_) * 1e-9));
    }
    lost.deadline = DeadlineFrom(now);
  }
}

void Liveness::CheckWaits(const Simulation& simulation) {
  const Coordinator& coordinator = simulation.coordinator();
  const SimTime now = simulation.queue().now();
  const proto::JobStatus status = coordinator.Status(ToTime(now));
  if (status.state() != "training" || !status.has_view()) return;
  const auto tell = [&](const char* what) {
    Violated(absl::StrFormat("%s in view %d, %s, at step %d: %s", what, status.view(),
                             ModeName(status.mode()), status.step(),
                             absl::StrJoin(status.waits(), "; ")));
  };
  for (const std::string& wait : status.waits()) {
    if (IsOfSilence(wait)) continue;
    int rank = -1;
    long long number = 0;
    double seconds = 0;
    if (std::sscanf(wait.c_str(), "clock %lld waits for worker %d, for %lf s", &number, &rank,
                    &seconds) != 3 &&
        std::sscanf(wait.c_str(), "worker %d computes clock %lld, for %lf s", &rank, &number,
                    &seconds) != 3 &&
        std::sscanf(wait.c_str(), "worker %d is to finish what it has begun, for %lf s", &rank,
                    &seconds) != 2) {
      return;  // a view is being closed: the next one names who is waited for
    }
    if (!HasRank(coordinator.view(), rank)) tell("waits: somebody is waited for who is no member");
    const SimTime soon = slack_ + kSecond;
    if (seconds > static_cast<double>(soon) * 1e-9 &&
        IsAtOneThingFor(stall_timeout_ + soon, rank, simulation) &&
        now > DeadlineFrom(disturbed_until_)) {
      tell("stall timeout: somebody is waited for beyond the stall timeout");
    }
  }
  if (!status.waits().empty()) return;
  // On arrival: what is given out is under way with somebody.
  if (status.ledger().under_way() > 0) tell("waits: work is under way, and nobody is waited for");
  if (simulation.queue().work() == 0)
    tell("waits: nothing is on its way, and nobody is waited for");
}

}  // namespace rubato
