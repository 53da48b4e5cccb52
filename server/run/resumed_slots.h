// What the optimizer of a job takes of a checkpoint.
#ifndef RUBATO_SERVER_RUN_RESUMED_SLOTS_H_
#define RUBATO_SERVER_RUN_RESUMED_SLOTS_H_

#include <string>

#include "absl/status/statusor.h"
#include "proto/checkpoint.pb.h"
#include "proto/job.pb.h"

namespace rubato {

// A job may resume from a checkpoint of another optimizer, or of one whose momentum is kept by the
// workers: then its own optimizer starts afresh. Drops the checkpoint's slots unless they are those
// of the job's servers. Returns a sentence for people if it does, or if the servers need slots that
// the checkpoint lacks, else "".
absl::StatusOr<std::string> MatchSlots(const proto::Job& job, proto::Manifest* checkpoint);

}  // namespace rubato

#endif  // RUBATO_SERVER_RUN_RESUMED_SLOTS_H_
