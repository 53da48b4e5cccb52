#include "common/base/exit_code.h"

#include <signal.h>
#include <string.h>

#include <string>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"

namespace rubato {
namespace {

constexpr char kSignalPayload[] = "rubato.signal";
constexpr char kStoppedPayload[] = "rubato.stopped";

}  // namespace

// Exit codes, which docs/reference/run_folder.md has from here:
//   0    done
//   1    failed, and repeating may help: a server cannot be reached, a port is in use, a disk is
//        full, a loss is not finite
//   2    failed, and repeating cannot help: a mistake in the job or the flags, missing data, shapes
//        that do not fit; of a server also if nobody else came than who is refused
//   75   of a script: it has lost its `rubato-worker` or the servers, and nothing is wrong with it
//   129  ended by SIGHUP: its terminal was closed
//   130  ended by Ctrl-C (SIGINT)
//   143  ended by SIGTERM
int ExitCode(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return 0;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kAlreadyExists:
      return kExitUsage;
    case absl::StatusCode::kCancelled: {
      int signal = SIGINT;
      if (const auto payload = status.GetPayload(kSignalPayload)) {
        RUBATO_CHECK(absl::SimpleAtoi(std::string(*payload), &signal));
      }
      return 128 + signal;
    }
    default:
      return kExitFailure;
  }
}

absl::Status InterruptedBy(int signal) {
  absl::Status status =
      absl::CancelledError(absl::StrCat("interrupted by SIG", sigabbrev_np(signal)));
  status.SetPayload(kSignalPayload, absl::Cord(absl::StrCat(signal)));
  return status;
}

absl::Status StoppedByOthers(absl::Status status) {
  if (!status.ok()) status.SetPayload(kStoppedPayload, absl::Cord());
  return status;
}

bool IsStoppedByOthers(const absl::Status& status) {
  return status.GetPayload(kStoppedPayload).has_value();
}

absl::Status ToldToStop(int exit_code, absl::string_view reason, bool refused) {
  if (exit_code == 0) return absl::OkStatus();
  const absl::Status status =
      exit_code == kExitUsage ? absl::FailedPreconditionError(reason) : absl::AbortedError(reason);
  return refused ? status : StoppedByOthers(status);
}

}  // namespace rubato
