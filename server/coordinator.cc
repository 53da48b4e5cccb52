#include "server/coordinator.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/flat_space.h"
#include "common/learning_rate.h"
#include "server/parameter_groups.h"

namespace rubato {
namespace {

// Exit codes (docs/design.md): repeating cannot help / anything else.
constexpr int kExitUsage = 2;
constexpr int kExitFailure = 1;

void Send(PeerId peer, proto::CoordinatorMessage message, CoordinatorActions* actions) {
  CoordinatorAction action{CoordinatorAction::Kind::kSend};
  action.peer = peer;
  action.message = std::move(message);
  actions->push_back(std::move(action));
}

void SendStop(PeerId peer, int exit_code, const std::string& reason, bool refused,
              CoordinatorActions* actions) {
  proto::CoordinatorMessage message;
  message.mutable_stop()->set_refused(refused);
  message.mutable_stop()->set_exit_code(exit_code);
  message.mutable_stop()->set_reason(reason);
  Send(peer, std::move(message), actions);
}

void Say(CoordinatorAction::Kind kind, std::string text, CoordinatorActions* actions) {
  CoordinatorAction action{kind};
  action.text = std::move(text);
  actions->push_back(std::move(action));
}

void Report(const MetricsLine& line, CoordinatorActions* actions) {
  CoordinatorAction action{CoordinatorAction::Kind::kMetrics};
  action.metrics = line;
  actions->push_back(std::move(action));
}

// Micro-batches of one contribution on arrival: a worker's share of a step, fixed for the job.
int64_t LeavesOnArrival(const proto::Job& job) {
  return std::max<int64_t>(1, job.train().micro_batches() / job.cluster().workers().start());
}

}  // namespace

Coordinator::Coordinator(const proto::Job& job, std::string job_digest, std::string version,
                         absl::Time now)
    : job_(job),
      job_digest_(std::move(job_digest)),
      version_(std::move(version)),
      deadline_(now + absl::Seconds(job.cluster().start_timeout())) {}

void Coordinator::OnMessage(PeerId peer, const proto::PeerMessage& message, absl::Time now,
                            CoordinatorActions* actions) {
  if (phase_ == Phase::kEnded) return;
  if (message.has_registration()) {
    OnRegistration(peer, message.registration(), actions);
    return;
  }
  const auto it = peers_.find(peer);
  if (it == peers_.end()) {
    SendStop(peer, kExitFailure, "a call begins with a registration", /*refused=*/true, actions);
    return;
  }
  switch (message.kind_case()) {
    case proto::PeerMessage::kShardOpened:
      OnShardOpened(peer, now, actions);
      break;
    case proto::PeerMessage::kWorkRequest:
      OnWorkRequest(peer, actions);
      break;
    case proto::PeerMessage::kProgress:
      OnProgress(message.progress(), now, actions);
      break;
    case proto::PeerMessage::kEvaluation:
      OnEvaluation(message.evaluation(), now, actions);
      break;
    case proto::PeerMessage::kWorkerFinished:
      OnWorkerFinished(peer, now, actions);
      break;
    case proto::PeerMessage::kShardReport:
      OnShardReport(message.shard_report(), actions);
      break;
    case proto::PeerMessage::kFailure: {
      const proto::Failure& failure = message.failure();
      const std::string reason = absl::StrCat(Describe(it->second), " failed: ", failure.reason());
      End(failure.exit_code() == kExitUsage ? absl::FailedPreconditionError(reason)
                                            : absl::AbortedError(reason),
          failure.exit_code(), reason, actions);
      break;
    }
    default:
      break;  // of a later version
  }
}

void Coordinator::OnRegistration(PeerId peer, const proto::Registration& registration,
                                 CoordinatorActions* actions) {
  if (peers_.count(peer) != 0) return;
  if (const absl::Status status = CheckRegistration(registration); !status.ok()) {
    Say(CoordinatorAction::Kind::kWarn,
        absl::StrCat("refused ", registration.process(), ": ", status.message()), actions);
    SendStop(peer, status.code() == absl::StatusCode::kUnavailable ? kExitFailure : kExitUsage,
             std::string(status.message()), /*refused=*/true, actions);
    return;
  }
  if (registration.has_worker()) {
    AddWorker(peer, registration, actions);
  } else {
    Peer shard;
    shard.registration = registration;
    shard.rank = registration.shard();
    peers_[peer] = std::move(shard);
  }
  MaybeBegin(/*deadline_passed=*/false, actions);
  if (phase_ == Phase::kGathering) {
    Say(CoordinatorAction::Kind::kLog,
        absl::StrCat(Describe(peers_[peer]), " is here; waiting for ", Missing()), actions);
  }
}

absl::Status Coordinator::CheckRegistration(const proto::Registration& registration) const {
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
  if (!registration.has_worker()) {
    const int shard = registration.shard();
    const int servers = job_.cluster().servers();
    if (shard < 0 || shard >= servers) {
      return absl::FailedPreconditionError(
          absl::StrFormat("there is no shard %d: cluster.servers is %d, so shards are 0 to %d",
                          shard, servers, servers - 1));
    }
    for (const auto& [id, peer] : peers_) {
      if (!peer.is_worker && peer.rank == shard) {
        return absl::FailedPreconditionError(absl::StrFormat("shard %d is already served by %s",
                                                             shard, peer.registration.process()));
      }
    }
    return absl::OkStatus();
  }
  if (phase_ != Phase::kGathering || CountWorkers() >= job_.cluster().workers().start()) {
    return absl::UnavailableError(absl::StrFormat(
        "no more workers are wanted: cluster.workers is %d", job_.cluster().workers().start()));
  }
  const proto::WorkerRegistration& worker = registration.worker();
  if (worker.train_samples() <= 0 || ValueCount(worker.layout()) <= 0) {
    return absl::FailedPreconditionError("the worker has no data or no parameters");
  }
  for (const auto& [id, peer] : peers_) {
    if (!peer.is_worker) continue;
    const proto::WorkerRegistration& other = peer.registration.worker();
    if (worker.data_digest() != other.data_digest()) {
      return absl::FailedPreconditionError(absl::StrFormat(
          "this worker's data differ from those of %s: digests %s and %s", Describe(peer),
          worker.data_digest().substr(0, 12), other.data_digest().substr(0, 12)));
    }
    if (worker.layout().SerializeAsString() != layout_bytes_) {
      return absl::FailedPreconditionError(
          absl::StrFormat("this worker's parameters differ from those of %s", Describe(peer)));
    }
  }
  return absl::OkStatus();
}

void Coordinator::AddWorker(PeerId id, const proto::Registration& registration,
                            CoordinatorActions* actions) {
  std::set<int> taken;
  for (const auto& [other_id, other] : peers_) {
    if (!other.is_worker) continue;
    taken.insert(other.rank);
    const std::string& numerics = other.registration.worker().numerics();
    if (numerics != registration.worker().numerics()) {
      Say(CoordinatorAction::Kind::kWarn,
          absl::StrFormat("%s computes with %s, %s with %s: results may differ in the last bits "
                          "with who computes what",
                          registration.process(), registration.worker().numerics(), Describe(other),
                          numerics),
          actions);
    }
  }
  int rank = registration.worker().rank();
  if (rank < 0 || rank >= job_.cluster().workers().start() || taken.count(rank) != 0) {
    for (rank = 0; taken.count(rank) != 0;) ++rank;
  }
  if (taken.empty()) layout_bytes_ = registration.worker().layout().SerializeAsString();
  Peer worker;
  worker.registration = registration;
  worker.is_worker = true;
  worker.rank = rank;
  peers_[id] = std::move(worker);
}

void Coordinator::MaybeBegin(bool deadline_passed, CoordinatorActions* actions) {
  if (phase_ != Phase::kGathering) return;
  const proto::Workers& workers = job_.cluster().workers();
  const bool all_shards = CountShards() == job_.cluster().servers();
  if (all_shards && CountWorkers() == workers.start()) {
    Open(actions);
  } else if (deadline_passed && all_shards && CountWorkers() >= workers.min()) {
    Say(CoordinatorAction::Kind::kWarn,
        absl::StrFormat("begins with %d of %d workers: the others have not come within %s",
                        CountWorkers(), workers.start(),
                        absl::FormatDuration(absl::Seconds(job_.cluster().start_timeout()))),
        actions);
    Open(actions);
  } else if (deadline_passed) {
    const std::string reason =
        absl::StrFormat("waited %s at %s: %s did not come",
                        absl::FormatDuration(absl::Seconds(job_.cluster().start_timeout())),
                        job_.cluster().address(), Missing());
    End(absl::DeadlineExceededError(reason), kExitFailure, reason, actions);
  }
}

void Coordinator::Open(CoordinatorActions* actions) {
  // Ranks without gaps, in the order of the ranks given before.
  std::vector<Peer*> workers;
  view_.clear_shards();
  for (int shard = 0; shard < job_.cluster().servers(); ++shard) view_.add_shards();
  for (auto& [id, peer] : peers_) {
    if (peer.is_worker) {
      workers.push_back(&peer);
    } else {
      view_.set_shards(peer.rank, peer.registration.address());
    }
  }
  std::sort(workers.begin(), workers.end(),
            [](const Peer* a, const Peer* b) { return a->rank < b->rank; });
  const proto::WorkerRegistration& first = workers[0]->registration.worker();

  view_.set_number(1);
  const bool sync = job_.consistency().mode() == proto::Consistency::MODE_SYNC;
  view_.set_mode(sync ? proto::View::MODE_SYNC : proto::View::MODE_ASYNC);
  const int64_t micro_batches = job_.train().micro_batches();
  view_.set_leaves(sync ? micro_batches : LeavesOnArrival(job_));
  view_.set_samples_per_epoch(first.train_samples());
  *view_.mutable_layout() = first.layout();

  const int64_t n = first.train_samples();
  const int64_t batch = job_.train().batch_size();
  const SampleSchedule steps(n, batch, micro_batches);
  const proto::Point& until = job_.train().until();
  const int64_t samples =
      until.has_steps() ? steps.SamplesBefore(until.steps()) : SamplesAt(until, batch, n);
  schedule_.emplace(n, batch / micro_batches * view_.leaves(), view_.leaves());
  units_ = schedule_->UnitsFor(samples);
  view_.set_from_step(0);
  view_.set_until_step(units_);

  const int64_t count = static_cast<int64_t>(workers.size());
  for (int64_t rank = 0; rank < count; ++rank) {
    workers[rank]->rank = static_cast<int>(rank);
    proto::Member* member = view_.add_members();
    member->set_rank(static_cast<int32_t>(rank));
    member->set_incarnation(1);
    member->set_start_clock(0);
    if (sync) {
      member->set_first_leaf(rank * micro_batches / count);
      member->set_end_leaf((rank + 1) * micro_batches / count);
    }
  }
  if (sync && count > micro_batches) {
    Say(CoordinatorAction::Kind::kWarn,
        absl::StrFormat("%d of %d workers have nothing to compute: train.micro_batches is %d",
                        count - micro_batches, count, micro_batches),
        actions);
  }
  for (std::string& group : UnusedGroups(job_.optimizer(), view_.layout())) {
    Say(CoordinatorAction::Kind::kWarn, std::move(group), actions);
  }
  phase_ = Phase::kOpening;
  for (const auto& [id, peer] : peers_) {
    if (peer.is_worker) continue;
    proto::CoordinatorMessage message;
    *message.mutable_view() = view_;
    Send(id, std::move(message), actions);
  }
}

void Coordinator::OnShardOpened(PeerId peer, absl::Time now, CoordinatorActions* actions) {
  if (phase_ != Phase::kOpening || peers_[peer].is_worker) return;
  peers_[peer].finished = true;
  if (!AllFinished(/*workers=*/false)) return;
  phase_ = Phase::kRunning;
  metrics_.emplace(job_, sync(), *schedule_, view_.samples_per_epoch(), now);
  Say(CoordinatorAction::Kind::kLog,
      absl::StrFormat("training begins: %d workers, %d shards, %d parameters, %d %s",
                      view_.members_size(), view_.shards_size(), ValueCount(view_.layout()), units_,
                      sync() ? "steps" : "contributions"),
      actions);
  for (const auto& [id, worker] : peers_) {
    if (!worker.is_worker) continue;
    proto::CoordinatorMessage message;
    *message.mutable_view() = view_;
    message.mutable_view()->set_your_rank(worker.rank);
    Send(id, std::move(message), actions);
  }
}

void Coordinator::OnWorkRequest(PeerId peer, CoordinatorActions* actions) {
  if (phase_ != Phase::kRunning || sync()) return;
  proto::CoordinatorMessage message;
  proto::Work* work = message.mutable_work();
  if (next_unit_ < units_) {
    work->set_evaluate(next_unit_ > 0 && next_unit_ % schedule_->units_per_epoch() == 0);
    work->set_contribution(next_unit_++);
  }
  Send(peer, std::move(message), actions);
}

void Coordinator::OnProgress(const proto::Progress& progress, absl::Time now,
                             CoordinatorActions* actions) {
  if (!metrics_.has_value()) return;
  std::vector<MetricsLine> lines;
  metrics_->OnProgress(progress, now, &lines);
  for (const MetricsLine& line : lines) Report(line, actions);
}

void Coordinator::OnWorkerFinished(PeerId peer, absl::Time now, CoordinatorActions* actions) {
  if (phase_ != Phase::kRunning || !peers_[peer].is_worker) return;
  peers_[peer].finished = true;
  if (!AllFinished(/*workers=*/true)) return;
  std::vector<MetricsLine> lines;
  metrics_->CloseWindow(now, &lines);
  for (const MetricsLine& line : lines) Report(line, actions);
  summary_.steps = metrics_->steps();
  summary_.samples = metrics_->samples();
  summary_.seconds = metrics_->Seconds(now);
  summary_.samples_per_second =
      summary_.seconds > 0 ? static_cast<double>(summary_.samples) / summary_.seconds : 0;
  phase_ = Phase::kEvaluating;
  for (const auto& [id, worker] : peers_) {
    if (!worker.is_worker || worker.rank != 0) continue;
    proto::CoordinatorMessage message;
    message.mutable_evaluation_request()->set_step(units_);
    Send(id, std::move(message), actions);
  }
}

void Coordinator::OnEvaluation(const proto::Evaluation& evaluation, absl::Time now,
                               CoordinatorActions* actions) {
  if (!metrics_.has_value() || evaluation.samples() <= 0 || evaluation.unit() < 0) return;
  const MetricsLine line = metrics_->OnEvaluation(evaluation, now);
  Report(line, actions);
  if (phase_ != Phase::kEvaluating || evaluation.unit() != units_) return;
  summary_.test_loss = line.loss;
  summary_.test_accuracy = line.accuracy;
  phase_ = Phase::kReporting;
  for (const auto& [id, peer] : peers_) {
    if (peer.is_worker) continue;
    proto::CoordinatorMessage message;
    message.mutable_report_request();
    Send(id, std::move(message), actions);
  }
}

void Coordinator::OnShardReport(const proto::ShardReport& report, CoordinatorActions* actions) {
  if (phase_ != Phase::kReporting) return;
  summary_.duplicates += report.duplicates();
  summary_.blocks.insert(summary_.blocks.end(), report.blocks().begin(), report.blocks().end());
  if (++reports_ < job_.cluster().servers()) return;
  std::sort(summary_.blocks.begin(), summary_.blocks.end(),
            [](const auto& a, const auto& b) { return a.block() < b.block(); });
  phase_ = Phase::kCollecting;
  CoordinatorAction action{CoordinatorAction::Kind::kCollect};
  action.version = sync() ? units_ : 0;
  actions->push_back(std::move(action));
}

void Coordinator::OnCollected(const absl::Status& status, CoordinatorActions* actions) {
  if (phase_ != Phase::kCollecting) return;
  End(status, status.ok() ? 0 : kExitFailure,
      status.ok() ? "" : absl::StrCat("shard 0 has failed: ", status.message()), actions);
}

void Coordinator::OnPeerGone(PeerId peer, CoordinatorActions* actions) {
  const auto it = peers_.find(peer);
  if (it == peers_.end() || phase_ == Phase::kEnded) return;
  const std::string who = Describe(it->second);
  if (phase_ == Phase::kGathering) {
    Say(CoordinatorAction::Kind::kWarn, absl::StrCat(who, " has left before the start"), actions);
    peers_.erase(it);
    return;
  }
  const std::string reason = absl::StrFormat("%s is gone: its connection broke at step %d", who,
                                             metrics_.has_value() ? metrics_->units() : 0);
  peers_.erase(it);
  End(absl::AbortedError(reason), kExitFailure, reason, actions);
}

void Coordinator::OnTick(absl::Time now, CoordinatorActions* actions) {
  if (phase_ == Phase::kGathering && now >= deadline_) {
    MaybeBegin(/*deadline_passed=*/true, actions);
  }
}

void Coordinator::OnFailure(const absl::Status& status, CoordinatorActions* actions) {
  if (phase_ == Phase::kEnded) return;
  End(status, kExitFailure, absl::StrCat("shard 0 has failed: ", status.message()), actions);
}

void Coordinator::End(const absl::Status& status, int exit_code, const std::string& reason,
                      CoordinatorActions* actions) {
  phase_ = Phase::kEnded;
  for (const auto& [id, peer] : peers_) {
    if (id != kOwnShard) SendStop(id, exit_code, reason, /*refused=*/false, actions);
  }
  CoordinatorAction action{CoordinatorAction::Kind::kEnd};
  action.end = status;
  actions->push_back(std::move(action));
}

int Coordinator::CountWorkers() const {
  return static_cast<int>(std::count_if(peers_.begin(), peers_.end(),
                                        [](const auto& entry) { return entry.second.is_worker; }));
}

int Coordinator::CountShards() const { return static_cast<int>(peers_.size()) - CountWorkers(); }

std::string Coordinator::Missing() const {
  std::vector<std::string> missing;
  for (int shard = 0; shard < job_.cluster().servers(); ++shard) {
    const bool is_there = std::any_of(peers_.begin(), peers_.end(), [shard](const auto& entry) {
      return !entry.second.is_worker && entry.second.rank == shard;
    });
    if (!is_there) missing.push_back(absl::StrCat("shard ", shard));
  }
  const int workers = CountWorkers();
  const int wanted = job_.cluster().workers().start();
  if (workers < wanted) {
    missing.push_back(absl::StrFormat("%d of %d workers", wanted - workers, wanted));
  }
  return absl::StrJoin(missing, " and ");
}

std::string Coordinator::Describe(const Peer& peer) const {
  return absl::StrFormat("%s %d (%s)", peer.is_worker ? "worker" : "shard", peer.rank,
                         peer.registration.process());
}

bool Coordinator::AllFinished(bool workers) const {
  return std::all_of(peers_.begin(), peers_.end(), [workers](const auto& entry) {
    return entry.second.is_worker != workers || entry.second.finished;
  });
}

}  // namespace rubato
