#include "common/wire/credentials.h"

#include <grpcpp/grpcpp.h>

#include "common/base/monotonic.h"
#include "common/base/status.h"
#include "common/wire/tls.h"

namespace rubato {

absl::StatusOr<Credentials> Credentials::FromCertificates(const std::string& folder, Role as) {
  auto tls = std::make_shared<const Tls>(folder, as);
  RUBATO_RETURN_IF_ERROR(tls->Check());
  return Credentials(std::move(tls));
}

absl::Status Credentials::Check() const {
  return tls_ != nullptr ? tls_->Check() : absl::OkStatus();
}

std::shared_ptr<grpc::ChannelCredentials> Credentials::OfChannel() const {
  return tls_ != nullptr ? tls_->channel() : grpc::InsecureChannelCredentials();
}

std::shared_ptr<grpc::ServerCredentials> Credentials::OfServer() const {
  return tls_ != nullptr ? tls_->server() : grpc::InsecureServerCredentials();
}

absl::StatusOr<Role> Credentials::CheckCaller(const grpc::ServerContextBase& context,
                                              absl::string_view method) const {
  if (tls_ != nullptr) return RoleOfTlsCaller(context);
  if (gate_ == nullptr) return Role::kServer;
  const auto shown = context.client_metadata().find(kCallerKey);
  return gate_->Check(method,
                      shown == context.client_metadata().end()
                          ? absl::string_view()
                          : absl::string_view(shown->second.data(), shown->second.size()),
                      MonotonicNow());
}

}  // namespace rubato
