// Finds the credentials of a process.
#ifndef RUBATO_COMMON_WIRE_FIND_CREDENTIALS_H_
#define RUBATO_COMMON_WIRE_FIND_CREDENTIALS_H_

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "common/wire/credentials.h"
#include "common/wire/key.h"

namespace rubato {

// Numbered as proto::Security::Mode.
enum class SecurityMode { kToken, kMtls, kNone };

// What a process that takes part as `role`, kServer or kWorker, shows in a job of this mode: the
// key in RUBATO_KEY or RUBATO_KEY_FILE (FindKey), or the certificate in the folder that
// RUBATO_CERTIFICATES names. A worker that is given the secret shows its own role's key.
// FailedPrecondition, with what to do, if there is none or another role's.
absl::StatusOr<Credentials> FindCredentials(
    SecurityMode mode, Role role, absl::FunctionRef<const char*(const char* name)> environment);

}  // namespace rubato

#endif  // RUBATO_COMMON_WIRE_FIND_CREDENTIALS_H_
