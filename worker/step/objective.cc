#include "worker/step/objective.h"

#include <algorithm>

#include "common/base/status.h"

namespace rubato {

absl::StatusOr<Objective> ObjectiveOf(const proto::Job& job, const Data& data) {
  const Dataset& train = data.train;
  RUBATO_ASSIGN_OR_RETURN(
      Objective objective,
      ObjectiveFor(job.loss(), train.classes(), train.target_values(), train.labels_each()));
  int64_t most = 1;
  for (const Dataset* split : {&data.train, &data.validation, &data.test}) {
    if (split->size() == 0) continue;
    const int64_t symbols = split->Symbols();
    most = symbols == 0 || most == 0 ? 0 : std::max(most, symbols);
  }
  objective.symbols = most;
  // Every character of a text, where it stands.
  if (most > 0 && train.labels_each() > 1) objective.symbols = std::max(most, train.classes());
  return objective;
}

}  // namespace rubato
