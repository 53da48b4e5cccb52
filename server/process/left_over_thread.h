// A thread that has the time which nothing else on the processors wants. Work is handed to it,
// since a thread without privileges cannot get a priority back that it has given up.
#ifndef RUBATO_SERVER_PROCESS_LEFT_OVER_THREAD_H_
#define RUBATO_SERVER_PROCESS_LEFT_OVER_THREAD_H_

#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace rubato {

// Of this thread alone, as a nice value.
void SetPriority(int nice);

class LeftOverThread {
 public:
  LeftOverThread() : thread_([this] { Run(); }) {}
  ~LeftOverThread() { End(); }
  LeftOverThread(const LeftOverThread&) = delete;
  LeftOverThread& operator=(const LeftOverThread&) = delete;

  // Returns when `work` is done. It should take no lock that others need: where they are busy, the
  // thread may have to wait while it holds it. One call at a time.
  void Do(absl::FunctionRef<void()> work) ABSL_LOCKS_EXCLUDED(mutex_);
  // Waits for it to end, which may take a moment. No work comes any more.
  void End() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  void Run() ABSL_LOCKS_EXCLUDED(mutex_);

  absl::Mutex mutex_;
  const absl::FunctionRef<void()>* work_ ABSL_GUARDED_BY(mutex_) = nullptr;
  bool ends_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last: it uses all of the above
};

// Whether left over time suffices for short work that is done again and again.
class LeftOverTime {
 public:
  // Work that takes longer than this is done by other means, and so is what comes in a while.
  static constexpr absl::Duration kPatience = absl::Milliseconds(30);
  static constexpr absl::Duration kUntilTriedAnew = absl::Seconds(10);

  bool Suffices(absl::Time now) const { return now >= tried_anew_at_; }
  // Work in left over time has taken `taken` until `now`.
  void OnDone(absl::Time now, absl::Duration taken) {
    if (taken > kPatience) tried_anew_at_ = now + kUntilTriedAnew;
  }

 private:
  absl::Time tried_anew_at_ = absl::InfinitePast();
};

}  // namespace rubato

#endif  // RUBATO_SERVER_PROCESS_LEFT_OVER_THREAD_H_
