// What a script and its worker process say to each other before the worker registers.
#ifndef RUBATO_WORKER_SCRIPT_SCRIPT_OPENING_H_
#define RUBATO_WORKER_SCRIPT_SCRIPT_OPENING_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/cluster.pb.h"
#include "proto/job.pb.h"
#include "worker/script/script_channel.h"

namespace rubato {

struct ScriptOpening {
  proto::Job job;  // with the script's optimizer, and what it reads ahead
  proto::WorkerRegistration registration;
  ScriptAbilities abilities;
};

// Tells the script the job, and hears what it brings; its memory is mapped. FailedPrecondition if
// the job's model is not a script's; InvalidArgument, in one sentence, if what the script says is
// nonsense; Unavailable if it has gone.
absl::StatusOr<ScriptOpening> OpenScript(const proto::Job& job, ScriptChannel* channel);

// Tells the script that nothing follows, and why. Returns when the script has heard that the job is
// done, or has gone.
void EndScript(const absl::Status& status, ScriptChannel* channel);

}  // namespace rubato

#endif  // RUBATO_WORKER_SCRIPT_SCRIPT_OPENING_H_
