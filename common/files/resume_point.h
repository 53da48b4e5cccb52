// Which checkpoint a job goes on from, by checkpoint.resume and --resume.
#ifndef RUBATO_COMMON_FILES_RESUME_POINT_H_
#define RUBATO_COMMON_FILES_RESUME_POINT_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/job.pb.h"

namespace rubato {

// The folder of the runs that `rubato train` makes.
inline constexpr char kRuns[] = "runs";

// Whether `flag`, the value of --resume, is a word that checkpoint.resume takes.
bool IsResumeMode(const std::string& flag);

// Whether `flag`, as below, asks for the newest run of the job's name.
bool AsksForNewest(const proto::Job& job, const std::string& flag);

// What to say where there is none.
std::string NoneFound(const proto::Job& job, const std::string& runs);

// The path of a checkpoint; empty: from the beginning. `flag` is the value of --resume: empty for
// what the job says, `never`, `auto`, `required`, or a run or checkpoint. For `auto` and `required`
// it is the newest whole checkpoint of the newest run under `runs` that has one, of those that
// are called NAME-... or of whose job the state says that name. A run that has no whole one of its
// own stands for the checkpoint that it began from.
// The path has no links in it, such as runs/latest. `warnings` as FindCheckpoint. NotFound if there
// is none where one is required; else as FindCheckpoint.
absl::StatusOr<std::string> ResumePoint(const proto::Job& job, const std::string& flag,
                                        const std::string& runs,
                                        std::vector<std::string>* warnings);

}  // namespace rubato

#endif  // RUBATO_COMMON_FILES_RESUME_POINT_H_
