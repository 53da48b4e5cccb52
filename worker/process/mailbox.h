// Events from other threads to a worker's own thread, in order.
#ifndef RUBATO_WORKER_PROCESS_MAILBOX_H_
#define RUBATO_WORKER_PROCESS_MAILBOX_H_

#include <atomic>
#include <deque>
#include <functional>
#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "common/base/monotonic.h"

namespace rubato {

template <typename Event>
class Mailbox {
 public:
  // `on_post` is called after each posted event, on the thread that posts it.
  explicit Mailbox(std::function<void()> on_post) : on_post_(std::move(on_post)) {}

  void Post(Event event) ABSL_LOCKS_EXCLUDED(mutex_) {
    {
      MonotonicLock lock(&mutex_);
      events_.push_back(std::move(event));
      ++waiting_;
    }
    on_post_();
  }

  // The next event; none if none has come by `deadline` (of MonotonicNow).
  std::optional<Event> Take(absl::Time deadline) ABSL_LOCKS_EXCLUDED(mutex_) {
    const auto filled = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !events_.empty(); };
    MonotonicLock lock(&mutex_);
    if (!mutex_.AwaitUntil(absl::Condition(&filled), deadline)) return std::nullopt;
    std::optional<Event> event = std::move(events_.front());
    events_.pop_front();
    --waiting_;
    return event;
  }

  void Clear() ABSL_LOCKS_EXCLUDED(mutex_) {
    MonotonicLock lock(&mutex_);
    events_.clear();
    waiting_ = 0;
  }

  // Events that wait, for any thread to look at.
  const std::atomic<int>& waiting() const { return waiting_; }

 private:
  const std::function<void()> on_post_;
  MonotonicMutex mutex_;
  std::deque<Event> events_ ABSL_GUARDED_BY(mutex_);
  std::atomic<int> waiting_{0};
};

}  // namespace rubato

#endif  // RUBATO_WORKER_PROCESS_MAILBOX_H_
