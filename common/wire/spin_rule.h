// When to spin, asking again and again for an event, before sleeping until it comes. Spinning saves
// the cost of waking up (5 us to 80 us on virtual machines), and is wasted if the event takes
// longer. Each rule belongs to one thread; rules only decide and read no clock.
#ifndef RUBATO_COMMON_WIRE_SPIN_RULE_H_
#define RUBATO_COMMON_WIRE_SPIN_RULE_H_

#include <algorithm>
#include <cstdint>

namespace rubato {

// How long to spin for a peer that does nothing: a few times what a system call and waking up cost.
constexpr int64_t kSpinNanos = 50000;
// Through gRPC: about as long as a peer takes to handle a message, until it makes room for the
// next.
constexpr int64_t kQueueSpinNanos = 100000;

// For events of a completion queue.
class SpinRule {
 public:
  // Whether to spin during the wait that begins. After a wasted spin the next wait does not spin;
  // after several in a row, up to kMaxLeftOut waits do not.
  bool MaySpin() {
    if (to_leave_out_ == 0) return true;
    --to_leave_out_;
    return false;
  }

  // A spin begins at `now` (nanoseconds).
  void Begin(int64_t now) { begin_ = moved_ = asked_ = now; }
  // The queue has been asked for an event, in vain: whether to ask once more.
  bool MayAskAgain(int64_t now) {
    if (now - asked_ > kQuestionNanos) moved_ = now;
    asked_ = now;
    return now - moved_ < kQueueSpinNanos && now - begin_ < kMaxSpinNanos;
  }

  // A spin has ended: with the event, or in vain.
  void OnSpun(bool found) {
    left_out_ = found ? 0 : std::min(2 * left_out_ + 1, kMaxLeftOut);
    to_leave_out_ = left_out_;
  }

 private:
  // A question that takes longer has moved bytes, of an event that is not whole yet.
  static constexpr int64_t kQuestionNanos = 4000;
  // A spin ends for good then: enough for a message, and a bound where each question takes so long.
  static constexpr int64_t kMaxSpinNanos = 1000000;
  static constexpr int kMaxLeftOut = 255;

  int64_t begin_ = 0;
  int64_t moved_ = 0;
  int64_t asked_ = 0;
  int left_out_ = 0;  // for each spin in vain
  int to_leave_out_ = 0;
};

// For a peer that shares memory, of which one knows where it last waited.
class LinkSpinRule {
 public:
  bool waits() const { return waits_since_ >= 0; }
  // There is nothing to do from `now` (nanoseconds) on. Spinning for a peer on the same processor
  // would only keep it from running, and where the last wait was longer than a spin, this one
  // mostly is.
  void OnWait(int64_t now, bool on_same_processor) {
    waits_since_ = spins_until_ = now;
    if (last_was_short_ && !on_same_processor) spins_until_ += kSpinNanos;
  }
  // Whether to spin on while it waits.
  bool MaySpin(int64_t now) const { return now < spins_until_; }
  // The wait has ended.
  void OnWork(int64_t now) {
    last_was_short_ = now - waits_since_ < kSpinNanos;
    waits_since_ = -1;
  }

 private:
  int64_t waits_since_ = -1;
  int64_t spins_until_ = -1;
  bool last_was_short_ = true;
};

}  // namespace rubato

#endif  // RUBATO_COMMON_WIRE_SPIN_RULE_H_
