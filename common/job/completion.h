// Handles keys that are absent or have no meaning: defaults, required keys, keys that do not apply.
#ifndef RUBATO_COMMON_JOB_COMPLETION_H_
#define RUBATO_COMMON_JOB_COMPLETION_H_

#include "common/job/report.h"
#include "google/protobuf/message.h"

namespace rubato {

// Sets every key of `message` that has a default and no value; a message that is absent is filled
// if defaults alone make it whole. Reports required keys that are missing, and keys that do not
// apply given the values of other keys (see `when` in proto/options.proto), which it clears.
// Reports no second mistake for a key.
void Complete(google::protobuf::Message* message, Report* report);

}  // namespace rubato

#endif  // RUBATO_COMMON_JOB_COMPLETION_H_
