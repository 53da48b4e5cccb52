#include "tools/simulator/coordinator_process.h"

#include <algorithm>
#include <utility>

namespace rubato {

void CoordinatorProcess::Start(ProcessId self) {
  self_ = self;
  SetTimer(kTick, network_.now() + tick_time_, EventQueue::Kind::kBackground);
}

void CoordinatorProcess::BeginTerm(Coordinator core) {
  for (const ConnectionId call : term_->calls) network_.Close(call, self_);
  term_ = std::make_unique<Term>(std::move(core), term_->number + 1);
  SetTimer(kTick, network_.now() + tick_time_, EventQueue::Kind::kBackground);
}

void CoordinatorProcess::OnMessage(ConnectionId connection, SimMessage&& message) {
  if (message.kind != SimMessage::Kind::kToCoordinator) return;
  term_->calls.insert(connection);
  const int64_t refused = term_->core.refused();
  Handle(coordinator::FromPeer{PeerOf(connection), message.to_coordinator()});
  if (term_->core.refused() > refused && callbacks_.on_refused) {
    callbacks_.on_refused(message.to_coordinator().ShortDebugString());
  }
}

void CoordinatorProcess::OnBroken(ConnectionId connection) {
  term_->calls.erase(connection);
  Handle(coordinator::PeerGone{PeerOf(connection)});
}

void CoordinatorProcess::OnTimer(uint64_t argument) {
  const uint64_t number = argument >> 8;
  const Timer timer = static_cast<Timer>(argument & 0xff);
  if (timer == kHeartbeat) {
    auto beat = beats_.extract(number);
    Handle(coordinator::Heartbeat{std::move(beat.mapped().request)});
    beat.mapped().on_answer();
    return;
  }
  if (term_->is_over || number != term_->number) return;
  if (timer == kTick) {
    if (network_.now() >= ticks_from_) Handle(coordinator::Tick{});
    SetTimer(kTick, std::max(network_.now() + tick_time_, ticks_from_),
             EventQueue::Kind::kBackground);
    return;
  }
  const auto task = std::move(term_->tasks.front());
  term_->tasks.pop_front();
  if (const std::optional<coordinator::Event> event = task()) Handle(*event);
}

absl::Status CoordinatorProcess::Request(const coordinator::Event& request) {
  answer_ = absl::OkStatus();
  Handle(request);
  return answer_;
}

void CoordinatorProcess::Handle(const coordinator::Event& event) {
  for (coordinator::Outcome& outcome : term_->core.Handle(event, ToTime(network_.now()))) {
    std::visit([this](auto& what) { Do(std::move(what)); }, outcome);
  }
  const bool was_ending = std::exchange(term_->is_ending, term_->core.is_ending());
  if (!was_ending && term_->is_ending && callbacks_.on_ending) callbacks_.on_ending();
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
                                      ? callbacks_.collect(collect.version, term_->core.summary())
                                      : absl::OkStatus()};
  });
}

void CoordinatorProcess::Do(const coordinator::Restore& restore) {
  Later(0, [this, restore]() -> std::optional<coordinator::Event> {
    const absl::Status status = callbacks_.restore(restore.shards);
    if (status.ok()) return std::nullopt;
    if (absl::IsUnavailable(status)) return coordinator::RestoreBroke{status};
    return coordinator::Failed{status};
  });
}

void CoordinatorProcess::Do(const coordinator::SaveValues& save) {
  if (callbacks_.before_save) callbacks_.before_save(save);
  Later(piece_time_, [this, save]() -> std::optional<coordinator::Event> {
    return coordinator::ValuesSaved{callbacks_.save_values(save)};
  });
}

void CoordinatorProcess::Do(const coordinator::WriteCheckpoint& write) {
  Later(checkpoint_time_, [this, write]() -> std::optional<coordinator::Event> {
    absl::StatusOr<std::string> path = "";
    if (!write.failure.ok()) path = write.failure;
    if (path.ok() && callbacks_.checkpoint)
      path = callbacks_.checkpoint(write.snapshot, write.manifest);
    return coordinator::Checkpointed{write.snapshot, path};
  });
}

void CoordinatorProcess::Do(const coordinator::End& end) {
  term_->is_over = true;
  if (end.lost_shard.has_value()) {
    callbacks_.on_lost_shard(*end.lost_shard, end.status);
    return;
  }
  end_ = end.status;
  ended_at_ = network_.now();
}

void CoordinatorProcess::Later(SimTime time,
                               std::function<std::optional<coordinator::Event>()> task) {
  term_->tasks.push_back(std::move(task));
  term_->tasks_done = std::max(term_->tasks_done, network_.now()) + time;
  SetTimer(kTask, term_->tasks_done, EventQueue::Kind::kWork);
}

}  // namespace rubato
