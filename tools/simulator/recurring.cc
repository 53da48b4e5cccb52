#include "tools/simulator/recurring.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "common/space/modes.h"
#include "tools/simulator/symbol.h"

namespace rubato {

absl::Status Recurring::OnTest(int64_t unit, bool is_ending) {
  const bool is_new = tested_.insert(unit).second;
  const proto::Point& every = invariants_.job().evaluation().every();
  const bool is_last = is_ending && unit == invariants_.units();
  if (is_new && (is_last || invariants_.IsDue(every, unit))) return absl::OkStatus();
  return absl::InternalError(absl::StrFormat("due: a test is told of at unit %d, %s", unit,
                                             is_new ? "where none is due" : "for the second time"));
}

absl::Status Recurring::OnCheckpoint(const proto::Manifest& manifest, bool is_ending) {
  if (manifest.has_eval_loss() && std::none_of(tested_.begin(), tested_.end(), [&](int64_t unit) {
        return TestLoss(unit) == manifest.eval_loss();
      })) {
    return absl::InternalError(
        absl::StrFormat("tests: by the checkpoint of step %d a test has shown %g; none has",
                        manifest.step(), manifest.eval_loss()));
  }
  const int64_t step = manifest.step();
  const proto::View& view = invariants_.first_lineage();
  const bool is_first = manifest.origin_unit() == view.origin_unit();
  if (!has_checkpoints() || !is_first || OnArrival(view.mode())) return absl::OkStatus();
  written_.insert(step);
  const proto::Point& every = invariants_.job().checkpoint().every();
  if (is_ending || invariants_.IsDue(every, step)) {
    return absl::OkStatus();
  }
  return absl::InternalError(
      absl::StrFormat("due: there is a checkpoint of step %d, where none is due", step));
}

absl::Status Recurring::CheckTests() const {
  const proto::Point& every = invariants_.job().evaluation().every();
  for (int64_t unit = invariants_.begins_with_unit(); unit < invariants_.units(); ++unit) {
    if (!invariants_.IsDue(every, unit) || tested_.count(unit) > 0) continue;
    return absl::InternalError(
        absl::StrFormat("due: nothing is told of the test at unit %d", unit));
  }
  return absl::OkStatus();
}

absl::Status Recurring::CheckFirstCheckpoint() const {
  const proto::View& view = invariants_.first_lineage();
  if (!has_checkpoints() || OnArrival(view.mode())) return absl::OkStatus();
  const proto::Point& every = invariants_.job().checkpoint().every();
  for (int64_t step = invariants_.begins_with_unit(); step < invariants_.EndOf(view); ++step) {
    if (!invariants_.IsDue(every, step)) continue;
    if (written_.count(step) > 0) break;
    return absl::InternalError(
        absl::StrFormat("due: there is no checkpoint of step %d, the first", step));
  }
  return absl::OkStatus();
}

}  // namespace rubato
