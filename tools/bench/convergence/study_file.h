// A study as a YAML file, for those who keep experiments in git: keys are named as the flags of
// `rubato bench convergence`.
#ifndef RUBATO_TOOLS_BENCH_CONVERGENCE_STUDY_FILE_H_
#define RUBATO_TOOLS_BENCH_CONVERGENCE_STUDY_FILE_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace rubato {

struct StudyFile {
  std::string config;              // the job's file, as if typed
  std::vector<std::string> flags;  // "--mode=sync", in the order of StudyFile's fields
};

// What `path` says, if it is a study: a map with the key `config`, which no job has. nullopt for
// anything else, a job or a file that cannot be read, which is for LoadJob to judge.
// InvalidArgument with a line for each mistake, as LoadJob's.
absl::StatusOr<std::optional<StudyFile>> ReadStudyFile(const std::string& path);

// The flags of `file` that are not in `typed`, followed by `typed`: a flag on the command line
// replaces all values of that flag in the file. For --set all are kept, and the later one counts.
std::vector<std::string> WithStudyFile(const StudyFile& file,
                                       const std::vector<std::string>& typed);

}  // namespace rubato

#endif  // RUBATO_TOOLS_BENCH_CONVERGENCE_STUDY_FILE_H_
