// How the two ends of a connection prove who they are.
#ifndef RUBATO_COMMON_WIRE_CREDENTIALS_H_
#define RUBATO_COMMON_WIRE_CREDENTIALS_H_

#include <grpcpp/grpcpp.h>

#include <memory>
#include <optional>
#include <utility>

#include "common/wire/authentication.h"
#include "common/wire/key.h"

namespace rubato {

// A value that a process makes once and gives to all its channels (channel.h) and to its listener
// (listener.h).
class Credentials {
 public:
  // Without a key: whoever can reach the process may talk to it, and it talks to anybody.
  Credentials() = default;
  // By a key: a role's, of one who only calls; a server's is the secret.
  explicit Credentials(const JobKey& key)
      : key_(key), gate_(key.is_secret() ? std::make_shared<Gate>(key) : nullptr) {}

  std::shared_ptr<grpc::ChannelCredentials> OfChannel() const {
    return grpc::InsecureChannelCredentials();
  }
  std::shared_ptr<grpc::ServerCredentials> OfServer() const {
    return grpc::InsecureServerCredentials();
  }

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
  // Of those who call this server; null without a key.
  Gate* gate() const { return gate_.get(); }

 private:
  std::optional<JobKey> key_;
  std::shared_ptr<Gate> gate_;
};

}  // namespace rubato

#endif  // RUBATO_COMMON_WIRE_CREDENTIALS_H_
