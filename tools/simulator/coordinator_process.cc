#include "tools/simulator/coordinator_process.h"

#include <algorithm>
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
  Handle(coordinator::FromPeer{PeerOf(connection), message.to_coordinator()});
}

void CoordinatorProcess::OnBroken(ConnectionId connection) {
  Handle(coordinator::PeerGone{PeerOf(connection)});
}

void CoordinatorProcess::OnTimer(uint64_t argument) {
  if (end_.has_value()) return;
  switch (argument & 0xff) {
    case kTick:
      if (network_.now() >= ticks_from_) Handle(coordinator::Tick{});
      network_.SetTimer(self_, std::max(network_.now() + kTickTime, ticks_from_), kTick,
                        EventQueue::Kind::kBackground);
      break;
    case kTask: {
      const auto task = std::move(tasks_.front());
      tasks_.pop_front();
      if (const std::optional<coordinator::Event> event = task()) Handle(*event);
      break;
    }
    default: {
      auto beat = beats_.extract(argument >> 8);
      Handle(coordinator::Heartbeat{std::move(beat.mapped().request)});
      beat.mapped().on_answer();
    }
  }
}

absl::Status CoordinatorProcess::Request(const coordinator::Event& request) {
  answer_ = absl::OkStatus();
  Handle(request);
  return answer_;
}

void CoordinatorProcess::Handle(const coordinator::Event& event) {
  for (coordinator::Outcome& outcome : core_.Handle(event, ToTime(network_.now()))) {
    std::visit([this](auto& what) { Do(std::move(what)); }, outcome);
  }
}

void CoordinatorProcess::Do(coordinator::Send&& send) {
  network_.Send(ConnectionOf(send.peer), self_,
                SimMessage::FromCoordinator(std::move(send.message)));
}

void CoordinatorProcess::Tell(bool is_warning, const std::string& text) {
  if (callbacks_.on_text) callbacks_.on_text(is_warning, text, ToTime(network_.now()));
}

void CoordinatorProcess::Do(const MetricsLine& line) {
  if (callbacks_.on_metrics) callbacks_.on_metrics(line, ToTime(network_.now()));
}

void CoordinatorProcess::Do(const coordinator::Journal& journal) {
  if (callbacks_.on_view) {
    callbacks_.on_view(journal.view, journal.reason, ToTime(network_.now()));
  }
}

void CoordinatorProcess::Do(const coordinator::Collect& collect) {
  Later(0, [this, collect]() -> std::optional<coordinator::Event> {
    return coordinator::Collected{callbacks_.collect
                                      ? callbacks_.collect(collect.version, core_.summary())
                                      : absl::OkStatus()};
  });
}

void CoordinatorProcess::Do(const coordinator::Restore&) {
  Later(0, [this]() -> std::optional<coordinator::Event> {
    const absl::Status status = callbacks_.restore();
    if (status.ok()) return std::nullopt;
    return coordinator::Failed{status};
  });
}

void CoordinatorProcess::Do(const coordinator::WriteCheckpoint& write) {
  Later(checkpoint_time_, [this, write]() -> std::optional<coordinator::Event> {
    absl::StatusOr<std::string> path = "";
    if (callbacks_.checkpoint) path = callbacks_.checkpoint(write.snapshot, write.manifest);
    return coordinator::Checkpointed{write.snapshot, path};
  });
}

void CoordinatorProcess::Later(SimTime time,
                               std::function<std::optional<coordinator::Event>()> task) {
  tasks_.push_back(std::move(task));
  tasks_done_ = std::max(tasks_done_, network_.now()) + time;
  network_.SetTimer(self_, tasks_done_, kTask);
}

}  // namespace rubato
