#ifndef RUBATO_COMMON_JOB_CONTRADICTIONS_H_
#define RUBATO_COMMON_JOB_CONTRADICTIONS_H_

#include "common/job/report.h"
#include "proto/job.pb.h"

namespace rubato {

// Reports contradictions between keys of a complete job, which the ranges of single keys cannot
// show. Reports no second mistake for a key.
void CheckContradictions(const proto::Job& job, Report* report);

}  // namespace rubato

#endif  // RUBATO_COMMON_JOB_CONTRADICTIONS_H_
