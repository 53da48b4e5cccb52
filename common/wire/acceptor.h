// Takes TCP connections for a server. gRPC would do it too, but stops listening for good when the
// process has no descriptor left for a connection, and takes as many as there are descriptors: none
// remains for the run's files.
#ifndef RUBATO_COMMON_WIRE_ACCEPTOR_H_
#define RUBATO_COMMON_WIRE_ACCEPTOR_H_

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/address.h"
#include "common/wire/strangers.h"

namespace rubato {

class Acceptor {
 public:
  // Gets each new connection, which is its own from there on. On the acceptor's thread.
  using Take = std::function<void(int fd)>;
  // Gets a sentence, once until connections are taken again. On the acceptor's thread.
  using Warn = std::function<void(const std::string& text)>;

  // Listens at all of `places`; a name may stand for several addresses, of which one is enough.
  // Unavailable, saying why, if one of the places is in use or not of this machine.
  static absl::StatusOr<std::unique_ptr<Acceptor>> Listen(std::vector<HostPort> places);
  ~Acceptor() { Stop(); }
  Acceptor(const Acceptor&) = delete;

  // As given, with the ports that were free for those given as 0.
  const std::vector<HostPort>& places() const { return places_; }

  // Begins to take connections, of which `strangers` hears if it is given. A quarter of the limit
  // on descriptors is left to other uses: connections beyond are closed at once.
  void Start(Take take, Warn warn, std::shared_ptr<Strangers> strangers = nullptr);
  // Takes no more, and does not listen any more.
  void Stop();

 private:
  explicit Acceptor(std::vector<HostPort> places) : places_(std::move(places)) {}

  // Why nobody can listen at `place`, of which the port is filled in; empty if this does.
  std::string Bind(HostPort* place);
  void Run();
  // Whether there may be room for another one.
  bool Accept(int listener);
  void WarnOnce(const std::string& text);

  std::vector<HostPort> places_;
  std::vector<int> listeners_;
  int wake_fd_ = -1;
  Take take_;
  Warn warn_;
  std::shared_ptr<Strangers> strangers_;
  bool warned_ = false;
  std::thread thread_;
};

}  // namespace rubato

#endif  // RUBATO_COMMON_WIRE_ACCEPTOR_H_
