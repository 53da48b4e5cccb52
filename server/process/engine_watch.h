// Notices a server that is alive but stuck: something waits for its engine, the threads on which
// its shard runs (that of the queue, and one for each worker that shares memory) and of shard 0 the
// coordinator's, and it does not come to it.
#ifndef RUBATO_SERVER_PROCESS_ENGINE_WATCH_H_
#define RUBATO_SERVER_PROCESS_ENGINE_WATCH_H_

#include <functional>
#include <memory>
#include <thread>

#include "absl/time/time.h"
#include "common/base/monotonic.h"

namespace rubato {

// When an engine counts as stuck: a question is not answered for three fifths of `lease` in which
// the watch ran. A process that was frozen as a whole was not stuck; and who is stuck says so
// before others are blamed, whose heartbeats it may not hear any more: the last of them may have
// come a HeartbeatInterval before it got stuck.
class StuckRule {
 public:
  explicit StuckRule(absl::Duration lease) : lease_(lease) {}

  // How often the watch looks: a freeze of the whole process is one look at most.
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
  // From now on has `ask` bring a question to the engine, which calls `answer`, again and again.
  // Calls `on_stuck` once, on a thread of its own, if it is stuck.
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
