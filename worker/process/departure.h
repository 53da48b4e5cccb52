// A request to a worker to leave: from a signal, or from the script that it works for.
#ifndef RUBATO_WORKER_PROCESS_DEPARTURE_H_
#define RUBATO_WORKER_PROCESS_DEPARTURE_H_

#include <functional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"

namespace rubato {

// Any thread.
class Departure {
 public:
  // The first `why`, an error, counts.
  void Ask(absl::Status why) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    if (!why_.ok()) return;
    why_ = std::move(why);
    if (callback_) callback_(why_);
  }

  // OK if nobody has asked.
  absl::Status why() const ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    return why_;
  }

  // `callback` is called with the reason, under a lock; at once if the worker was asked before.
  // Nullptr removes it.
  void OnAsked(std::function<void(const absl::Status& why)> callback) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    callback_ = std::move(callback);
    if (callback_ && !why_.ok()) callback_(why_);
  }

 private:
  mutable absl::Mutex mutex_;
  absl::Status why_ ABSL_GUARDED_BY(mutex_);
  std::function<void(const absl::Status&)> callback_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace rubato

#endif  // RUBATO_WORKER_PROCESS_DEPARTURE_H_
