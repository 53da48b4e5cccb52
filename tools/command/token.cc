#include "tools/command/token.h"

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/wire/key.h"

namespace rubato {

absl::StatusOr<std::string> TokenText(const std::string& role, const std::string& from) {
  if (role.empty() != from.empty()) {
    return absl::InvalidArgumentError(
        "--role and --from belong together: a role's key is made of a secret");
  }
  if (role.empty()) return absl::StrCat(JobKey::DrawSecret().ToText(), "\n");
  for (const Role known : {Role::kWorker, Role::kOperator, Role::kObserver}) {
    if (role != RoleName(known)) continue;
    RUBATO_ASSIGN_OR_RETURN(const JobKey secret, ReadKeyFile(from));
    RUBATO_ASSIGN_OR_RETURN(const JobKey key, secret.Of(known));
    return absl::StrCat(key.ToText(), "\n");
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--role: found ", role, ", expected worker, operator or observer"));
}

}  // namespace rubato
