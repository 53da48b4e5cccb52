// The keys of a job. One secret is drawn for a job; each role has a key that is derived from it, so
// that a process holds no more than it needs: servers the secret, workers the workers' key.
#ifndef RUBATO_COMMON_WIRE_KEY_H_
#define RUBATO_COMMON_WIRE_KEY_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace rubato {

// The roles of callers of a server. The numbers are sent over the wire.
enum class Role : uint8_t {
  kObserver = 1,  // may ask how the job stands
  kOperator = 2,  // may change it, too
  kWorker = 3,    // takes part as a worker
  kServer = 4,    // may do all that anybody may
};

constexpr Role kRoles[] = {Role::kObserver, Role::kOperator, Role::kWorker, Role::kServer};

// "observer", "operator", "worker", "server".
absl::string_view RoleName(Role role);
// Of a byte that a peer has sent.
std::optional<Role> RoleOf(uint8_t number);

class JobKey {
 public:
  // A secret that nobody can guess.
  static JobKey DrawSecret();
  // Reads "secret-<64 hexadecimal digits>" or "worker-<...>", with white space around it.
  // InvalidArgument, without the text, if it is none.
  static absl::StatusOr<JobKey> Parse(absl::string_view text);

  // As Parse reads it. To be written to files that only their owner may read, never to a log.
  std::string ToText() const;

  bool is_secret() const { return !role_.has_value(); }
  // The key of `role`: a secret gives the key of any role, a role's key only itself.
  // PermissionDenied for another role.
  absl::StatusOr<JobKey> Of(Role role) const;
  // The role of the key; kServer for the secret.
  Role role() const { return role_.value_or(Role::kServer); }
  // 32 bytes.
  const std::string& bytes() const { return bytes_; }

 private:
  JobKey(std::optional<Role> role, std::string bytes) : role_(role), bytes_(std::move(bytes)) {}

  std::optional<Role> role_;  // none: the secret
  std::string bytes_;
};

// Where a process finds its key: RUBATO_KEY has the text, or RUBATO_KEY_FILE the name of a file
// with it. Nothing if neither is set to something. FailedPrecondition, naming the variable or the
// file, if what is there cannot be read, is no key, or others than its owner may read the file.
absl::StatusOr<std::optional<JobKey>> FindKey(
    absl::FunctionRef<const char*(const char* name)> environment);

// The key in a file. Errors as FindKey.
absl::StatusOr<JobKey> ReadKeyFile(const std::string& path);

}  // namespace rubato

#endif  // RUBATO_COMMON_WIRE_KEY_H_
