// Jobs whose model is a script's.
#ifndef RUBATO_COMMON_JOB_IS_SCRIPT_H_
#define RUBATO_COMMON_JOB_IS_SCRIPT_H_

#include "proto/job.pb.h"

namespace rubato {

// Whether a script brings the job's model, and with it data, loss and optimizer.
inline bool IsScript(const proto::Job& job) {
  return job.model().preset() == proto::Model::PRESET_SCRIPT;
}

}  // namespace rubato

#endif  // RUBATO_COMMON_JOB_IS_SCRIPT_H_
