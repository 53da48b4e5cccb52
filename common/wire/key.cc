#include "common/wire/key.h"

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/hmac.h"
#include "common/base/status.h"
#include "common/wire/given_file.h"

namespace rubato {
namespace {

constexpr absl::string_view kSecret = "secret";
constexpr size_t kBytes = 32;
// No key is longer: what else is given as one is not read whole.
constexpr size_t kMaxText = 1024;

absl::Status NoKey() {
  return absl::InvalidArgumentError(
      "this is no key: expected ROLE-<64 hexadecimal digits>, as `rubato token` prints it");
}

}  // namespace

absl::string_view RoleName(Role role) {
  switch (role) {
    case Role::kObserver:
      return "observer";
    case Role::kOperator:
      return "operator";
    case Role::kWorker:
      return "worker";
    case Role::kServer:
      return "server";
  }
  return "nobody";
}

std::optional<Role> RoleOf(uint8_t number) {
  for (const Role role : kRoles) {
    if (static_cast<uint8_t>(role) == number) return role;
  }
  return std::nullopt;
}

JobKey JobKey::DrawSecret() { return JobKey(std::nullopt, RandomBytes(kBytes)); }

absl::StatusOr<JobKey> JobKey::Parse(absl::string_view text) {
  text = absl::StripAsciiWhitespace(text);
  const size_t dash = text.find('-');
  if (dash == absl::string_view::npos) return NoKey();
  const absl::string_view name = text.substr(0, dash);
  const absl::string_view digits = text.substr(dash + 1);
  if (digits.size() != 2 * kBytes) return NoKey();
  for (const char digit : digits) {
    if (!absl::ascii_isxdigit(static_cast<unsigned char>(digit))) return NoKey();
  }
  std::string bytes;
  for (size_t i = 0; i < digits.size(); i += 2) {
    uint32_t byte = 0;
    if (!absl::SimpleHexAtoi(digits.substr(i, 2), &byte)) return NoKey();
    bytes.push_back(static_cast<char>(byte));
  }
  if (name == kSecret) return JobKey(std::nullopt, std::move(bytes));
  for (const Role role : kRoles) {
    if (name == RoleName(role)) return JobKey(role, std::move(bytes));
  }
  return NoKey();
}

std::string JobKey::ToText() const {
  return absl::StrCat(is_secret() ? kSecret : RoleName(*role_), "-",
                      absl::BytesToHexString(bytes_));
}

absl::StatusOr<JobKey> JobKey::Of(Role role) const {
  if (role_ == role) return *this;
  if (!is_secret()) {
    return absl::PermissionDeniedError(
        absl::StrFormat("this key is the %s's; the %s's, or the secret, is needed",
                        RoleName(*role_), RoleName(role)));
  }
  return JobKey(role, HmacSha256(bytes_, absl::StrCat("rubato key of the ", RoleName(role))));
}

absl::StatusOr<JobKey> ReadKeyFile(const std::string& path) {
  RUBATO_ASSIGN_OR_RETURN(const std::string text,
                          ReadGivenFile(path, kMaxText, Secrecy::kOwnerOnly));
  absl::StatusOr<JobKey> key = JobKey::Parse(text);
  if (!key.ok()) {
    return absl::FailedPreconditionError(absl::StrCat(path, ": ", key.status().message()));
  }
  return key;
}

absl::StatusOr<std::optional<JobKey>> FindKey(
    absl::FunctionRef<const char*(const char* name)> environment) {
  const auto find = [&](const char* name) {
    const char* const value = environment(name);
    return value != nullptr && *value != '\0' ? value : nullptr;
  };
  const char* const text = find("RUBATO_KEY");
  const char* const file = find("RUBATO_KEY_FILE");
  if (text == nullptr && file == nullptr) return std::optional<JobKey>();
  if (text != nullptr && file != nullptr) {
    return absl::FailedPreconditionError("RUBATO_KEY and RUBATO_KEY_FILE are both set: unset one");
  }
  absl::StatusOr<JobKey> key = text != nullptr ? JobKey::Parse(text) : ReadKeyFile(file);
  if (key.ok()) return std::optional<JobKey>(*std::move(key));
  return absl::FailedPreconditionError(
      absl::StrCat(text != nullptr ? "RUBATO_KEY: " : "RUBATO_KEY_FILE: ", key.status().message()));
}

}  // namespace rubato
