#include "common/wire/authentication.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/hmac.h"
#include "common/base/status.h"

namespace rubato {
namespace {

// Of the bytes that travel: another version has another first byte.
constexpr char kVersion = 1;

// Hello: version, role, nonce.
constexpr size_t kNonceBytes = 16;
constexpr size_t kHelloBytes = 2 + kNonceBytes;

// Session: hello, the server's nonce, milliseconds at the server, tag.
constexpr size_t kNumberBytes = 8;
constexpr size_t kSealedBytes = kHelloBytes + kNonceBytes + kNumberBytes;
constexpr size_t kSessionBytes = kSealedBytes + kHmacBytes;
constexpr size_t kWelcomeBytes = kSessionBytes + kHmacBytes;

// What is shown: session, counter, MAC.
constexpr size_t kShownBytes = kSessionBytes + kNumberBytes + kHmacBytes;

// Of a session's time a caller uses so much, so that no call comes too late.
constexpr double kUsed = 0.5;

// What was not shown among so many counters before the highest counts as shown: calls of one
// session begin at nearly the same time at most.
constexpr uint64_t kWindow = 64;

std::string Number(uint64_t number) {
  std::string bytes(kNumberBytes, '\0');
  for (size_t i = 0; i < kNumberBytes; ++i) bytes[i] = static_cast<char>(number >> (8 * i) & 0xff);
  return bytes;
}

uint64_t NumberOf(absl::string_view bytes) {
  uint64_t number = 0;
  for (size_t i = 0; i < kNumberBytes; ++i) {
    number |= uint64_t{static_cast<uint8_t>(bytes[i])} << (8 * i);
  }
  return number;
}

uint64_t InMilliseconds(absl::Time time) { return static_cast<uint64_t>(absl::ToUnixMillis(time)); }

// Each field but the last has a fixed size or ends by a zero, so that no two inputs are one text.
std::string ProofOf(const JobKey& key, absl::string_view session) {
  return HmacSha256(key.bytes(), absl::StrCat("rubato server", std::string(1, '\0'), session));
}

std::string SessionKey(const JobKey& key, absl::string_view session) {
  return HmacSha256(key.bytes(), absl::StrCat("rubato session", std::string(1, '\0'), session));
}

std::string MacOf(absl::string_view session_key, absl::string_view counter,
                  absl::string_view method) {
  return HmacSha256(session_key,
                    absl::StrCat("rubato call", std::string(1, '\0'), counter, method));
}

absl::Status NotShown(absl::string_view what) {
  return absl::UnauthenticatedError(
      absl::StrCat(what, ": give this process the job's key (RUBATO_KEY or RUBATO_KEY_FILE)"));
}

}  // namespace

std::string Caller::Hello() {
  session_.clear();
  hello_ = absl::StrCat(std::string(1, kVersion), std::string(1, static_cast<char>(key_.role())),
                        RandomBytes(kNonceBytes));
  return hello_;
}

absl::Status Caller::OnWelcome(absl::string_view welcome, absl::Time now) {
  session_.clear();
  const absl::string_view session = welcome.substr(0, kSessionBytes);
  if (welcome.size() != kWelcomeBytes || session.substr(0, kHelloBytes) != hello_ ||
      !IsSameSecret(welcome.substr(kSessionBytes), ProofOf(key_, session))) {
    return absl::UnauthenticatedError(
        "the server does not hold this job's key: it is another job's, or none of Rubato's");
  }
  hello_.clear();  // each counts once
  session_ = std::string(session);
  session_key_ = SessionKey(key_, session_);
  until_ = now + Gate::kSessionTime * kUsed;
  calls_ = 0;
  return absl::OkStatus();
}

std::string Caller::Show(absl::string_view method) {
  const std::string counter = Number(++calls_);
  return absl::StrCat(session_, counter, MacOf(session_key_, counter, method));
}

Gate::Gate(const JobKey& secret) : own_key_(RandomBytes(kHmacBytes)) {
  for (const Role role : kRoles) {
    // A gate that has one role's key alone takes that role alone.
    if (absl::StatusOr<JobKey> key = secret.Of(role); key.ok())
      keys_.emplace(role, *std::move(key));
  }
}

std::string Gate::TagOf(absl::string_view session) const {
  return HmacSha256(own_key_, session.substr(0, kSealedBytes));
}

absl::StatusOr<std::string> Gate::Welcome(absl::string_view hello, absl::Time now) const {
  if (hello.size() != kHelloBytes || hello[0] != kVersion) {
    return absl::InvalidArgumentError("this is no hello of this version of Rubato");
  }
  const std::optional<Role> role = RoleOf(static_cast<uint8_t>(hello[1]));
  if (!role.has_value()) return absl::InvalidArgumentError("there is no such role");
  const auto key = keys_.find(*role);
  if (key == keys_.end()) return absl::UnauthenticatedError("this server takes no such role");
  std::string session = absl::StrCat(hello, RandomBytes(kNonceBytes), Number(InMilliseconds(now)));
  absl::StrAppend(&session, TagOf(session));
  return absl::StrCat(session, ProofOf(key->second, session));
}

absl::StatusOr<Role> Gate::Check(absl::string_view method, absl::string_view shown,
                                 absl::Time now) {
  if (shown.empty()) return NotShown("the caller has shown no key");
  if (shown.size() != kShownBytes || shown[0] != kVersion) {
    return NotShown("what the caller shows is no key of this version of Rubato");
  }
  const absl::string_view session = shown.substr(0, kSessionBytes);
  const absl::string_view counter = shown.substr(kSessionBytes, kNumberBytes);
  const absl::string_view mac = shown.substr(kSessionBytes + kNumberBytes);
  if (!IsSameSecret(session.substr(kSealedBytes), TagOf(session))) {
    return absl::UnauthenticatedError("this server has not welcomed the caller: say hello first");
  }
  const absl::Time since = absl::FromUnixMillis(
      static_cast<int64_t>(NumberOf(session.substr(kSealedBytes - kNumberBytes, kNumberBytes))));
  if (now - since > kSessionTime) {
    return absl::UnauthenticatedError("the caller's session is over: say hello again");
  }
  const Role role = *RoleOf(static_cast<uint8_t>(session[1]));  // by the tag it is one
  if (!IsSameSecret(mac, MacOf(SessionKey(keys_.at(role), session), counter, method))) {
    return NotShown("the caller does not hold the key of its role");
  }
  absl::MutexLock lock(&mutex_);
  // Each is remembered for as long as it could be shown again.
  if (now - swept_ > kSessionTime / 4) {
    swept_ = now;
    for (auto it = windows_.begin(); it != windows_.end();) {
      it = it->second.until < now ? windows_.erase(it) : std::next(it);
    }
  }
  const std::string name(session.substr(kHelloBytes, kNonceBytes));
  auto window = windows_.find(name);
  if (window == windows_.end()) {
    if (windows_.size() >= kMaxSessions) {
      return absl::ResourceExhaustedError("too many processes have called; try again later");
    }
    window = windows_.emplace(name, Window()).first;
    window->second.until = since + kSessionTime;
  }
  if (!Take(NumberOf(counter), &window->second)) {
    return absl::UnauthenticatedError("this call has been made before");
  }
  return role;
}

bool Gate::Take(uint64_t counter, Window* window) {
  if (counter > window->highest) {
    const uint64_t by = counter - window->highest;
    window->seen = (by < kWindow ? window->seen << by : 0) | 1;
    window->highest = counter;
    return true;
  }
  const uint64_t before = window->highest - counter;
  if (before >= kWindow || (window->seen >> before & 1) != 0) return false;
  window->seen |= uint64_t{1} << before;
  return true;
}

size_t Gate::sessions() const {
  absl::MutexLock lock(&mutex_);
  return windows_.size();
}

}  // namespace rubato
