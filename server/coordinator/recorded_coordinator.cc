#include "server/coordinator/recorded_coordinator.h"

#include <utility>

#include "server/coordinator/coordinator_events.h"

namespace rubato {

RecordedCoordinator::RecordedCoordinator(Coordinator core,
                                         std::unique_ptr<RecordingWriter> recording)
    : core_(std::move(core)), recording_(std::move(recording)) {}

template <typename Fill>
void RecordedCoordinator::Event(absl::Time now, Fill fill) {
  if (recording_ == nullptr) return;
  proto::CoordinatorEvent event;
  event.set_now_nanos(absl::ToUnixNanos(now));
  fill(&event);
  recording_->Event(event);
}

void RecordedCoordinator::Outcomes(const CoordinatorActions& actions) {
  if (recording_ == nullptr) return;
  for (const CoordinatorAction& action : actions) recording_->Outcome(OutcomeOf(action));
}

void RecordedCoordinator::OnMessage(PeerId peer, const proto::PeerMessage& message, absl::Time now,
                                    CoordinatorActions* actions) {
  Event(now, [&](proto::CoordinatorEvent* event) {
    event->mutable_message()->set_peer(peer);
    *event->mutable_message()->mutable_message() = message;
  });
  core_.OnMessage(peer, message, now, actions);
  Outcomes(*actions);
}

void RecordedCoordinator::OnPeerGone(PeerId peer, absl::Time now, CoordinatorActions* actions) {
  Event(now, [&](proto::CoordinatorEvent* event) { event->set_peer_gone(peer); });
  core_.OnPeerGone(peer, now, actions);
  Outcomes(*actions);
}

void RecordedCoordinator::OnHeartbeat(const WorkerId& worker, absl::Time now) {
  Event(now, [&](proto::CoordinatorEvent* event) {
    event->mutable_heartbeat()->set_rank(worker.rank);
    event->mutable_heartbeat()->set_incarnation(worker.incarnation);
  });
  core_.OnHeartbeat(worker, now);
}

void RecordedCoordinator::OnTick(absl::Time now, CoordinatorActions* actions) {
  Event(now, [](proto::CoordinatorEvent* event) { event->set_tick(true); });
  core_.OnTick(now, actions);
  Outcomes(*actions);
}

void RecordedCoordinator::OnCollected(const absl::Status& status, CoordinatorActions* actions) {
  Event(absl::UnixEpoch(),
        [&](proto::CoordinatorEvent* event) { *event->mutable_collected() = ToResult(status); });
  core_.OnCollected(status, actions);
  Outcomes(*actions);
}

void RecordedCoordinator::OnCheckpointed(uint32_t snapshot, const absl::StatusOr<std::string>& path,
                                         absl::Time now, CoordinatorActions* actions) {
  Event(now, [&](proto::CoordinatorEvent* event) {
    proto::CoordinatorEvent::Checkpointed* done = event->mutable_checkpointed();
    done->set_snapshot(snapshot);
    *done->mutable_result() = ToResult(path.status());
    if (path.ok()) done->set_path(*path);
  });
  core_.OnCheckpointed(snapshot, path, now, actions);
  Outcomes(*actions);
}

absl::Status RecordedCoordinator::RequestCheckpoint(absl::Time now, CoordinatorActions* actions) {
  Event(now, [](proto::CoordinatorEvent* event) { event->set_request_checkpoint(true); });
  const absl::Status status = core_.RequestCheckpoint(now, actions);
  Outcomes(*actions);
  if (recording_ != nullptr) {
    recording_->Outcome(AnswerOf(status.ok() ? absl::StatusOr<std::string>("")
                                             : absl::StatusOr<std::string>(status)));
  }
  return status;
}

absl::StatusOr<std::string> RecordedCoordinator::RequestSwitch(const Mode& mode, absl::Time now,
                                                               CoordinatorActions* actions) {
  Event(now, [&](proto::CoordinatorEvent* event) {
    event->mutable_request_switch()->set_mode(mode.mode);
    event->mutable_request_switch()->set_staleness(mode.staleness);
  });
  absl::StatusOr<std::string> answer = core_.RequestSwitch(mode, now, actions);
  Outcomes(*actions);
  if (recording_ != nullptr) recording_->Outcome(AnswerOf(answer));
  return answer;
}

void RecordedCoordinator::RequestStop(const absl::Status& end, const std::string& reason,
                                      absl::Time now, CoordinatorActions* actions) {
  Event(now, [&](proto::CoordinatorEvent* event) {
    *event->mutable_request_stop()->mutable_end() = ToResult(end);
    event->mutable_request_stop()->set_reason(reason);
  });
  core_.RequestStop(end, reason, now, actions);
  Outcomes(*actions);
}

void RecordedCoordinator::OnFailure(const absl::Status& status, CoordinatorActions* actions) {
  Event(absl::UnixEpoch(),
        [&](proto::CoordinatorEvent* event) { *event->mutable_failure() = ToResult(status); });
  core_.OnFailure(status, actions);
  Outcomes(*actions);
}

}  // namespace rubato
