// How a process ends: exit codes, the errors that stand for them, and how long it may take. Knows
// neither signals nor threads.
#ifndef RUBATO_COMMON_BASE_EXIT_CODE_H_
#define RUBATO_COMMON_BASE_EXIT_CODE_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace rubato {

// Exit codes of a process that failed, and of one that would fail again if repeated, because its
// input is wrong. 0: success; 128 + signal: a signal ended it.
constexpr int kExitFailure = 1;
constexpr int kExitUsage = 2;
// Exit code of a script that has lost its workers and should be started again (EX_TEMPFAIL of
// sysexits.h; python/rubato/errors.py).
constexpr int kExitTryAgain = 75;

// How long a job that is told to end may take for a clean end: to finish its step without the
// processes that do not answer, and to write a checkpoint.
constexpr absl::Duration kStopGrace = absl::Seconds(30);
// The same while who coordinates answers: a large checkpoint takes minutes.
constexpr absl::Duration kLastCheckpoint = absl::Minutes(5);

// 0 for OK; kExitUsage for InvalidArgument, NotFound, FailedPrecondition, OutOfRange and
// AlreadyExists; 128 + signal for InterruptedBy(signal), 130 for any other Cancelled; kExitFailure
// for the rest.
int ExitCode(const absl::Status& status);

// Cancelled, remembering which signal asked.
absl::Status InterruptedBy(int signal);

// The same status, marked to say that this process ends because another one did: it was told to, or
// it lost its peers. Such a reason is printed as `stopped: ` (common/base/log.h), so that the
// launcher can tell a victim from a culprit.
absl::Status StoppedByOthers(absl::Status status);
bool IsStoppedByOthers(const absl::Status& status);

// The status of a process that was told to end with `exit_code`. `refused`: it does not fit the
// job; otherwise the job is over.
absl::Status ToldToStop(int exit_code, absl::string_view reason, bool refused);

}  // namespace rubato

#endif  // RUBATO_COMMON_BASE_EXIT_CODE_H_
