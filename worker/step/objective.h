// What a job's model is to learn from the job's data.
#ifndef RUBATO_WORKER_STEP_OBJECTIVE_H_
#define RUBATO_WORKER_STEP_OBJECTIVE_H_

#include "absl/status/statusor.h"
#include "proto/job.pb.h"
#include "worker/data/load.h"
#include "worker/model/loss.h"

namespace rubato {

// Errors as ObjectiveFor.
absl::StatusOr<Objective> ObjectiveOf(const proto::Job& job, const Data& data);

}  // namespace rubato

#endif  // RUBATO_WORKER_STEP_OBJECTIVE_H_
