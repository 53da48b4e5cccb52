// How a process ends: signals that ask for it.
#ifndef RUBATO_COMMON_BASE_PROCESS_EXIT_H_
#define RUBATO_COMMON_BASE_PROCESS_EXIT_H_

#include <signal.h>

#include <functional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/exit_code.h"

namespace rubato {

// Turns SIGINT, SIGTERM and SIGHUP into a call, but SIGHUP not where it is ignored, as by nohup.
// Construct it early in main, one a process. SIGPIPE is ignored from then on (a write to a closed
// pipe fails instead), and standard descriptors that are closed are /dev/null.
//
// While no callback is set, a signal ends the process at once with 128 + its number. A second
// signal always does so, except that behind a SIGTERM or SIGHUP a SIGTERM within kSameRequest, and
// a SIGHUP at any time, are the same request: whoever ends several processes at once sends one, and
// so may one of these; of a closed terminal the kernel and the shell tell.
class SignalWatcher {
 public:
  static constexpr absl::Duration kSameRequest = absl::Seconds(2);

  SignalWatcher();
  SignalWatcher(const SignalWatcher&) = delete;
  SignalWatcher& operator=(const SignalWatcher&) = delete;
  // Stops watching; signals do what they did before.
  ~SignalWatcher();

  // `callback` runs on the watcher's thread, once, with the number of the first signal. Replaces
  // the previous one, after waiting for it to return if it is running; nullptr: none. Not from
  // within a callback.
  void OnSignal(std::function<void(int)> callback) ABSL_LOCKS_EXCLUDED(mutex_);

  // The first signal that came, 0 if none has.
  int signal() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  void Run() ABSL_LOCKS_EXCLUDED(mutex_);

  int pipe_[2];  // a byte for each signal; 0 to stop
  struct sigaction previous_[3];

  mutable absl::Mutex mutex_;
  std::function<void(int)> callback_ ABSL_GUARDED_BY(mutex_);
  bool callback_running_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Time came_at_ ABSL_GUARDED_BY(mutex_);
  int signal_ ABSL_GUARDED_BY(mutex_) = 0;

  std::thread thread_;  // last: it uses all of the above
};

}  // namespace rubato

#endif  // RUBATO_COMMON_BASE_PROCESS_EXIT_H_
