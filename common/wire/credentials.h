// How the two ends of a connection prove who they are.
#ifndef RUBATO_COMMON_WIRE_CREDENTIALS_H_
#define RUBATO_COMMON_WIRE_CREDENTIALS_H_

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/wire/authentication.h"
#include "common/wire/grpc_types.h"
#include "common/wire/key.h"

namespace rubato {

class Tls;

// A value that a process makes once and gives to all its channels (channel.h) and to its listener
// (listener.h).
class Credentials {
 public:
  // No authentication: anyone who can reach the process may call it, and it calls anyone.
  Credentials() = default;
  // Authentication by a key: a role's key for a process that only calls; for a server, the secret.
  explicit Credentials(const JobKey& key)
      : key_(key), gate_(key.is_secret() ? std::make_shared<Gate>(key) : nullptr) {}
  // By certificates that have been checked.
  explicit Credentials(std::shared_ptr<const Tls> tls) : tls_(std::move(tls)) {}
  // By the certificate in `folder` (certificates.h), of a process that takes part as `as`. New
  // files in the folder are taken up as they come. Errors as CheckCertificates.
  static absl::StatusOr<Credentials> FromCertificates(const std::string& folder, Role as);
  // As FromCertificates, of the files as they are now; OK without certificates.
  absl::Status Check() const;

  std::shared_ptr<grpc::ChannelCredentials> OfChannel() const;
  std::shared_ptr<grpc::ServerCredentials> OfServer() const;

  bool is_tls() const { return tls_ != nullptr; }
  // Whether this server asks its callers who they are.
  bool asks_callers() const { return gate_ != nullptr || tls_ != nullptr; }
  // The role of the caller that begins a call of `method`; kServer if callers are not
  // authenticated. Unauthenticated if the caller does not prove a role.
  absl::StatusOr<Role> CheckCaller(const grpc::ServerContextBase& context,
                                   absl::string_view method) const;

  // For one connection to a server; none without a key.
  std::optional<Caller> NewCaller() const {
    if (!key_.has_value()) return std::nullopt;
    return Caller(*key_->Of(key_->role()));
  }
  // A role's key, for a server to hand on; none without the secret.
  std::optional<JobKey> KeyOf(Role role) const {
    if (!key_.has_value() || !key_->is_secret()) return std::nullopt;
    return *key_->Of(role);
  }
  // Of those who say hello to this server; null without a key.
  Gate* gate() const { return gate_.get(); }

 private:
  std::optional<JobKey> key_;
  std::shared_ptr<Gate> gate_;
  std::shared_ptr<const Tls> tls_;
};

}  // namespace rubato

#endif  // RUBATO_COMMON_WIRE_CREDENTIALS_H_
