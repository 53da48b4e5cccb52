// `rubato certificates`: creates a job's own certificate authority (CA) and the certificates of its
// roles, as files.
//
//   DIR/authority/ca.crt, ca.key         what signs them: no process of the job needs the key
//   DIR/<role>/ca.crt, tls.crt, tls.key  what a process of that role gets as RUBATO_CERTIFICATES
//
// Folders and keys are their owner's only.
#ifndef RUBATO_TOOLS_COMMAND_CERTIFICATES_H_
#define RUBATO_TOOLS_COMMAND_CERTIFICATES_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace rubato {

// The folder of an authority in `folder`.
std::string AuthorityFolder(const std::string& folder);

// A new authority, valid for ten years at least, and a certificate of each role, valid from `now`
// for `time`. Makes `folder` if it is not there. AlreadyExists if an authority or a role's folder
// is there.
absl::Status MakeCertificates(const std::string& folder, absl::Duration time, absl::Time now);

// Replaces the certificates in `folder`, if there are any, with new ones from the CA in the folder
// `authority`. Errors of the files, and as IssueCertificate.
absl::Status RenewCertificates(const std::string& folder, const std::string& authority,
                               absl::Duration time, absl::Time now);

// The command: renews certificates with the CA in `from` if that is not empty. Returns the text to
// print.
absl::StatusOr<std::string> CertificatesText(const std::string& out, int days,
                                             const std::string& from);

}  // namespace rubato

#endif  // RUBATO_TOOLS_COMMAND_CERTIFICATES_H_
