#include "server/coordinator/evaluations.h"

#include <iterator>

#include "absl/strings/str_format.h"
#include "common/space/modes.h"
#include "server/run/figures.h"

namespace rubato {

bool Evaluations::Ask(const WorkerId& worker, int64_t unit, bool is_new, const Lineage& lineage) {
  if (!is_new && asked_.count(unit) == 0) return false;
  if (!every_.IsDue(lineage.schedule(), lineage.mode(), unit)) return false;
  asked_[unit] = worker;
  return true;
}

void Evaluations::OnComputed(const WorkerId& worker, const proto::Progress& progress,
                             const Lineage& lineage) {
  const int64_t unit = progress.unit();
  const bool is_tester =
      progress.first_leaf() == 0 && every_.IsDue(lineage.schedule(), lineage.mode(), unit);
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
         !IsTold(unit) && every_.IsDue(lineage.schedule(), lineage.mode(), unit);
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
  last_ = line;
  const proto::StopWhen& when = job_.train().stop_when();
  if (!job_.train().has_stop_when()) return std::nullopt;
  const std::optional<double> value = MetricOf(*line, when.metric());
  if (!value.has_value()) return std::nullopt;
  // What is not a number meets nothing.
  const bool is_met = when.has_at_least() ? *value >= when.at_least() : *value <= when.at_most();
  if (!is_met) return std::nullopt;
  return absl::StrFormat("the target is met: %s is %g", when.metric(), *value);
}

}  // namespace rubato
