#include "server/process/engine_watch.h"

#include <algorithm>
#include <utility>

namespace rubato {

EngineWatch::EngineWatch(absl::Duration lease,
                         std::function<void(std::function<void()> answer)> ask,
                         std::function<void()> on_stuck)
    : rule_(lease), ask_(std::move(ask)), on_stuck_(std::move(on_stuck)) {
  thread_ = std::thread([this] { Run(); });
}

EngineWatch::~EngineWatch() {
  {
    MonotonicLock lock(&state_->mutex);
    state_->is_closing = true;
  }
  thread_.join();
}

absl::Duration EngineWatch::busy() const {
  MonotonicLock lock(&state_->mutex);
  return std::max(absl::ZeroDuration(), MonotonicNow() - state_->asked_at);
}

void EngineWatch::Run() {
  while (!rule_.is_stuck()) {
    bool asks;
    {
      MonotonicLock lock(&state_->mutex);
      asks = state_->asked_at == absl::InfiniteFuture();
      if (asks) state_->asked_at = MonotonicNow();
    }
    if (asks) {
      rule_.OnAsked();
      ask_([state = state_] {
        MonotonicLock lock(&state->mutex);
        state->asked_at = absl::InfiniteFuture();
      });
    }
    MonotonicLock lock(&state_->mutex);
    if (state_->mutex.AwaitFor(absl::Condition(&state_->is_closing), rule_.between_looks())) {
      return;
    }
    if (state_->asked_at != absl::InfiniteFuture()) rule_.OnInVain();
  }
  on_stuck_();
}

}  // namespace rubato
