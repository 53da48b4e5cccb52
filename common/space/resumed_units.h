// Whether a job can go on with the units of work that a checkpoint counts.
#ifndef RUBATO_COMMON_SPACE_RESUMED_UNITS_H_
#define RUBATO_COMMON_SPACE_RESUMED_UNITS_H_

#include "absl/status/status.h"
#include "proto/checkpoint.pb.h"
#include "proto/job.pb.h"

namespace rubato {

// FailedPrecondition if the checkpoint is of contributions on arrival and the job's are of another
// size, or its blocks are. One of sync fits every job.
absl::Status CheckResumedUnits(const proto::Job& job, const proto::Manifest& checkpoint);

}  // namespace rubato

#endif  // RUBATO_COMMON_SPACE_RESUMED_UNITS_H_
