#include "worker/process/test_hooks.h"

#include <cmath>
#include <cstdlib>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "common/base/random.h"

namespace rubato {

TestHooks::TestHooks() {
  int64_t unit = 0;
  const char* hang = std::getenv("RUBATO_TEST_HANG_AT_UNIT");
  if (hang != nullptr && absl::SimpleAtoi(hang, &unit)) hangs_at_unit_ = unit;
  if (const char* compute = std::getenv("RUBATO_TEST_COMPUTE_MS")) {
    for (const absl::string_view part : absl::StrSplit(compute, ',', absl::SkipEmpty())) {
      const std::vector<absl::string_view> words = absl::StrSplit(part, ':');
      absl::string_view text = words.back();
      const bool exponential = absl::ConsumePrefix(&text, "exp");
      const std::vector<absl::string_view> times = absl::StrSplit(text, '+');
      int rank = -1, each = 0, more = 0;
      if (words.size() > 1 && !absl::SimpleAtoi(words[0], &rank)) continue;
      if (!absl::SimpleAtoi(times[0], &each)) continue;
      if (times.size() > 1 && !absl::SimpleAtoi(times[1], &more)) continue;
      compute_[rank] = {absl::Milliseconds(each), absl::Milliseconds(more), exponential};
    }
  }
  if (const char* folder = std::getenv("RUBATO_TEST_TRACE")) trace_folder_ = folder;
}

void TestHooks::OnMember(int rank) {
  rank_ = rank;
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
  absl::Duration each = pace_.each;
  if (pace_.exponential) {
    const uint32_t bits = RandomBits(Key(0, "pace", static_cast<uint64_t>(rank_)), computations_++);
    each *= -std::log((bits + 0.5) * 0x1p-32);
  }
  const absl::Time now = absl::Now();
  computed_ += each;
  // The first one, or it has waited for others.
  if (computed_ < now) computed_ = now + each + std::exchange(pace_.more, {});
  absl::SleepFor(computed_ - now);
}

void TestHooks::OnPulled(int64_t clock, int64_t block, int64_t version, int64_t staleness) {
  if (!trace_.is_open()) return;
  trace_ << absl::StrCat("pull ", clock, " ", block, " ", version, " ", staleness, "\n")
         << std::flush;
}

}  // namespace rubato
