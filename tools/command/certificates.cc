#include "tools/command/certificates.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "common/base/status.h"
#include "common/files/run_folder.h"
#include "common/wire/certificates.h"
#include "common/wire/given_file.h"
#include "common/wire/key.h"

namespace rubato {
namespace {

constexpr char kAuthorityKeyFile[] = "ca.key";
constexpr size_t kMaxFile = 64 << 10;

constexpr int kMaxDays = 3650;  // and of an authority, unless its certificates are to last longer
// The clocks of a job's hosts may differ by this much.
constexpr absl::Duration kClocksDiffer = absl::Minutes(5);

absl::Duration Days(int days) { return days * absl::Hours(24); }

Validity ValidFor(absl::Duration time, absl::Time now) { return {now - kClocksDiffer, now + time}; }

std::string In(const std::string& folder, absl::string_view name) {
  return absl::StrCat(folder, "/", name);
}

// AlreadyExists if it is there.
absl::Status MakeFolder(const std::string& path) {
  if (mkdir(path.c_str(), 0700) == 0) return absl::OkStatus();
  const int error = errno;
  if (error == EEXIST) return absl::AlreadyExistsError(absl::StrCat(path, " is there already"));
  return absl::FailedPreconditionError(
      absl::StrCat("cannot make ", path, ": ", std::strerror(error)));
}

absl::Status MakeFolderIfNeeded(const std::string& path) {
  const absl::Status made = MakeFolder(path);
  return absl::IsAlreadyExists(made) ? absl::OkStatus() : made;
}

absl::StatusOr<CertificateAndKey> ReadAuthority(const std::string& folder) {
  CertificateAndKey authority;
  RUBATO_ASSIGN_OR_RETURN(authority.certificate,
                          ReadGivenFile(In(folder, kAuthorityFile), kMaxFile, Secrecy::kNone));
  RUBATO_ASSIGN_OR_RETURN(
      authority.key, ReadGivenFile(In(folder, kAuthorityKeyFile), kMaxFile, Secrecy::kOwnerOnly));
  return authority;
}

// The key first: a process that looks between the two looks again.
absl::Status WriteCertificate(const std::string& folder, const std::string& authority,
                              const CertificateAndKey& own) {
  RUBATO_RETURN_IF_ERROR(WriteFileAtomically(In(folder, kAuthorityFile), authority));
  RUBATO_RETURN_IF_ERROR(WritePrivateFile(In(folder, kPrivateKeyFile), own.key));
  return WriteFileAtomically(In(folder, kCertificateFile), own.certificate);
}

}  // namespace

std::string AuthorityFolder(const std::string& folder) { return In(folder, "authority"); }

absl::Status MakeCertificates(const std::string& folder, absl::Duration time, absl::Time now) {
  RUBATO_RETURN_IF_ERROR(MakeFolderIfNeeded(folder));
  const std::string authority_folder = AuthorityFolder(folder);
  std::vector<std::string> made;
  // Half of them would be of no use, and in the way of another try.
  auto remove = absl::MakeCleanup([&made] {
    std::error_code error;
    for (const std::string& path : made) std::filesystem::remove_all(path, error);
  });
  RUBATO_RETURN_IF_ERROR(MakeFolder(authority_folder));
  made.push_back(authority_folder);
  for (const Role role : kRoles) {
    RUBATO_RETURN_IF_ERROR(MakeFolder(In(folder, RoleName(role))));
    made.push_back(In(folder, RoleName(role)));
  }
  const CertificateAndKey authority = MakeAuthority(ValidFor(std::max(time, Days(kMaxDays)), now));
  RUBATO_RETURN_IF_ERROR(WritePrivateFile(In(authority_folder, kAuthorityKeyFile), authority.key));
  RUBATO_RETURN_IF_ERROR(
      WriteFileAtomically(In(authority_folder, kAuthorityFile), authority.certificate));
  RUBATO_RETURN_IF_ERROR(RenewCertificates(folder, authority_folder, time, now));
  std::move(remove).Cancel();
  return absl::OkStatus();
}

absl::Status RenewCertificates(const std::string& folder, const std::string& authority_folder,
                               absl::Duration time, absl::Time now) {
  RUBATO_ASSIGN_OR_RETURN(const CertificateAndKey authority, ReadAuthority(authority_folder));
  RUBATO_RETURN_IF_ERROR(MakeFolderIfNeeded(folder));
  for (const Role role : kRoles) {
    const absl::StatusOr<CertificateAndKey> own =
        IssueCertificate(authority, role, ValidFor(time, now));
    if (!own.ok()) {
      return absl::Status(own.status().code(),
                          absl::StrCat(authority_folder, ": ", own.status().message()));
    }
    const std::string of_role = In(folder, RoleName(role));
    RUBATO_RETURN_IF_ERROR(MakeFolderIfNeeded(of_role));
    RUBATO_RETURN_IF_ERROR(WriteCertificate(of_role, authority.certificate, *own));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> CertificatesText(const std::string& out, int days,
                                             const std::string& from) {
  if (days < 1 || days > kMaxDays) {
    return absl::InvalidArgumentError(
        absl::StrFormat("--days: found %d, expected 1 to %d", days, kMaxDays));
  }
  const absl::Time now = absl::Now();
  const absl::Status made = from.empty() ? MakeCertificates(out, Days(days), now)
                                         : RenewCertificates(out, from, Days(days), now);
  if (absl::IsAlreadyExists(made)) {
    return absl::AlreadyExistsError(absl::StrCat(
        made.message(), ": --from ", AuthorityFolder(out),
        " makes new certificates of the authority there, another --out a new authority"));
  }
  RUBATO_RETURN_IF_ERROR(made);
  std::string text = absl::StrCat("valid until ", DateText(now + Days(days)), ":\n");
  for (const Role role : kRoles) absl::StrAppend(&text, "  ", In(out, RoleName(role)), "\n");
  return absl::StrCat(text,
                      "A process gets the folder of its role as RUBATO_CERTIFICATES; no "
                      "process needs the authority's, ",
                      from.empty() ? AuthorityFolder(out) : from, ".\n");
}

}  // namespace rubato
