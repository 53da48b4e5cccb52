// gRPC's credentials for mutual TLS (certificates.h). Both ends accept only certificates of their
// own job's CA; a client accepts only those that name a server.
#ifndef RUBATO_COMMON_WIRE_TLS_H_
#define RUBATO_COMMON_WIRE_TLS_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/wire/grpc_types.h"
#include "common/wire/key.h"

namespace rubato {

// How often a process looks for new certificates. Connections that are open stay as they are.
constexpr unsigned kRenewalSeconds = 10;

class Tls {
 public:
  // For a process that takes part as `as`, with the files in `folder` and later versions of them.
  // Check the files first (CheckCertificates).
  Tls(const std::string& folder, Role as, unsigned renewal_seconds = kRenewalSeconds);

  // Of the files as they are now; errors as CheckCertificates.
  absl::Status Check() const;

  const std::shared_ptr<grpc::ChannelCredentials>& channel() const { return channel_; }
  const std::shared_ptr<grpc::ServerCredentials>& server() const { return server_; }

 private:
  const std::string folder_;
  const Role as_;
  std::shared_ptr<grpc::ChannelCredentials> channel_;
  std::shared_ptr<grpc::ServerCredentials> server_;
};

// The role of a caller of a server with such credentials, by the certificate that the handshake has
// verified. The process itself, which calls without a socket (Listener::OwnChannel), is a server.
// Unauthenticated if the certificate does not name a role.
absl::StatusOr<Role> RoleOfTlsCaller(const grpc::ServerContextBase& context);

}  // namespace rubato

#endif  // RUBATO_COMMON_WIRE_TLS_H_
