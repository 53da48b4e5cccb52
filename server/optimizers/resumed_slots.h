// What the optimizer of a job takes of a checkpoint.
#ifndef RUBATO_SERVER_OPTIMIZERS_RESUMED_SLOTS_H_
#define RUBATO_SERVER_OPTIMIZERS_RESUMED_SLOTS_H_

#include <string>

#include "absl/status/statusor.h"
#include "proto/checkpoint.pb.h"
#include "proto/job.pb.h"

namespace rubato {

// A job may resume from a checkpoint of another optimizer, or of one whose momentum is kept by the
// workers: then its own optimizer starts afresh. Unless the checkpoint's slots are those of the
// job's servers, drops them, and counts no update of a block as the optimizer's: its next is its
// first. Returns a sentence for people if so, else "". `job` has the optimizer, a script's too
// (WithOptimizerOf).
absl::StatusOr<std::string> MatchSlots(const proto::Job& job, proto::Manifest* checkpoint);

}  // namespace rubato

#endif  // RUBATO_SERVER_OPTIMIZERS_RESUMED_SLOTS_H_
