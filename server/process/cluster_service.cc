#include "server/process/cluster_service.h"

#include <thread>
#include <utility>

#include "common/base/lease.h"
#include "server/coordinator/coordinator_record.h"

namespace rubato {
namespace {

constexpr absl::Duration kUntilRest = absl::Seconds(1);

}  // namespace

ClusterService::ClusterService(Coordinator core, std::unique_ptr<RecordingWriter> recording,
                               Outlets outlets, const Log* log, const ConnectionOptions& connection)
    : outlets_(std::move(outlets)),
      log_(log),
      tick_(LeaseTick(connection.lease)),
      credentials_(connection.credentials),
      connections_(connection.connections),
      refusals_(connection.refusals),
      core_(std::move(core)),
      recording_(std::move(recording)) {}

void ClusterService::SetToken(std::string token) {
  MonotonicLock lock(&mutex_);
  commands_.SetToken(std::move(token));
}

void ClusterService::Post(const coordinator::Event& event) {
  MonotonicLock lock(&mutex_);
  Handle(event).IgnoreError();
}

void ClusterService::Ask(std::shared_ptr<void> asked) {
  absl::MutexLock lock(&ask_mutex_);
  if (ticks_) asked_.swap(asked);
}

void ClusterService::OnTicked(bool goes_on) {
  std::shared_ptr<void> asked;  // goes when the mutex is free
  absl::MutexLock lock(&ask_mutex_);
  ticks_ = goes_on;
  asked_.swap(asked);
}

absl::Status ClusterService::Wait(const Tasks& tasks) {
  std::thread worker([this, &tasks] { RunTasks(tasks); });
  OnTicked(/*goes_on=*/true);
  mutex_.Lock();
  const auto is_over = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return end_.has_value(); };
  while (!mutex_.AwaitFor(absl::Condition(&is_over), tick_)) {
    Handle(coordinator::Tick{}).IgnoreError();
    TickCalls();
    OnTicked(/*goes_on=*/true);
  }
  OnTicked(/*goes_on=*/false);
  commands_.OnCheckpoint(absl::UnavailableError(
      lost_shard_.has_value() ? "the job goes back to an earlier checkpoint: ask again"
                              : "the job has ended"));
  // Let the last messages leave; a peer that does not take its own is left behind.
  const auto all_gone = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return calls_.empty(); };
  mutex_.AwaitFor(absl::Condition(&all_gone), absl::Milliseconds(500));
  const absl::Status end = *end_;
  mutex_.Unlock();
  if (tasks.stop) tasks.stop();
  worker.join();
  return end;
}

bool ClusterService::AwaitCheckpointOrEnd(absl::Duration patience) {
  proto::CommandRequest request;
  request.set_kind(proto::CommandRequest::KIND_CHECKPOINT);
  const auto answer = std::make_shared<std::optional<absl::Status>>();
  MonotonicLock lock(&mutex_);
  commands_.Handle(
      request, /*may_change=*/true,
      [this](const coordinator::Event& event)
          ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return Handle(event); },
      [] { return proto::JobStatus(); },
      [answer](const absl::StatusOr<proto::CommandReply>& reply) { *answer = reply.status(); });
  const bool is_refused = answer->has_value();
  if (is_refused && !core_.has_begun()) return end_.has_value();  // there is nothing to save
  const auto is_done = [this, is_refused, &answer]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return end_.has_value() || (!is_refused && answer->has_value());
  };
  mutex_.AwaitFor(absl::Condition(&is_done), patience);
  return end_.has_value();
}

int ClusterService::Untold() const {
  return core_.absent() - static_cast<int>(last_peer_ - last_before_end_);
}

int ClusterService::untold() {
  MonotonicLock lock(&mutex_);
  return Untold();
}

void ClusterService::TellOfEnd(absl::Duration patience, absl::FunctionRef<bool()> stops) {
  constexpr absl::Duration kTick = absl::Milliseconds(100);
  const absl::Time deadline = MonotonicNow() + patience;
  MonotonicLock lock(&mutex_);
  const auto all_told = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return calls_.empty() && Untold() <= 0;
  };
  while (!mutex_.AwaitFor(absl::Condition(&all_told), kTick) && MonotonicNow() < deadline &&
         !stops()) {
    TickCalls();
  }
}

