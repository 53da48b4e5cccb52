// Takes TCP connections for a server. gRPC would do it too, but stops listening for good when the
// process has no descriptor left for a connection, and takes as many as there are descriptors: none
// remains for the run's files.
#ifndef RUBATO_COMMON_WIRE_ACCEPTOR_H_
#define RUBATO_COMMON_WIRE_ACCEPTOR_H_

#include <grpcpp/grpcpp.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/address.h"
#include "common/wire/connections.h"

namespace rubato {

class Acceptor {
 public:
  // Gets each new connection, which is its own from there on. On the acceptor's thread.
  using Take = std::function<void(int fd)>;
  // Gets a sentence, once until connections are taken again. On the acceptor's thread.
  using Warn = std::function<void(const std::string& text)>;

  // Listens at all of `places`; a name may stand for several addresses, of which one is enough.
  // Unavailable, saying why, if one of the places is in use or not of this machine. All addresses
  // of a machine, "::", are those of IPv4 where there is no IPv6.
  static absl::StatusOr<std::unique_ptr<Acceptor>> Listen(std::vector<HostPort> places);
  // The same at `addresses`, as ParseAddresses takes them, which the sentence names.
  static absl::StatusOr<std::unique_ptr<Acceptor>> Listen(const std::string& addresses);
  ~Acceptor() { Stop(); }
  Acceptor(const Acceptor&) = delete;

  // As given, with the ports that were free for those given as 0, and 0.0.0.0 where it stands in
  // for "::".
  const std::vector<HostPort>& places() const { return places_; }
  // The same with commas between.
  std::string address() const;

  // Gives connections to the server that `builder` will build.
  static Take ToServerOf(grpc::ServerBuilder* builder,
                         const std::shared_ptr<grpc::ServerCredentials>& credentials);

  // Begins to take connections, of which `connections` hears if it is given. A quarter of the limit
  // on descriptors is left to other uses: connections beyond are closed at once. If there are
  // `first_settings` (http2_opening.h) each connection is sent them, and is handed on when it has
  // acknowledged them; for how long that may take, and how many may wait, say its limits.
  void Start(Take take, Warn warn, std::shared_ptr<Connections> connections = nullptr,
             std::string first_settings = "");
  // Takes no more, and does not listen any more.
  void Stop();

 private:
  explicit Acceptor(std::vector<HostPort> places) : places_(std::move(places)) {}

  // Why nobody can listen at `place`, of which the port is filled in; empty if this does.
  std::string Bind(HostPort* place);
  void Run();
  // Whether there may be room for another one.
  bool Accept(int listener);
  // Looks at a connection that opens: hands it on, or closes it. False if it opens still.
  bool Open(int fd);
  void WarnOnce(const std::string& text);

  std::vector<HostPort> places_;
  std::vector<int> listeners_;
  int wake_fd_ = -1;
  Take take_;
  Warn warn_;
  std::shared_ptr<Connections> connections_;
  std::string first_settings_;
  std::vector<int> opening_;  // have not acknowledged these yet
  bool warned_ = false;
  std::thread thread_;
};

}  // namespace rubato

#endif  // RUBATO_COMMON_WIRE_ACCEPTOR_H_
