// How a caller and a server show one another that they hold the same key, without sending it. No
// I/O: what is sent travels as bytes, in the way that the caller of this chooses.
//
//   caller                                     server
//   Hello: role, nonce                   →
//                                        ←     Welcome: session, proof
//   each call: session, counter, MAC     →     checked before anything of the call is read
//
// The session is what the server wants to know of it, with a MAC by a key that only this server
// has: so a server keeps nothing of who has only said hello. The proof is a MAC over hello and
// session by the role's key: a server that does not hold the key is found out before anything is
// sent to it. The MAC of a call is by a key of the session, derived from the role's, over the
// counter and the method; each counter counts once, so that a call that was overheard cannot be
// repeated. MACs are HMAC-SHA-256; each key and each use has a label of its own, so that nothing
// that one end has said serves as what the other would say.
//
// This keeps out who does not hold the key. Whoever can alter packets on their way can take over a
// connection that has been opened: against that only TLS helps.
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

  // The bytes to say hello with. What was said before counts no more.
  std::string Hello();
  // What the server has answered. Unauthenticated if it does not hold the key.
  absl::Status OnWelcome(absl::string_view welcome, absl::Time now);

  // Whether calls may begin; after a while a new hello is needed.
  bool is_welcome(absl::Time now) const { return !session_.empty() && now < until_; }
  // The server does not know the session any more.
  void Leave() { session_.clear(); }
  // What to show with a call of `method`, another each time.
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
  // Sessions that have called at a time: of a few processes at most for each of the largest job's.
  static constexpr size_t kMaxSessions = 1 << 18;

  // `secret` is a job's.
  explicit Gate(const JobKey& secret);

  // The answer to a hello. InvalidArgument if it is none.
  absl::StatusOr<std::string> Welcome(absl::string_view hello, absl::Time now) const;

  // Who begins a call of `method` and shows `shown`. Unauthenticated, with what to do, if that
  // shows no key of this job, or was shown before. ResourceExhausted if too many have called.
  absl::StatusOr<Role> Check(absl::string_view method, absl::string_view shown, absl::Time now)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // Sessions that are remembered.
  size_t sessions() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  // Which counters of a session have been shown: of the last ones each, of those before all.
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