namespace {

// Does a task and tells what has come of it, if the core is to hear of that: one overload for each.
struct Runner {
  const ClusterService::Tasks& tasks;
  const proto::View view;
  const Summary summary;

  std::optional<coordinator::Event> operator()(const coordinator::Collect& task) const {
    return coordinator::Collected{tasks.collect(view, task.version, summary)};
  }
  std::optional<coordinator::Event> operator()(const coordinator::Restore& task) const {
    const absl::Status status = tasks.restore(view, task);
    if (status.ok()) return std::nullopt;
    return coordinator::Failed{status};
  }
  std::optional<coordinator::Event> operator()(const coordinator::SaveValues& task) const {
    return coordinator::ValuesSaved{tasks.save_values(task)};
  }
  std::optional<coordinator::Event> operator()(const coordinator::WriteCheckpoint& task) const {
    return coordinator::Checkpointed{task.snapshot, tasks.checkpoint(view, task)};
  }
};

}  // namespace

void ClusterService::RunTasks(const Tasks& tasks) {
  MonotonicLock lock(&mutex_);
  const auto something_to_do = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return end_.has_value() || !tasks_.empty();
  };
  while (true) {
    if (!mutex_.AwaitFor(absl::Condition(&something_to_do), kUntilRest)) {
      mutex_.Unlock();
      if (tasks.rest) tasks.rest();
      mutex_.Lock();
      continue;
    }
    if (end_.has_value()) return;
    const Task task = std::move(tasks_.front());
    tasks_.pop_front();
    RunTask(task, tasks);
  }
}

void ClusterService::RunTask(const Task& task, const Tasks& tasks) {
  const Runner runner{tasks, core_.view(), core_.summary()};
  mutex_.Unlock();
  const std::optional<coordinator::Event> event = std::visit(runner, task);
  mutex_.Lock();
  if (!event.has_value()) return;
  const bool is_older_than_wanted = core_.wants_checkpoint();
  Handle(*event).IgnoreError();
  const auto* const done = std::get_if<coordinator::Checkpointed>(&*event);
  if (done != nullptr && !is_older_than_wanted) commands_.OnCheckpoint(done->path);
}

absl::StatusOr<std::string> ClusterService::Handle(const coordinator::Event& event) {
  answer_ = "";
  for (const coordinator::Outcome& outcome :
       coordinator::HandleAndRecord(event, MonotonicNow(), &core_, recording_.get())) {
    std::visit([this](const auto& what) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { Do(what); },
               outcome);
  }
  return answer_;
}

Summary ClusterService::summary() {
  MonotonicLock lock(&mutex_);
  return core_.summary();
}

void ClusterService::Do(const coordinator::Collect& task) { tasks_.push_back(task); }

void ClusterService::Do(const coordinator::Restore& task) { tasks_.push_back(task); }

void ClusterService::Do(const coordinator::SaveValues& task) { tasks_.push_back(task); }

void ClusterService::Do(const coordinator::WriteCheckpoint& task) { tasks_.push_back(task); }

void ClusterService::Do(const coordinator::End& end) {
  end_ = end.status;
  lost_shard_ = end.lost_shard;
  last_before_end_ = last_peer_;
}

std::optional<int> ClusterService::lost_shard() {
  MonotonicLock lock(&mutex_);
  return lost_shard_;
}

bool ClusterService::has_trained() {
  MonotonicLock lock(&mutex_);
  return core_.has_trained();
}

std::optional<ClusterService::Place> ClusterService::place() {
  MonotonicLock lock(&mutex_);
  if (!core_.has_begun()) return std::nullopt;
  return Place{core_.samples(), core_.seconds()};
}

void ClusterService::Do(const coordinator::Answer& answer) { answer_ = answer.text; }

}  // namespace rubato
