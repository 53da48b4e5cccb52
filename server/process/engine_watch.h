// Detects a server that is alive but stuck: its engine does not answer. The engine is the threads
// on which its shard runs (the queue's thread, and one for each worker that shares memory), and for
// shard 0 also the coordinator's.
#ifndef RUBATO_SERVER_PROCESS_ENGINE_WATCH_H_
#define RUBATO_SERVER_PROCESS_ENGINE_WATCH_H_

#include <functional>
#include <memory>
#include <thread>

#include "absl/time/time.h"
#include "common/base/monotonic.h"

namespace rubato {

// When an engine counts as stuck: a question is not answered for three fifths of `lease`, during
// which the watch itself ran. So a process that was frozen as a whole does not count as stuck. And
// a stuck process reports itself before it blames others, whose heartbeats it may no longer
// receive: the last of these may have arrived a HeartbeatInterval before it got stuck.
class StuckRule {
 public:
  explicit StuckRule(absl::Duration lease) : lease_(lease) {}

  // The interval between two checks: a freeze of the whole process counts as one check at most.
  absl::Duration between_looks() const { return lease_ / kLooks; }
  void OnAsked() { in_vain_ = 0; }
  // A look has found no answer.
  void OnInVain() { ++in_vain_; }
  bool is_stuck() const { return in_vain_ >= kLooks * 3 / 5; }

 private:
  static constexpr int kLooks = 20;  // in a lease

  const absl::Duration lease_;
  int in_vain_ = 0;
};

class EngineWatch {
 public:
  // From now on repeatedly calls `ask`, which passes a question to the engine; the engine calls
  // `answer`. If the engine is stuck, calls `on_stuck` once, on a separate thread.
  EngineWatch(absl::Duration lease, std::function<void(std::function<void()> answer)> ask,
              std::function<void()> on_stuck);
  ~EngineWatch();

  // For how long a question has waited for its answer.
  absl::Duration busy() const;

 private:
  // An answer may come after the watch is gone.
  struct State {
    MonotonicMutex mutex;
    absl::Time asked_at ABSL_GUARDED_BY(mutex) = absl::InfiniteFuture();  // unless it is answered
    bool is_closing ABSL_GUARDED_BY(mutex) = false;
  };
  void Run();

  StuckRule rule_;
  const std::function<void(std::function<void()> answer)> ask_;
  const std::function<void()> on_stuck_;
  const std::shared_ptr<State> state_ = std::make_shared<State>();
  std::thread thread_;
};

}  // namespace rubato

#endif  // RUBATO_SERVER_PROCESS_ENGINE_WATCH_H_
