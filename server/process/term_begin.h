// The initial state of a term of a job (proto/run_state.proto). If the run continues after its
// servers or its coordinator were lost: the newest complete checkpoint of the run itself. Else the
// checkpoint that the job is told to resume from, if any.
#ifndef RUBATO_SERVER_PROCESS_TERM_BEGIN_H_
#define RUBATO_SERVER_PROCESS_TERM_BEGIN_H_

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "common/base/log.h"
#include "common/files/folder_lock.h"
#include "common/files/run_folder.h"
#include "proto/job.pb.h"
#include "server/coordinator/coordinator.h"
#include "server/process/server_options.h"

namespace rubato {

struct TermBegin {
  Coordinator::Begin begin;
  // Which the shell sends, if begin.initial.
  std::string initial_file;
  // Of a run that goes on.
  std::optional<FolderLock> lock;
  // options.run_dir, with what was in it before this process.
  RunFolder folder{""};
};

// AlreadyExists if options.run_dir holds a run that has ended, FailedPrecondition if it is of
// another job or another server holds it; errors of checkpoints. A damaged checkpoint of the run's
// own is set aside.
absl::StatusOr<TermBegin> FindTermBegin(const proto::Job& job, const ServerOptions& options,
                                        const std::string& job_digest, const Log& log);

// Whether options.run_dir holds a run of the job that has ended well: then there is nothing to do.
absl::StatusOr<bool> HasEndedWell(const std::string& run_dir, const std::string& job_digest);

// A new folder under runs/, or options.run_dir, which exists: for a run that begins.
// `there` is that of TermBegin.
absl::StatusOr<RunFolder> OpenRunFolder(const proto::Job& job, const ServerOptions& options,
                                        RunFolder there);

}  // namespace rubato

#endif  // RUBATO_SERVER_PROCESS_TERM_BEGIN_H_
