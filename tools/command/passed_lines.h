// How many lines of a script a launcher passes on to the terminal: up to a limit of bytes a second,
// so that one that prints without end slows nothing down. Counts the others.
#ifndef RUBATO_TOOLS_COMMAND_PASSED_LINES_H_
#define RUBATO_TOOLS_COMMAND_PASSED_LINES_H_

#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/time/time.h"

namespace rubato {

class PassedLines {
 public:
  static constexpr size_t kMostBytes = 1 << 16;  // what a large model prints of itself
  static constexpr absl::Duration kPeriod = absl::Seconds(1);

  // Whether a line of so many bytes that has come at `now`, on a clock that never steps back, is
  // passed on. After one that is not, none is until the period is over.
  bool Passes(size_t bytes, absl::Time now) {
    if (now - since_ >= kPeriod) {
      bytes_ = 0;
      since_ = now;
    }
    bytes_ += bytes;
    if (bytes_ <= kMostBytes) return true;
    ++skipped_;
    bytes_ = kMostBytes;
    return false;
  }

  // How many lines were not, when it is time to say so; forgets them.
  int64_t TakeSkipped(absl::Time now) {
    return now - since_ >= kPeriod ? std::exchange(skipped_, 0) : 0;
  }

 private:
  size_t bytes_ = 0;  // of the period
  int64_t skipped_ = 0;
  absl::Time since_ = absl::InfinitePast();
};

}  // namespace rubato

#endif  // RUBATO_TOOLS_COMMAND_PASSED_LINES_H_
