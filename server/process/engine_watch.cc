#include "server/process/engine_watch.h"

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

void EngineWatch::Run() {
  constexpr int kLooks = 5;  // in a lease: a freeze of the whole process is one of them at most
  int in_vain = 0;
  while (in_vain < kLooks - 1) {
    bool asks;
    {
      MonotonicLock lock(&state_->mutex);
      asks = !std::exchange(state_->is_asked, true);
    }
    if (asks) {
      in_vain = 0;
      ask_([state = state_] {
        MonotonicLock lock(&state->mutex);
        state->is_asked = false;
      });
    }
    MonotonicLock lock(&state_->mutex);
    if (state_->mutex.AwaitFor(absl::Condition(&state_->is_closing), lease_ / kLooks)) return;
    if (state_->is_asked) ++in_vain;
  }
  on_stuck_();
}

}  // namespace rubato
