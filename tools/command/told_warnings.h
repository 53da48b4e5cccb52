// Which warnings of its processes a launcher repeats: each text once an hour, whichever process it
// comes from, and only a limited number in an hour.
#ifndef RUBATO_TOOLS_COMMAND_TOLD_WARNINGS_H_
#define RUBATO_TOOLS_COMMAND_TOLD_WARNINGS_H_

#include <cstddef>
#include <set>
#include <string>
#include <utility>

#include "absl/time/time.h"

namespace rubato {

class ToldWarnings {
 public:
  static constexpr size_t kMost = 50;
  static constexpr absl::Duration kPeriod = absl::Hours(1);

  enum class Answer {
    kTell,
    kTellOfMore,  // that there are more, in place of this one
    kKeep,        // tell nothing
  };

  // Of a warning that the launcher has told of its own: not repeated from any process.
  void IsTold(std::string warning) { known_.insert(std::move(warning)); }

  // Of a warning that has come at `now`, on a clock that never steps back.
  Answer On(const std::string& warning, absl::Time now) {
    if (known_.count(warning) > 0) return Answer::kKeep;
    if (now - since_ >= kPeriod) {
      told_.clear();
      since_ = now;
    }
    if (told_.size() > kMost || !told_.insert(warning).second) return Answer::kKeep;
    return told_.size() > kMost ? Answer::kTellOfMore : Answer::kTell;
  }

 private:
  std::set<std::string> known_;
  std::set<std::string> told_;
  absl::Time since_ = absl::InfinitePast();
};

}  // namespace rubato

#endif  // RUBATO_TOOLS_COMMAND_TOLD_WARNINGS_H_
