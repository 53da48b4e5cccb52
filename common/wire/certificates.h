// Certificates that state the role of a process in a job, created and read with OpenSSL. Each job
// has its own certificate authority (CA), which signs them; certificates of other CAs are refused.
// The role is in the certificate as the subject alternative name URI:rubato:role:<role>.
//
// A process is given a folder with three PEM files, which are called as in a Kubernetes TLS secret.
#ifndef RUBATO_COMMON_WIRE_CERTIFICATES_H_
#define RUBATO_COMMON_WIRE_CERTIFICATES_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/wire/key.h"

namespace rubato {

constexpr char kAuthorityFile[] = "ca.crt";
constexpr char kCertificateFile[] = "tls.crt";  // with what leads from it to the authority, if any
constexpr char kPrivateKeyFile[] = "tls.key";

// A certificate and the private key that it goes with, as PEM.
struct CertificateAndKey {
  std::string certificate, key;
};

// The period in which a certificate is valid, to the second.
struct Validity {
  absl::Time from, until;
};

// Creates a new CA.
CertificateAndKey MakeAuthority(const Validity& validity);

// A certificate with a new key. InvalidArgument if `authority` is none; FailedPrecondition if it is
// not valid for so long.
absl::StatusOr<CertificateAndKey> IssueCertificate(const CertificateAndKey& authority, Role role,
                                                   const Validity& validity);

// OK if the files in `folder` allow a process to take part as `as`; for kObserver a certificate of
// any role will do. FailedPrecondition, naming the file, if one cannot be read or is not what it
// should be; others than its owner may read the key; certificate and key do not belong together; it
// is not valid `now`, not of the authority, or not of the role.
absl::Status CheckCertificates(const std::string& folder, Role as, absl::Time now);

// The role in these subject alternative names of a certificate. Unauthenticated if they do not name
// exactly one role.
absl::StatusOr<Role> RoleOfUris(const std::vector<std::string>& uris);

// "2026-11-23 17:05 UTC".
std::string DateText(absl::Time time);

}  // namespace rubato

#endif  // RUBATO_COMMON_WIRE_CERTIFICATES_H_
