#include "server/optimizers/resumed_slots.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status.h"
#include "server/optimizers/optimizer.h"

namespace rubato {

absl::StatusOr<std::string> MatchSlots(const proto::Job& job, proto::Manifest* checkpoint) {
  RUBATO_ASSIGN_OR_RETURN(const Optimizer optimizer, Optimizer::Create(ServerOptimizer(job)));
  const std::vector<std::string> found(checkpoint->slots().begin(), checkpoint->slots().end());
  if (found == optimizer.slots()) return "";
  checkpoint->clear_slots();
  for (proto::BlockState& block : *checkpoint->mutable_blocks()) {
    block.set_skipped(block.version());
  }
  const auto names = [](const std::vector<std::string>& slots) {
    return slots.empty() ? "nothing" : absl::StrJoin(slots, ", ");
  };
  return absl::StrCat("the optimizer begins anew: the checkpoint holds ", names(found),
                      " for it, and this job's servers keep ", names(optimizer.slots()));
}

}  // namespace rubato
