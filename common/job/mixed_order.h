// In which order a job that goes on from a checkpoint reads its samples.
#ifndef RUBATO_COMMON_JOB_MIXED_ORDER_H_
#define RUBATO_COMMON_JOB_MIXED_ORDER_H_

#include <string>

#include "proto/checkpoint.pb.h"
#include "proto/job.pb.h"

namespace rubato {

// What to warn of where `job` goes on within an epoch that was begun in the order of another seed.
// Empty: the epoch's samples come once each.
std::string MixedOrder(const proto::Manifest& checkpoint, const proto::Job& job);

}  // namespace rubato

#endif  // RUBATO_COMMON_JOB_MIXED_ORDER_H_
