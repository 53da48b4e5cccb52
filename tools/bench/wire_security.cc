#include "tools/bench/wire_security.h"

#include <stdlib.h>

#include <cstring>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/status.h"
#include "common/wire/find_credentials.h"
#include "tools/command/certificates.h"

namespace rubato {
namespace {

constexpr char kKey[] = "RUBATO_KEY", kCertificates[] = "RUBATO_CERTIFICATES";

SecurityMode ModeOf(const std::string& path) {
  return path == "token"  ? SecurityMode::kToken
         : path == "mtls" ? SecurityMode::kMtls
                          : SecurityMode::kNone;
}

std::string FolderOf(const std::string& folder, Role role) {
  return absl::StrCat(folder, "/certificates/", RoleName(role));
}

}  // namespace

absl::StatusOr<std::unique_ptr<BenchSecurity>> BenchSecurity::Create() {
  std::unique_ptr<BenchSecurity> security(new BenchSecurity);
  std::error_code error;
  std::string folder = std::filesystem::temp_directory_path(error) / "rubato-bench-XXXXXX";
  if (error || mkdtemp(folder.data()) == nullptr) {
    return absl::UnavailableError(absl::StrCat("cannot create a folder ", folder));
  }
  security->folder_ = folder;
  RUBATO_RETURN_IF_ERROR(MakeCertificates(folder + "/certificates", absl::Hours(24), absl::Now()));
  setenv(kKey, security->secret_.ToText().c_str(), 1);
  setenv(kCertificates, FolderOf(folder, Role::kServer).c_str(), 1);
  return security;
}

BenchSecurity::~BenchSecurity() {
  unsetenv(kKey);
  unsetenv(kCertificates);
  std::error_code ignored;
  if (!folder_.empty()) std::filesystem::remove_all(folder_, ignored);
}

absl::StatusOr<ConnectionOptions> BenchSecurity::OfWorker(const std::string& path) const {
  const std::string key = secret_.ToText(), folder = FolderOf(folder_, Role::kWorker);
  ConnectionOptions connection;
  RUBATO_ASSIGN_OR_RETURN(
      connection.credentials,
      FindCredentials(ModeOf(path), Role::kWorker, [&](const char* name) -> const char* {
        if (std::strcmp(name, kKey) == 0) return key.c_str();
        return std::strcmp(name, kCertificates) == 0 ? folder.c_str() : nullptr;
      }));
  return connection;
}

absl::StatusOr<ConnectionOptions> BenchServerSecurity(const std::string& path) {
  ConnectionOptions connection;
  RUBATO_ASSIGN_OR_RETURN(connection.credentials,
                          FindCredentials(ModeOf(path), Role::kServer, getenv));
  return connection;
}

}  // namespace rubato
