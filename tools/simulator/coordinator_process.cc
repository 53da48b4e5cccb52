#include "tools/simulator/coordinator_process.h"

#include <utility>

namespace rubato {
namespace {

// As in server/process/cluster_service.cc.
constexpr SimTime kTickTime = 100 * kMillisecond;

}  // namespace

void CoordinatorProcess::Start(ProcessId self) {
  self_ = self;
  network_.SetTimer(self_, network_.now() + kTickTime, kTick, EventQueue::Kind::kBackground);
}

void CoordinatorProcess::OnMessage(ConnectionId connection, SimMessage&& message) {
  if (message.kind != SimMessage::Kind::kToCoordinator) return;
  CoordinatorActions actions;
  core_.OnMessage(PeerOf(connection), message.to_coordinator(), ToTime(network_.now()), &actions);
  Run(std::move(actions));
}

void CoordinatorProcess::OnBroken(ConnectionId connection) {
  CoordinatorActions actions;
  core_.OnPeerGone(PeerOf(connection), ToTime(network_.now()), &actions);
  Run(std::move(actions));
}

void CoordinatorProcess::OnTimer(uint64_t argument) {
  if (end_.has_value()) return;
  switch (argument & 0xff) {
    case kTick:
      Tick();
      break;
    case kTask:
      RunTask();
      break;
    default:
      core_.OnHeartbeat(
          {static_cast<int>(argument >> 8 & 0xffffff), static_cast<uint32_t>(argument >> 32)},
          ToTime(network_.now()));
  }
}

void CoordinatorProcess::Tick() {
  CoordinatorActions actions;
  core_.OnTick(ToTime(network_.now()), &actions);
  Run(std::move(actions));
  network_.SetTimer(self_, network_.now() + kTickTime, kTick, EventQueue::Kind::kBackground);
}

void CoordinatorProcess::RequestStop(const std::string& reason) {
  CoordinatorActions actions;
  core_.RequestStop(absl::OkStatus(), reason, ToTime(network_.now()), &actions);
  Run(std::move(actions));
}

absl::Status CoordinatorProcess::RequestSwitch(const Mode& mode) {
  CoordinatorActions actions;
  const absl::Status status = core_.RequestSwitch(mode, ToTime(network_.now()), &actions).status();
  Run(std::move(actions));
  return status;
}

absl::Status CoordinatorProcess::RequestCheckpoint() {
  CoordinatorActions actions;
  const absl::Status status = core_.RequestCheckpoint(ToTime(network_.now()), &actions);
  Run(std::move(actions));
  return status;
}

void CoordinatorProcess::RunTask() {
  const CoordinatorAction task = std::move(tasks_.front());
  tasks_.erase(tasks_.begin());
  CoordinatorActions actions;
  switch (task.kind) {
    case CoordinatorAction::Kind::kCollect:
      core_.OnCollected(
          callbacks_.collect ? callbacks_.collect(task.version, core_.summary()) : absl::OkStatus(),
          &actions);
      break;
    case CoordinatorAction::Kind::kCheckpoint: {
      absl::StatusOr<std::string> path = "";
      if (callbacks_.checkpoint) path = callbacks_.checkpoint(task.snapshot, task.manifest);
      core_.OnCheckpointed(task.snapshot, path, ToTime(network_.now()), &actions);
      break;
    }
    default:  // kRestore
      if (const absl::Status status = callbacks_.restore(); !status.ok()) {
        core_.OnFailure(status, &actions);
      }
  }
  Run(std::move(actions));
}

void CoordinatorProcess::Run(CoordinatorActions actions) {
  for (CoordinatorAction& action : actions) {
    switch (action.kind) {
      case CoordinatorAction::Kind::kSend:
        network_.Send(ConnectionOf(action.peer), self_,
                      SimMessage::FromCoordinator(std::move(action.message)));
        break;
      case CoordinatorAction::Kind::kLog:
      case CoordinatorAction::Kind::kWarn:
        if (callbacks_.on_text) {
          callbacks_.on_text(action.kind == CoordinatorAction::Kind::kWarn, action.text,
                             ToTime(network_.now()));
        }
        break;
      case CoordinatorAction::Kind::kMetrics:
        if (callbacks_.on_metrics) callbacks_.on_metrics(action.metrics, ToTime(network_.now()));
        break;
      case CoordinatorAction::Kind::kJournal:
        if (callbacks_.on_view) {
          callbacks_.on_view(action.message.view(), action.text, ToTime(network_.now()));
        }
        break;
      case CoordinatorAction::Kind::kCollect:
      case CoordinatorAction::Kind::kRestore:
      case CoordinatorAction::Kind::kCheckpoint:
        tasks_.push_back(std::move(action));
        network_.SetTimer(self_, network_.now(), kTask);
        break;
      case CoordinatorAction::Kind::kEnd:
        end_ = action.end;
        break;
    }
  }
}

}  // namespace rubato
