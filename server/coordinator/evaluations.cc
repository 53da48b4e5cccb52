#include "server/coordinator/evaluations.h"

#include <iterator>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/space/modes.h"
#include "server/run/figures.h"

namespace rubato {

bool Evaluations::Ask(const WorkerId& worker, int64_t unit, bool is_new, const Lineage& lineage) {
  if (!is_new && asked_.count(unit) == 0) return false;
  if (!IsDue(lineage, unit)) return false;
  asked_[unit] = worker;
  return true;
}

void Evaluations::OnComputed(const WorkerId& worker, const proto::Progress& progress,
                             const Lineage& lineage) {
  const int64_t unit = progress.unit();
  const bool is_tester = progress.first_leaf() == 0 && IsDue(lineage, unit);
  // The result may have come first.
  if (is_tester && !IsTold(unit)) under_way_[unit] = worker;
}

void Evaluations::OnGivenComputed(const WorkerId& worker, int64_t unit) {
  const auto asked = asked_.find(unit);
  if (asked == asked_.end() || !(asked->second == worker)) return;
  under_way_.insert(*asked);
  asked_.erase(asked);
}

bool Evaluations::Expects(const WorkerId& worker, int64_t unit, const Lineage& lineage) const {
  for (const std::map<int64_t, WorkerId>* tests : {&asked_, &under_way_}) {
    const auto test = tests->find(unit);
    if (test != tests->end() && test->second == worker) return true;
  }
  return !OnArrival(lineage.mode()) && lineage.origin() <= unit && unit <= lineage.until() &&
         !IsTold(unit) && IsDue(lineage, unit);
}

void Evaluations::OnLost(const WorkerId& worker) {
  for (auto test = under_way_.begin(); test != under_way_.end();) {
    test = test->second == worker ? under_way_.erase(test) : std::next(test);
  }
}

std::optional<std::string> Evaluations::OnResult(int64_t unit,
                                                 const std::optional<MetricsLine>& line) {
  asked_.erase(unit);
  under_way_.erase(unit);
  told_.insert(unit);
  if (told_.size() > kMostTold) {
    told_below_ = *told_.begin() + 1;
    told_.erase(told_.begin());
  }
  if (!line.has_value()) return std::nullopt;
  // Tests run beside each other, so the result of a later one may come first.
  if (!last_.has_value() || line->due >= last_->due) last_ = line;
  const proto::StopWhen& when = job_.train().stop_when();
  if (!job_.train().has_stop_when()) return std::nullopt;
  const std::optional<double> value = MetricOf(*line, when.metric());
  if (!value.has_value()) return std::nullopt;
  // What is not a number meets nothing.
  const bool is_met = when.has_at_least() ? *value >= when.at_least() : *value <= when.at_most();
  if (!is_met) return std::nullopt;
  return absl::StrFormat("the target is met: %s is %g", when.metric(), *value);
}

std::vector<std::string> Evaluations::OnPassed(const WorkerId& worker, int64_t step, bool is_told,
                                               bool is_final) {
  std::vector<std::string> warnings;
  const bool stops = job_.train().has_stop_when();
  if (!is_told && !is_final && (stops || job_.checkpoint().has_keep_best()) &&
      !std::exchange(has_warned_of_none_, true)) {
    warnings.push_back(absl::StrFormat(
        "nothing was told of the test at step %d, expected %s, by which %s goes: the script's "
        "job.evaluate, called in all workers, tells the job what its test returns",
        step, stops ? job_.train().stop_when().metric() : job_.checkpoint().keep_best().metric(),
        stops ? "train.stop_when" : "checkpoint.keep_best"));
  }
  if (worker.rank == 0) {
    (is_told ? first_tells_ : first_misses_) = true;
  } else if (is_told) {
    others_tell_ = true;
  } else {
    misses_ = worker.rank;
  }
  if (first_tells_ && !first_misses_ && !others_tell_ && misses_.has_value() &&
      !std::exchange(has_warned_of_first_, true)) {
    warnings.push_back(absl::StrFormat(
        "a test was worker %d's, which told nothing, and worker 0 tells of each of its own: "
        "expected job.evaluate in all workers, of which one runs the test, not where job.rank == 0 "
        "alone, and as often as tests are due (evaluation.every)",
        *misses_));
  }
  return warnings;
}

}  // namespace rubato
