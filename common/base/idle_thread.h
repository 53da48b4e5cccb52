// Work for which there is time, beside threads that wait for each other: to write a checkpoint
// while training goes on.
#ifndef RUBATO_COMMON_BASE_IDLE_THREAD_H_
#define RUBATO_COMMON_BASE_IDLE_THREAD_H_

#include <functional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "common/base/monotonic.h"

namespace rubato {

// Gives the calling thread the least priority, nice 19, which it cannot leave again without
// privileges. With kIdle also Linux's SCHED_IDLE, where the system allows it: the thread gives its
// processor up as soon as another thread wants it. Without SCHED_IDLE it may keep the processor for
// some milliseconds; but where others want all of its time, it gets a hundredth, and not a
// three-hundredth.
enum class Background { kShares, kIdle };
void GoToBackground(Background background);

// A thread with Background::kIdle.
class IdleThread {
 public:
  IdleThread() : thread_([this] { Loop(); }) {}
  ~IdleThread() ABSL_LOCKS_EXCLUDED(mutex_);

  // Returns when the thread has done it. From one thread at a time.
  void Run(const std::function<void()>& work) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  void Loop() ABSL_LOCKS_EXCLUDED(mutex_);

  MonotonicMutex mutex_;
  const std::function<void()>* work_ ABSL_GUARDED_BY(mutex_) = nullptr;
  bool ends_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // the last: it uses the others
};

}  // namespace rubato

#endif  // RUBATO_COMMON_BASE_IDLE_THREAD_H_
