// What other threads bring to a worker's own thread, in order.
#ifndef RUBATO_WORKER_PROCESS_MAILBOX_H_
#define RUBATO_WORKER_PROCESS_MAILBOX_H_

#include <atomic>
#include <deque>
#include <functional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace rubato {

class Mailbox {
 public:
  // `on_post` is called behind each event that is posted, by who posts it.
  explicit Mailbox(std::function<void()> on_post) : on_post_(std::move(on_post)) {}

  void Post(std::function<void()> event) ABSL_LOCKS_EXCLUDED(mutex_) {
    {
      absl::MutexLock lock(&mutex_);
      events_.push_back(std::move(event));
      ++waiting_;
    }
    on_post_();
  }

  // The next event; null if none has come by `deadline`.
  std::function<void()> Take(absl::Time deadline) ABSL_LOCKS_EXCLUDED(mutex_) {
    const auto filled = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !events_.empty(); };
    absl::MutexLock lock(&mutex_);
    if (!mutex_.AwaitWithDeadline(absl::Condition(&filled), deadline)) return nullptr;
    std::function<void()> event = std::move(events_.front());
    events_.pop_front();
    --waiting_;
    return event;
  }

  // Events that wait, for any thread to look at.
  const std::atomic<int>& waiting() const { return waiting_; }

 private:
  const std::function<void()> on_post_;
  absl::Mutex mutex_;
  std::deque<std::function<void()>> events_ ABSL_GUARDED_BY(mutex_);
  std::atomic<int> waiting_{0};
};

}  // namespace rubato

#endif  // RUBATO_WORKER_PROCESS_MAILBOX_H_
