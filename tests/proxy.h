// A proxy of TCP connections that a test can cut, as a network does: bytes stay away, and nobody is
// told.
#ifndef RUBATO_TESTS_PROXY_H_
#define RUBATO_TESTS_PROXY_H_

#include <deque>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "tests/process.h"

namespace rubato {

class Proxy {
 public:
  Proxy();
  ~Proxy();
  Proxy(const Proxy&) = delete;

  // "127.0.0.1:PORT", where it listens.
  std::string address() const { return port_.address(); }
  // Where connections go to; before this is said they wait.
  void SetTarget(const std::string& address) ABSL_LOCKS_EXCLUDED(mutex_);

  // Connections that are made from now on can be cut.
  void Mark() ABSL_LOCKS_EXCLUDED(mutex_);
  // Those, and all new ones, carry nothing until Heal, which brings what was kept back.
  void Cut() ABSL_LOCKS_EXCLUDED(mutex_);
  void Heal() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Connection {
    int ends[2];
    std::string pending[2];  // read from that end, and not yet taken by the other
    bool closed[2];          // nothing more comes from that end
    bool is_marked;
  };

  void Run() ABSL_LOCKS_EXCLUDED(mutex_);
  void Accept() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Wake();

  const FreePort port_;
  const int listener_;
  int wake_[2];

  absl::Mutex mutex_;
  std::string target_ ABSL_GUARDED_BY(mutex_);
  std::deque<Connection> connections_ ABSL_GUARDED_BY(mutex_);
  bool marks_ ABSL_GUARDED_BY(mutex_) = false;
  bool cut_ ABSL_GUARDED_BY(mutex_) = false;
  int fillers_[3] ABSL_GUARDED_BY(mutex_) = {};  // connections that keep others out while it is cut
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;

  std::thread thread_;  // last: it uses all of the above
};

}  // namespace rubato

#endif  // RUBATO_TESTS_PROXY_H_
