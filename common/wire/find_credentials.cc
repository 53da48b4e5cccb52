#include "common/wire/find_credentials.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"

namespace rubato {
namespace {

absl::Status NoKey(Role role) {
  const absl::string_view how =
      role == Role::kServer ? "a server needs the job's secret, which `rubato token` makes"
                            : "a worker needs its key: the run's file worker-key, or what `rubato "
                              "token --role worker --from` makes of the secret";
  return absl::FailedPreconditionError(absl::StrCat(
      "security.mode is token, and neither RUBATO_KEY_FILE nor RUBATO_KEY is set: ", how,
      ". Where all who reach the job's ports are trusted, security.mode: none "
      "asks nobody for a key"));
}

absl::Status NoCertificate(Role role) {
  const absl::string_view name = RoleName(role);
  return absl::FailedPreconditionError(absl::StrCat(
      "security.mode is mtls, and RUBATO_CERTIFICATES is not set: a ", name,
      " needs the folder with its certificate, DIR/", name, " of `rubato certificates --out DIR`"));
}

}  // namespace

absl::StatusOr<Credentials> FindCredentials(
    SecurityMode mode, Role role, absl::FunctionRef<const char*(const char* name)> environment) {
  if (mode == SecurityMode::kNone) return Credentials();
  if (mode == SecurityMode::kMtls) {
    const char* const folder = environment("RUBATO_CERTIFICATES");
    if (folder == nullptr || *folder == '\0') return NoCertificate(role);
    absl::StatusOr<Credentials> found = Credentials::FromCertificates(folder, role);
    if (found.ok()) return found;
    return absl::Status(found.status().code(),
                        absl::StrCat("RUBATO_CERTIFICATES: ", found.status().message()));
  }
  RUBATO_ASSIGN_OR_RETURN(const std::optional<JobKey> key, FindKey(environment));
  if (!key.has_value()) return NoKey(role);
  if (role != Role::kServer) {
    RUBATO_ASSIGN_OR_RETURN(const JobKey own, key->Of(role));
    return Credentials(own);
  }
  if (key->is_secret()) return Credentials(*key);
  return absl::FailedPreconditionError(absl::StrCat(
      "a server needs the job's secret; found the key of the role ", RoleName(key->role())));
}

}  // namespace rubato
