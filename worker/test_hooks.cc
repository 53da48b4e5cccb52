#include "worker/test_hooks.h"

#include <cstdlib>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"

namespace rubato {

TestHooks::TestHooks() {
  int64_t unit = 0;
  const char* hang = std::getenv("RUBATO_TEST_HANG_AT_UNIT");
  if (hang != nullptr && absl::SimpleAtoi(hang, &unit)) hangs_at_unit_ = unit;
  if (const char* compute = std::getenv("RUBATO_TEST_COMPUTE_MS")) {
    for (const absl::string_view part : absl::StrSplit(compute, ',', absl::SkipEmpty())) {
      const std::vector<absl::string_view> words = absl::StrSplit(part, ':');
      const std::vector<absl::string_view> times = absl::StrSplit(words.back(), '+');
      int rank = -1, each = 0, more = 0;
      if (words.size() > 1 && !absl::SimpleAtoi(words[0], &rank)) continue;
      if (!absl::SimpleAtoi(times[0], &each)) continue;
      if (times.size() > 1 && !absl::SimpleAtoi(times[1], &more)) continue;
      compute_[rank] = {absl::Milliseconds(each), absl::Milliseconds(more)};
    }
  }
  if (const char* folder = std::getenv("RUBATO_TEST_TRACE")) trace_folder_ = folder;
}

void TestHooks::OnMember(int rank) {
  const auto own = compute_.find(compute_.count(rank) != 0 ? rank : -1);
  pace_ = own == compute_.end() ? Pace() : own->second;
  if (!trace_folder_.empty() && !trace_.is_open()) {
    trace_.open(absl::StrCat(trace_folder_, "/worker-", rank));
  }
}

void TestHooks::OnCompute(int64_t lineage, int64_t clock, int64_t unit) {
  if (hangs_at_unit_.has_value() && unit >= *hangs_at_unit_) {
    absl::SleepFor(absl::InfiniteDuration());
  }
  if (trace_.is_open()) {
    trace_ << absl::StrCat("compute ", lineage, " ", clock, " ", unit, "\n") << std::flush;
  }
  if (pace_.each == absl::ZeroDuration()) return;
  const absl::Time now = absl::Now();
  computed_ += pace_.each;
  // The first one, or it has waited for others.
  if (computed_ < now) computed_ = now + pace_.each + std::exchange(pace_.more, {});
  absl::SleepFor(computed_ - now);
}

void TestHooks::OnPulled(int64_t clock, int64_t block, int64_t version, int64_t staleness) {
  if (!trace_.is_open()) return;
  trace_ << absl::StrCat("pull ", clock, " ", block, " ", version, " ", staleness, "\n")
         << std::flush;
}

}  // namespace rubato
