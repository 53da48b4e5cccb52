#include "common/wire/tls.h"

#include <grpc/grpc_security_constants.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_certificate_verifier.h>
#include <grpcpp/security/tls_credentials_options.h>

#include <functional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/wire/certificates.h"

namespace rubato {
namespace {

namespace tls = grpc::experimental;

std::vector<std::string> Strings(const std::vector<grpc::string_ref>& references) {
  std::vector<std::string> strings;
  for (const grpc::string_ref& text : references) strings.emplace_back(text.data(), text.size());
  return strings;
}

// Servers may have any address, so their certificates name none: what counts is the role.
class ServersAlone : public tls::ExternalCertificateVerifier {
 public:
  bool Verify(tls::TlsCustomVerificationCheckRequest* request, std::function<void(grpc::Status)>,
              grpc::Status* status) override {
    const absl::StatusOr<Role> role = RoleOfUris(Strings(request->uri_names()));
    if (!role.ok()) {
      *status = grpc::Status(grpc::StatusCode::UNAUTHENTICATED,
                             absl::StrCat("of the server: ", role.status().message()));
    } else if (*role != Role::kServer) {
      *status = grpc::Status(
          grpc::StatusCode::UNAUTHENTICATED,
          absl::StrCat("who answers has the certificate of the role ", RoleName(*role)));
    }
    return true;  // at once
  }
  void Cancel(tls::TlsCustomVerificationCheckRequest*) override {}
};

void WatchFiles(tls::TlsCredentialsOptions* options) {
  options->watch_root_certs();
  options->watch_identity_key_cert_pairs();
}

}  // namespace

Tls::Tls(const std::string& folder, Role as, unsigned renewal_seconds) : folder_(folder), as_(as) {
  const auto path = [&](const char* file) { return absl::StrCat(folder, "/", file); };
  const auto files = std::make_shared<tls::FileWatcherCertificateProvider>(
      path(kPrivateKeyFile), path(kCertificateFile), path(kAuthorityFile), renewal_seconds);
  tls::TlsChannelCredentialsOptions of_channel;
  of_channel.set_certificate_provider(files);
  WatchFiles(&of_channel);
  of_channel.set_verify_server_certs(true);
  of_channel.set_check_call_host(false);
  of_channel.set_certificate_verifier(tls::ExternalCertificateVerifier::Create<ServersAlone>());
  tls::TlsServerCredentialsOptions of_server(files);
  WatchFiles(&of_server);
  of_server.set_cert_request_type(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  channel_ = tls::TlsCredentials(of_channel);
  server_ = tls::TlsServerCredentials(of_server);
}

absl::Status Tls::Check() const { return CheckCertificates(folder_, as_, absl::Now()); }

absl::StatusOr<Role> RoleOfTlsCaller(const grpc::ServerContextBase& context) {
  const std::shared_ptr<const grpc::AuthContext> shown = context.auth_context();
  // gRPC's transport within a process has no properties and no address. A connection has both,
  // whatever its peer says: these credentials serve none without a handshake.
  if (shown->begin() == shown->end() && context.peer() == "unknown") return Role::kServer;
  const auto kinds = shown->FindPropertyValues(GRPC_TRANSPORT_SECURITY_TYPE_PROPERTY_NAME);
  if (kinds.size() != 1 || kinds[0] != GRPC_TLS_TRANSPORT_SECURITY_TYPE ||
      !shown->IsPeerAuthenticated()) {
    return absl::UnauthenticatedError("the caller has shown no certificate");
  }
  return RoleOfUris(Strings(shown->FindPropertyValues(GRPC_PEER_URI_PROPERTY_NAME)));
}

}  // namespace rubato
