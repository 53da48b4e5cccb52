#include "server/cluster_service.h"

#include <deque>
#include <utility>

#include "absl/time/clock.h"

namespace rubato {

// One peer's call. gRPC calls OnReadDone, OnWriteDone and OnDone on threads of its own; all state
// is protected by the service's mutex. Starting an operation never blocks.
class ClusterService::Call
    : public grpc::ServerBidiReactor<proto::PeerMessage, proto::CoordinatorMessage> {
 public:
  Call(PeerId id, ClusterService* service) : id_(id), service_(service) { StartRead(&incoming_); }

  void Send(const proto::CoordinatorMessage& message) {
    service_->mutex_.AssertHeld();
    if (finished_) return;
    outbox_.push_back(message);
    if (!writing_) WriteNext();
  }

  void OnReadDone(bool ok) override {
    absl::MutexLock lock(&service_->mutex_);
    CoordinatorActions actions;
    if (ok) {
      service_->coordinator_.OnMessage(id_, incoming_, absl::Now(), &actions);
      if (!finished_) StartRead(&incoming_);
      service_->Run(actions);
      return;
    }
    service_->coordinator_.OnPeerGone(id_, &actions);
    service_->Run(actions);
    peer_is_gone_ = true;
    if (!writing_) FinishOnce();
  }

  void OnWriteDone(bool) override {
    absl::MutexLock lock(&service_->mutex_);
    writing_ = false;
    if (!outbox_.empty() && !peer_is_gone_) {
      WriteNext();
    } else if (stop_sent_ || peer_is_gone_) {
      FinishOnce();
    }
  }

  void OnDone() override {
    {
      absl::MutexLock lock(&service_->mutex_);
      service_->calls_.erase(id_);
    }
    delete this;
  }

 private:
  void WriteNext() {
    writing_ = true;
    outgoing_ = std::move(outbox_.front());
    outbox_.pop_front();
    if (outgoing_.has_stop()) stop_sent_ = true;
    StartWrite(&outgoing_);
  }

  void FinishOnce() {
    if (finished_) return;
    finished_ = true;
    Finish(grpc::Status::OK);
  }

  const PeerId id_;
  ClusterService* const service_;
  proto::PeerMessage incoming_;
  proto::CoordinatorMessage outgoing_;
  std::deque<proto::CoordinatorMessage> outbox_;
  bool writing_ = false;
  bool stop_sent_ = false;
  bool peer_is_gone_ = false;
  bool finished_ = false;
};

ClusterService::ClusterService(Coordinator coordinator,
                               std::function<void(const MetricsLine&)> on_metrics, const Log* log,
                               std::function<void(const proto::CoordinatorMessage&)> to_own_shard)
    : on_metrics_(std::move(on_metrics)),
      log_(log),
      to_own_shard_(std::move(to_own_shard)),
      coordinator_(std::move(coordinator)) {}

grpc::ServerBidiReactor<proto::PeerMessage, proto::CoordinatorMessage>* ClusterService::Join(
    grpc::CallbackServerContext*) {
  absl::MutexLock lock(&mutex_);
  const PeerId id = ++last_peer_;
  return calls_[id] = new Call(id, this);
}

void ClusterService::FromOwnShard(const proto::PeerMessage& message) {
  absl::MutexLock lock(&mutex_);
  CoordinatorActions actions;
  coordinator_.OnMessage(kOwnShard, message, absl::Now(), &actions);
  Run(actions);
}

void ClusterService::Fail(const absl::Status& status) {
  absl::MutexLock lock(&mutex_);
  CoordinatorActions actions;
  coordinator_.OnFailure(status, &actions);
  Run(actions);
}

absl::Status ClusterService::Wait(
    std::function<absl::Status(const proto::View&, int64_t, const Summary&)> collect) {
  constexpr absl::Duration kTick = absl::Milliseconds(100);
  mutex_.Lock();
  while (!end_.has_value()) {
    const auto something_to_do = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return end_.has_value() || collect_.has_value();
    };
    mutex_.AwaitWithTimeout(absl::Condition(&something_to_do), kTick);
    CoordinatorActions actions;
    if (collect_.has_value() && !end_.has_value()) {
      const int64_t version = *collect_;
      collect_.reset();
      const proto::View view = coordinator_.view();
      const Summary summary = coordinator_.summary();
      mutex_.Unlock();
      const absl::Status collected = collect(view, version, summary);
      mutex_.Lock();
      coordinator_.OnCollected(collected, &actions);
    }
    coordinator_.OnTick(absl::Now(), &actions);
    Run(actions);
  }
  // Let the last messages leave; a peer that does not take its own is left behind.
  const auto all_gone = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return calls_.empty(); };
  mutex_.AwaitWithTimeout(absl::Condition(&all_gone), absl::Seconds(1));
  const absl::Status end = *end_;
  mutex_.Unlock();
  return end;
}

void ClusterService::Run(const CoordinatorActions& actions) {
  for (const CoordinatorAction& action : actions) {
    switch (action.kind) {
      case CoordinatorAction::Kind::kSend: {
        if (action.peer == kOwnShard) {
          to_own_shard_(action.message);
          break;
        }
        const auto call = calls_.find(action.peer);
        if (call != calls_.end()) call->second->Send(action.message);
        break;
      }
      case CoordinatorAction::Kind::kLog:
        log_->Info(action.text);
        break;
      case CoordinatorAction::Kind::kWarn:
        log_->Warning(action.text);
        break;
      case CoordinatorAction::Kind::kMetrics:
        on_metrics_(action.metrics);
        break;
      case CoordinatorAction::Kind::kCollect:
        collect_ = action.version;
        break;
      case CoordinatorAction::Kind::kEnd:
        end_ = action.end;
        break;
    }
  }
}

}  // namespace rubato
