// Certificates that say what role a process has in a job, made and read by OpenSSL. A job has an
// authority of its own, which signs them; whoever shows one of another authority is a stranger. The
// role stands in the certificate as the alternative name URI:rubato:role:<role>.
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

// When a certificate counts, to the second.
struct Validity {
  absl::Time from, until;
};

// An authority that nobody has had before.
CertificateAndKey MakeAuthority(const Validity& validity);

// A certificate with a new key. InvalidArgument if `authority` is none; FailedPrecondition if it is
// not valid for so long.
absl::StatusOr<CertificateAndKey> IssueCertificate(const CertificateAndKey& authority, Role role,
                                                   const Validity& validity);

// Whether a process may take part as `as` by the files in `folder`; as kObserver it may by any
// role's. FailedPrecondition, naming the file, if one cannot be read or is not what it should be;
// others than its owner may read the key; certificate and key do not belong together; it is not
// valid `now`, not of the authority, or not of the role.
absl::Status CheckCertificates(const std::string& folder, Role as, absl::Time now);

// Of a certificate with these alternative names. Unauthenticated if they do not name one role.
absl::StatusOr<Role> RoleOfUris(const std::vector<std::string>& uris);

// "2026-11-23 17:05 UTC".
std::string DateText(absl::Time time);

}  // namespace rubato

#endif  // RUBATO_COMMON_WIRE_CERTIFICATES_H_
