// What a job that goes on from a checkpoint tests on.
#ifndef RUBATO_COMMON_JOB_MIXED_SPLITS_H_
#define RUBATO_COMMON_JOB_MIXED_SPLITS_H_

#include <string>
#include <vector>

#include "proto/job.pb.h"

namespace rubato {

// What to warn of where `job` goes on from a checkpoint of the job `before`, with the same examples
// but with others kept for validation or test: the checkpoint may have been trained on those. A
// sentence for each such split.
std::vector<std::string> MixedSplits(const proto::Job& before, const proto::Job& job);

// The same for the job in a file. None if it cannot be read: what another version of Rubato has
// written may be none to this one.
std::vector<std::string> MixedSplits(const std::string& job_file, const proto::Job& job);

}  // namespace rubato

#endif  // RUBATO_COMMON_JOB_MIXED_SPLITS_H_
