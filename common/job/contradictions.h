#ifndef RUBATO_COMMON_JOB_CONTRADICTIONS_H_
#define RUBATO_COMMON_JOB_CONTRADICTIONS_H_

#include "common/job/report.h"
#include "proto/job.pb.h"

namespace rubato {

// Reports contradictions between keys of a job that is complete, which no key's own range can tell.
// A key that has a mistake already is left alone.
void CheckContradictions(const proto::Job& job, Report* report);

}  // namespace rubato

#endif  // RUBATO_COMMON_JOB_CONTRADICTIONS_H_
