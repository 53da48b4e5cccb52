// The part of reading that is about what is not there: defaults, required keys, keys without a
// meaning.
#ifndef RUBATO_COMMON_JOB_COMPLETION_H_
#define RUBATO_COMMON_JOB_COMPLETION_H_

#include "common/job/report.h"
#include "google/protobuf/message.h"

namespace rubato {

// Sets every key of `message` that has a default and no value; a message that is absent is filled
// if defaults alone make it whole. Reports required keys that are missing, and keys that are given
// but mean nothing beside the values of others (see `when` in proto/options.proto), which it
// clears. What has a mistake already gets no second one.
void Complete(google::protobuf::Message* message, Report* report);

}  // namespace rubato

#endif  // RUBATO_COMMON_JOB_COMPLETION_H_
