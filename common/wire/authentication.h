// How a client and a server prove to each other that they hold the same key, without sending it. No
// I/O: messages are byte strings, which the user of these classes sends.
//
//   caller                                     server
//   Hello: role, nonce                   →
//                                        ←     Welcome: session, proof
//   each call: session, counter, MAC     →     checked before anything of the call is read
//
// The session is the server's state, signed with a MAC by a key that only this server has, so a
// server stores nothing for a caller that has only said hello. The proof is a MAC over hello and
// session by the role's key: the caller detects a server without the key before it sends anything
// else. The MAC of a call covers the counter and the method, with a session key derived from the
// role's key. Each counter is valid once, so an intercepted call cannot be replayed. MACs are
// HMAC-SHA-256; each key and each use has its own label, so a message of one end is never valid as
// one of the other end.
//
// This keeps out processes without the key. An attacker who can modify packets can take over an
// open connection: only TLS prevents that.
#ifndef RUBATO_COMMON_WIRE_AUTHENTICATION_H_
#define RUBATO_COMMON_WIRE_AUTHENTICATION_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/wire/key.h"

namespace rubato {

// Metadata of a call: what Caller::Show gives.
constexpr char kCallerKey[] = "rubato-caller-bin";

// The longest hello: longer ones need not be read.
constexpr size_t kMaxHelloBytes = 64;

// A caller's side of one server. For one thread.
class Caller {
 public:
  // `key` is a role's.
  explicit Caller(JobKey key) : key_(std::move(key)) {}

  // The bytes of a hello. Invalidates an earlier hello.
  std::string Hello();
  // Handles the server's answer. Unauthenticated if the server does not hold the key.
  absl::Status OnWelcome(absl::string_view welcome, absl::Time now);

  // Whether calls may begin. A session expires; then a new hello is needed.
  bool is_welcome(absl::Time now) const { return !session_.empty() && now < until_; }
  // Forgets the session, because the server no longer knows it.
  void Leave() { session_.clear(); }
  // The credential for one call of `method`, different each time.
  std::string Show(absl::string_view method);

 private:
  const JobKey key_;
  std::string hello_, session_, session_key_;
  absl::Time until_;
  uint64_t calls_ = 0;
};

// A server's side. Any thread.
class Gate {
 public:
  // For how long calls of a session may begin.
  static constexpr absl::Duration kSessionTime = absl::Minutes(20);
  // The most sessions at a time that have made a call: a few for each process of the largest job.
  static constexpr size_t kMaxSessions = 1 << 18;

  // `secret` is a job's.
  explicit Gate(const JobKey& secret);

  // The answer to a hello. InvalidArgument if it is none.
  absl::StatusOr<std::string> Welcome(absl::string_view hello, absl::Time now) const;

  // The role of the caller that begins a call of `method` with the credential `shown`.
  // Unauthenticated, with advice, if it proves no key of this job or was used before.
  // ResourceExhausted if there are too many sessions.
  absl::StatusOr<Role> Check(absl::string_view method, absl::string_view shown, absl::Time now)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // Sessions that are remembered.
  size_t sessions() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  // Which counters of a session have been used: one bit for each of the last ones; all earlier ones
  // count as used.
  struct Window {
    uint64_t highest = 0;
    uint64_t seen = 0;  // bit i: highest - i
    absl::Time until;
  };
  static bool Take(uint64_t counter, Window* window);
  std::string TagOf(absl::string_view session) const;

  std::map<Role, JobKey> keys_;
  const std::string own_key_;  // of this server alone: seals sessions
  mutable absl::Mutex mutex_;
  std::map<std::string, Window> windows_ ABSL_GUARDED_BY(mutex_);  // by the server's nonce
  absl::Time swept_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
};

}  // namespace rubato

#endif  // RUBATO_COMMON_WIRE_AUTHENTICATION_H_
