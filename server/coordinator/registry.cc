#include "server/coordinator/registry.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/base/lease.h"
#include "common/base/status.h"
#include "common/job/is_script.h"
#include "common/job/job.h"
#include "common/space/flat_space.h"
#include "server/coordinator/layout_difference.h"
#include "server/coordinator/peer_checks.h"
#include "server/optimizers/parameter_groups.h"

namespace rubato {
namespace {

// Of so many kinds is warned: who registers may say anything.
constexpr size_t kMaxNumerics = 8;

}  // namespace

Registry::Registry(const proto::Job& job, std::string job_digest, std::string version)
    : job_(job), job_digest_(std::move(job_digest)), version_(std::move(version)) {}

absl::Status Registry::CheckJob(const proto::Registration& registration) const {
  RUBATO_RETURN_IF_ERROR(CheckRegistration(registration));
  if (registration.version() != version_) {
    return absl::FailedPreconditionError(
        absl::StrFormat("this process is version %s; the coordinator is version %s",
                        registration.version(), version_));
  }
  if (registration.job_digest() != job_digest_) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "this process has another job than the coordinator: the digest of its job is %s, the "
        "coordinator's %s; compare what it was started with and the run's job.yaml",
        registration.job_digest().substr(0, 12), job_digest_.substr(0, 12)));
  }
  return absl::OkStatus();
}

absl::Status Registry::Check(const proto::Registration& registration, int max_workers,
                             absl::Time now) {
  RUBATO_RETURN_IF_ERROR(CheckJob(registration));
  if (!registration.has_worker()) return CheckShard(registration.shard(), now);
  if (workers() >= max_workers) {
    return absl::UnavailableError(
        absl::StrFormat("no more workers are wanted: cluster.workers is at most %d", max_workers));
  }
  const proto::WorkerRegistration& worker = registration.worker();
  RUBATO_RETURN_IF_ERROR(CheckWorker(worker));
  if (TrainableCount(worker.layout()) <= 0) {
    return absl::FailedPreconditionError("the worker has no parameters");
  }
  RUBATO_RETURN_IF_ERROR(CheckScript(worker));
  if (workers() == 0 && !keeps_model_) return absl::OkStatus();
  const std::string others =
      ranks_.empty() ? "the workers before it" : Describe(peers_.at(ranks_.rbegin()->second));
  if (worker.data_digest() != model_.data_digest()) {
    return absl::FailedPreconditionError(
        absl::StrFormat("this worker's data differ from those of %s: digests %s and %s%s", others,
                        worker.data_digest().substr(0, 12), model_.data_digest().substr(0, 12),
                        IsScript(job_) ? "; does the script draw or split data without a seed? "
                                         "Call torch.manual_seed first"
                                       : ""));
  }
  const std::string difference = LayoutDifference(worker.layout(), model_.layout());
  if (!difference.empty()) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "this worker's parameters differ from those of %s: %s", others, difference));
  }
  return absl::OkStatus();
}

absl::Status Registry::CheckScript(const proto::WorkerRegistration& worker) const {
  const proto::Layout& layout = worker.layout();
  const bool is_script = IsScript(job_);
  if (layout.has_optimizer() != is_script || (layout.gives_values() && !is_script)) {
    return absl::FailedPreconditionError(
        is_script ? "the job's model is a script's, and this worker brings no optimizer"
                  : "this worker brings an optimizer, which the job has");
  }
  if (!is_script) return absl::OkStatus();
  const proto::Job job = WithOptimizerOf(layout, job_);
  RUBATO_RETURN_IF_ERROR(Optimizer::Create(ServerOptimizer(job)).status());
  return ParameterGroups::Create(ServerOptimizer(job), layout).status();
}

absl::Status Registry::CheckShard(int shard, absl::Time now) {
  const int servers = job_.cluster().servers();
  if (shard < 0 || shard >= servers) {
    return absl::FailedPreconditionError(
        absl::StrFormat("there is no shard %d: cluster.servers is %d, so shards are 0 to %d", shard,
                        servers, servers - 1));
  }
  PeerId id;
  Peer* const holder = FindShard(shard, &id);
  if (holder == nullptr) return absl::OkStatus();
  const std::string why =
      absl::StrFormat("shard %d is already served by %s", shard, holder->registration.process());
  const absl::Duration lease = absl::Seconds(job_.cluster().lease());
  if (now - holder->contested_at > lease) holder->contested_since = now;
  holder->contested_at = now;
  // Beats of one that has died since may have lain in the sockets.
  const bool is_alive =
      id == kOwnShard || holder->last_beat - holder->contested_since >= HeartbeatInterval(lease);
  if (is_alive || job_.cluster().max_restarts() == 0) return absl::FailedPreconditionError(why);
  return absl::UnavailableError(why);
}

Peer* Registry::Add(PeerId id, const proto::Registration& registration, absl::Time now,
                    coordinator::Outcomes* out) {
  Peer peer;
  peer.registration = registration;
  peer.last_heard = peer.last_progress = now;
  if (!registration.has_worker()) {
    const int number = registration.shard();
    peer.shard = {number, ++shard_incarnations_[number]};
  } else {
    peer.is_worker = true;
    if (workers() == 0 && !keeps_model_) model_ = registration.worker();
    peer.registration.mutable_worker()->clear_data();  // it is large, and the model has the job's
    AddNumerics(registration, out);
    int rank = registration.worker().rank();
    if (rank < 0 || rank >= job_.cluster().workers().max() || ranks_.count(rank) != 0) {
      for (rank = 0; ranks_.count(rank) != 0;) ++rank;
    }
    peer.worker = {rank, ++worker_incarnations_[rank]};
    ranks_[rank] = id;
  }
  return &(peers_[id] = std::move(peer));
}

