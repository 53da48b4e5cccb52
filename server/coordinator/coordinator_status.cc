// What the coordinator says of itself: `rubato status`.
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/lease.h"
#include "server/coordinator/coordinator.h"

namespace rubato {
namespace {

const char* StateName(const Starting& starting, const ViewChange& change, const Ending& ending) {
  switch (starting.state()) {
    case Starting::State::kGathering:
      return "waiting for the others";
    case Starting::State::kOpening:
      return "beginning";
    case Starting::State::kRestoring:
      return "restoring";
    case Starting::State::kDone:
      break;
  }
  switch (ending.state()) {
    case Ending::State::kTraining:
      return change.state() == ViewChange::State::kPaused ? "paused" : "training";
    case Ending::State::kSaving:
      return "training";
    case Ending::State::kTesting:
      return "testing";
    case Ending::State::kReporting:
    case Ending::State::kCollecting:
      break;
  }
  return "ending";
}

constexpr double kLongForAnEngine = 1;  // seconds: changes of a block take milliseconds

void AddMembers(const Registry& registry, absl::Time now, proto::JobStatus* status) {
  for (const auto& [id, peer] : registry.peers()) {
    if (!peer.is_worker) {
      proto::JobStatus::Server* server = status->add_servers();
      server->set_shard(peer.shard.number);
      server->set_process(peer.registration.process());
      if (id != kOwnShard) {
        server->set_seconds_silent(absl::ToDoubleSeconds(now - peer.last_heard));
      }
      continue;
    }
    proto::JobStatus::Member* member = status->add_members();
    member->set_rank(peer.worker.rank);
    member->set_incarnation(peer.worker.incarnation);
    member->set_process(peer.registration.process());
    member->set_clock(peer.clock);
    member->set_staleness(peer.staleness);
    member->set_seconds_silent(absl::ToDoubleSeconds(now - peer.last_heard));
    member->set_seconds_idle(absl::ToDoubleSeconds(now - peer.last_progress));
  }
}

void AddWork(const Work& work, absl::Time now, proto::JobStatus* status) {
  const Metrics& metrics = work.metrics();
  const Lineage& lineage = work.lineage();
  status->set_lineage(lineage.number());
  *status->mutable_mode() = lineage.mode();
  if (lineage.asked().has_value()) *status->mutable_next_mode() = *lineage.asked();
  status->set_step(metrics.steps());
  status->set_samples(metrics.samples());
  status->set_samples_per_second(work.samples_per_second(now));
  const WorkCounts& counts = work.ledger().counts();
  proto::JobStatus::Ledger* ledger = status->mutable_ledger();
  ledger->set_given(counts.given);
  ledger->set_applied(counts.applied);
  ledger->set_left_out(counts.left_out);
  ledger->set_partial(counts.partial);
  ledger->set_lost(counts.lost);
  ledger->set_under_way(work.ledger().under_way());
}

// A script need not tell its loss, and where no target counts there is none.
void AddTest(const MetricsLine& line, proto::JobStatus::Test* test) {
  test->set_step(line.step);
  if (!std::isnan(line.loss)) test->set_loss(line.loss);
  if (line.accuracy.has_value()) test->set_accuracy(*line.accuracy);
  for (const auto& [name, value] : line.others) {
    proto::EvaluationResult::Figure* other = test->add_others();
    other->set_name(name);
    other->set_value(value);
  }
}

}  // namespace

proto::JobStatus Coordinator::Status(absl::Time now) const {
  proto::JobStatus status;
  status.set_state(is_over_ ? "over" : StateName(starting_, change_, ending_));
  status.set_shards(registry_.shards());
  status.set_term(before_.term());
  status.set_last_checkpoint(checkpoints_.last());
  status.set_servers_lost(before_.servers_lost());
  status.set_samples_rolled_back(summary_.samples_rolled_back);
  int64_t refused = refused_;
  for (const auto& [id, peer] : registry_.peers()) refused += peer.refused;
  status.set_refused(refused);
  status.set_stopped(summary_.stopped);
  AddMembers(registry_, now, &status);
  if (starting_.state() == Starting::State::kGathering && !is_over_) {
    status.set_stopped(lasting_.stop());
    status.add_waits(absl::StrCat(before_.term() > 1 ? "going on" : "the start", " waits for ",
                                  AwaitedAtStart()));
    for (const int shard : registry_.MissingShards()) status.add_missing_shards(shard);
    if (before_.has_lost_shard()) status.set_lost_shard(before_.lost_shard());
  }
  if (!has_begun()) return status;
  status.set_view(view_.number());
  status.set_epoch(static_cast<double>(work_->metrics().samples()) / view_.samples_per_epoch());
  AddWork(*work_, now, &status);
  if (const auto& test = evaluations_->last()) AddTest(*test, status.mutable_last_test());
  AddWaits(now, &status);
  return status;
}

std::string Coordinator::AwaitedAtStart() const {
  const std::string missing = registry_.Missing(starting_.wanted());
  return missing.empty() ? "the values that the job begins with, of a worker" : missing;
}

void Coordinator::AddWaits(absl::Time now, proto::JobStatus* status) const {
  const auto add = [status](std::string text) { status->add_waits(std::move(text)); };
  const auto idle = [now](const Peer& peer) {
    return absl::ToDoubleSeconds(now - peer.last_progress);
  };
  // First, for those who wait for it are what others seem to wait for.
  const absl::Duration lease = absl::Seconds(job_.cluster().lease());
  for (const auto& [id, peer] : registry_.peers()) {
    const absl::Duration silence = now - peer.last_heard;
    if (peer.is_worker || id == kOwnShard) continue;
    if (silence <= HeartbeatInterval(lease) + LeaseMargin(lease)) continue;
    add(absl::StrFormat("shard %d was not heard of for %.1f s", peer.shard.number,
                        absl::ToDoubleSeconds(silence)));
  }
  for (const PeerId id : ending_.awaited()) {
    const auto peer = registry_.peers().find(id);
    if (peer == registry_.peers().end()) continue;
    add(absl::StrFormat("%s waits for worker %d, for %.1f s", ending_.test(),
                        peer->second.worker.rank, idle(peer->second)));
  }
  for (const auto& [id, peer] : registry_.peers()) {
    if (peer.is_worker || peer.busy_seconds <= kLongForAnEngine) continue;
    add(absl::StrFormat("the engine of shard %d keeps others waiting, for %.1f s",
                        peer.shard.number, peer.busy_seconds));
  }
  if (!is_training()) return;
  if (change_.state() == ViewChange::State::kPaused) {
    const int missing = job_.cluster().workers().min() - registry_.workers();
    add(absl::StrFormat("training waits for %d more worker%s (cluster.workers.min)", missing,
                        missing == 1 ? "" : "s"));
    return;
  }
  if (change_.state() == ViewChange::State::kClosing) {
    for (const ShardId& shard : change_.call().missing()) {
      add(absl::StrFormat("view %d waits for shard %d to close view %d", view_.number() + 1,
                          shard.number, view_.number()));
    }
  }
  for (const WorkerId& worker : work_->WaitedFor(registry_)) {
    for (const auto& [id, peer] : registry_.peers()) {
      if (peer.is_worker && peer.worker == worker) add(work_->WaitText(peer, idle(peer)));
    }
  }
}

}  // namespace rubato
