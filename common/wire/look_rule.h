// When to look for an event before sleeping until it comes. A look saves what waking up costs
// (from 5 us to 80 us on virtual machines), and is in vain where the event takes longer.
#ifndef RUBATO_COMMON_WIRE_LOOK_RULE_H_
#define RUBATO_COMMON_WIRE_LOOK_RULE_H_

#include <algorithm>
#include <cstdint>

namespace rubato {

// Of one thread. Decides, and knows no clock.
class LookRule {
 public:
  // How long to look at a peer that does nothing.
  static constexpr int64_t kNanos = 50000;

  // Whether to look during the wait that begins. After a look in vain the next wait goes without;
  // after several in a row, up to kMostLeftOut do.
  bool MayLook() {
    if (to_leave_out_ == 0) return true;
    --to_leave_out_;
    return false;
  }

  // A look has ended: with the event, or in vain.
  void OnLooked(bool found) {
    left_out_ = found ? 0 : std::min(2 * left_out_ + 1, kMostLeftOut);
    to_leave_out_ = left_out_;
  }

 private:
  static constexpr int kMostLeftOut = 255;
  int left_out_ = 0;  // for each look in vain
  int to_leave_out_ = 0;
};

}  // namespace rubato

#endif  // RUBATO_COMMON_WIRE_LOOK_RULE_H_
