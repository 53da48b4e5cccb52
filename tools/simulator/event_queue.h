// Virtual time: a queue of future events, in order. Events at the same instant happen in the order
// in which they were scheduled, so that a simulation is a function of its inputs alone.
#ifndef RUBATO_TOOLS_SIMULATOR_EVENT_QUEUE_H_
#define RUBATO_TOOLS_SIMULATOR_EVENT_QUEUE_H_

#include <cstdint>
#include <limits>
#include <vector>

#include "common/pace/quantity.h"

namespace rubato {

// Nanoseconds since the start of the simulation, or between two instants.
using SimTime = int64_t;
constexpr SimTime kNever = std::numeric_limits<SimTime>::max();
constexpr SimTime kMicrosecond = 1000;
constexpr SimTime kMillisecond = 1000 * kMicrosecond;
constexpr SimTime kSecond = 1000 * kMillisecond;
// The longest time that a user may request or simulate; sums and multiples of it do not overflow.
constexpr SimTime kLongest = kLongestNanos;

class EventQueue {
 public:
  class Handler {
   public:
    virtual void OnEvent(uint64_t argument) = 0;

   protected:
    ~Handler() = default;
  };

  // Events that repeat forever regardless of work (a tick, a heartbeat) are background: the
  // simulation ends when no other events are left.
  enum class Kind { kWork, kBackground };

  SimTime now() const { return now_; }
  // Events that are to happen and are not background.
  int64_t work() const { return work_; }
  int64_t happened() const { return happened_; }

  // Calls handler->OnEvent(argument) at `time`, or now if that is past.
  void Schedule(SimTime time, Handler* handler, uint64_t argument, Kind kind = Kind::kWork);

  // Lets the next event happen; false if there is none.
  bool RunNext();

 private:
  // A heap with four children a node: fewer levels, and siblings share cache lines. A thousand
  // workers on 64 shards keep about 100,000 events here.
  struct Event {
    SimTime time;    // 0 at least
    uint64_t order;  // of scheduling, times two, plus one for background
    Handler* handler;
    uint64_t argument;

    // One number, so that the least of four is found without unpredictable branches.
    unsigned __int128 key() const {
      return static_cast<unsigned __int128>(static_cast<uint64_t>(time)) << 64 | order;
    }
    bool Before(const Event& other) const { return key() < other.key(); }
  };

  // Puts the event at the root, or below it.
  void SiftDown(const Event& event);

  std::vector<Event> heap_;
  // The first event is being handled, so its place is free. The first event that it schedules takes
  // this place, which saves one pass down the heap and one up.
  bool root_is_free_ = false;
  SimTime now_ = 0;
  uint64_t scheduled_ = 0;
  int64_t work_ = 0;
  int64_t happened_ = 0;
};

}  // namespace rubato

#endif  // RUBATO_TOOLS_SIMULATOR_EVENT_QUEUE_H_
