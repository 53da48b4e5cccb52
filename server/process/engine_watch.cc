#include "server/process/engine_watch.h"

#include <algorithm>
#include <utility>

namespace rubato {

EngineWatch::EngineWatch(absl::Duration lease,
                         std::function<void(std::function<void()> answer)> ask,
                         std::function<void()> on_stuck)
    : lease_(lease), ask_(std::move(ask)), on_stuck_(std::move(on_stuck)) {
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
  constexpr int kLooks = 20;  // in a lease: a freeze of the whole process is one of them at most
  constexpr int kMostInVain = kLooks * 3 / 5;
  int in_vain = 0;
  while (in_vain < kMostInVain) {
    bool asks;
    {
      MonotonicLock lock(&state_->mutex);
      asks = state_->asked_at == absl::InfiniteFuture();
      if (asks) state_->asked_at = MonotonicNow();
    }
    if (asks) {
      in_vain = 0;
      ask_([state = state_] {
        MonotonicLock lock(&state->mutex);
        state->asked_at = absl::InfiniteFuture();
      });
    }
    MonotonicLock lock(&state_->mutex);
    if (state_->mutex.AwaitFor(absl::Condition(&state_->is_closing), lease_ / kLooks)) return;
    if (state_->asked_at != absl::InfiniteFuture()) ++in_vain;
  }
  on_stuck_();
}

}  // namespace rubato