void Registry::AddNumerics(const proto::Registration& registration, coordinator::Outcomes* out) {
  const std::string& numerics = registration.worker().numerics();
  const auto is_known = std::any_of(numerics_.begin(), numerics_.end(),
                                    [&](const auto& kind) { return kind.numerics == numerics; });
  if (is_known || numerics_.size() >= kMaxNumerics) return;
  if (!numerics_.empty()) {
    out->push_back(coordinator::Warn{absl::StrFormat(
        "%s computes with %s, %s with %s: results may differ in the last bits "
        "with who computes what",
        registration.process(), numerics, numerics_[0].process, numerics_[0].numerics)});
  }
  numerics_.push_back({numerics, registration.process()});
}

void Registry::Remove(PeerId id) {
  const Peer* const peer = Find(id);
  if (peer == nullptr) return;
  if (peer->is_worker) ranks_.erase(peer->worker.rank);
  peers_.erase(id);
  gone_.insert(id);
}

Peer* Registry::Find(PeerId id) {
  const auto it = peers_.find(id);
  return it == peers_.end() ? nullptr : &it->second;
}

Peer* Registry::FindWorker(const WorkerId& worker, PeerId* id) {
  const auto found = ranks_.find(worker.rank);
  if (found == ranks_.end()) return nullptr;
  Peer* const peer = Find(found->second);
  if (!(peer->worker == worker)) return nullptr;
  if (id != nullptr) *id = found->second;
  return peer;
}

Peer* Registry::FindAlive(const proto::HeartbeatRequest& request) {
  if (request.job_digest() != job_digest_) return nullptr;
  Peer* const peer = request.has_shard() ? FindShard(request.shard())
                                         : FindWorker({request.rank(), request.incarnation()});
  const bool is_it = peer != nullptr && peer->registration.attempt() == request.attempt();
  return is_it ? peer : nullptr;
}

Peer* Registry::FindShard(int number, PeerId* id) {
  const auto found = std::find_if(peers_.begin(), peers_.end(), [number](const auto& entry) {
    return !entry.second.is_worker && entry.second.shard.number == number;
  });
  if (found == peers_.end()) return nullptr;
  if (id != nullptr) *id = found->first;
  return &found->second;
}

std::vector<Peer*> Registry::Workers() {
  std::vector<Peer*> workers;
  for (const auto& [rank, id] : ranks_) workers.push_back(Find(id));
  return workers;
}

std::vector<WorkerId> Registry::WorkerIds() const {
  std::vector<WorkerId> workers;
  for (const auto& [rank, id] : ranks_) workers.push_back(peers_.at(id).worker);
  return workers;
}

std::vector<ShardId> Registry::Shards() const {
  std::vector<ShardId> shards;
  for (const auto& [id, peer] : peers_) {
    if (!peer.is_worker) shards.push_back(peer.shard);
  }
  std::sort(shards.begin(), shards.end());
  return shards;
}

bool Registry::MembersAreIdle() const {
  return std::all_of(peers_.begin(), peers_.end(), [](const auto& entry) {
    return !entry.second.is_member || entry.second.idle;
  });
}

void Registry::AddShards(proto::View* view) const {
  for (const auto& [id, peer] : peers_) {
    if (peer.is_worker) continue;
    proto::Shard* const shard = view->mutable_shards(peer.shard.number);
    shard->set_address(peer.registration.address());
    shard->set_incarnation(peer.shard.incarnation);
  }
}

void Registry::SendToShards(const proto::CoordinatorMessage& message,
                            coordinator::Outcomes* out) const {
  for (const auto& [id, peer] : peers_) {
    if (!peer.is_worker) out->push_back(coordinator::Send{id, message});
  }
}

void Registry::SendToMembers(const proto::CoordinatorMessage& message,
                             coordinator::Outcomes* out) const {
  for (const auto& [id, peer] : peers_) {
    if (peer.is_member) out->push_back(coordinator::Send{id, message});
  }
}

void Registry::SendViewToShards(const proto::View& view, coordinator::Outcomes* out) const {
  proto::CoordinatorMessage message;
  *message.mutable_view() = view;
  for (proto::Member& member : *message.mutable_view()->mutable_members()) {
    const auto id = ranks_.find(member.rank());
    if (id == ranks_.end()) continue;
    const Peer& peer = peers_.at(id->second);
    if (peer.worker.incarnation == member.incarnation()) {
      member.set_attempt(peer.registration.attempt());
    }
  }
  SendToShards(message, out);
}

std::vector<int> Registry::MissingShards() const {
  std::vector<int> missing;
  const std::vector<ShardId> here = Shards();
  for (int number = 0; number < job_.cluster().servers(); ++number) {
    const bool is_here = std::any_of(here.begin(), here.end(), [number](const ShardId& shard) {
      return shard.number == number;
    });
    if (!is_here) missing.push_back(number);
  }
  return missing;
}

std::string Registry::Missing(int wanted) const {
  std::vector<std::string> missing;
  for (const int number : MissingShards()) missing.push_back(absl::StrCat("shard ", number));
  if (workers() < wanted) {
    missing.push_back(absl::StrFormat("%d of %d workers", wanted - workers(), wanted));
  }
  return absl::StrJoin(missing, " and ");
}

std::string Describe(const Peer& peer) {
  return absl::StrFormat("%s %d (%s)", peer.is_worker ? "worker" : "shard",
                         peer.is_worker ? peer.worker.rank : peer.shard.number,
                         peer.registration.process());
}

}  // namespace rubato
