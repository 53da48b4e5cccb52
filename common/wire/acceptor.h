// Takes TCP connections for a server. gRPC could do it, but it stops listening for good when the
// process runs out of file descriptors, and it accepts connections until none is left for the run's
// files.
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
#include "common/wire/connections.h"
#include "common/wire/grpc_types.h"

namespace rubato {

class Acceptor {
 public:
  // Receives each new connection and owns it from then on. Called on the acceptor's thread.
  using Take = std::function<void(int fd)>;
  // Receives a warning when connections cannot be accepted, once until they are accepted again.
  // Called on the acceptor's thread.
  using Warn = std::function<void(const std::string& text)>;

  // Listens at all of `places`; a name may stand for several addresses, of which one is enough.
  // Unavailable, saying why, if one of the places is in use or not of this machine. Where there is
  // no IPv6, "::" (all addresses of the machine) means all IPv4 addresses.
  static absl::StatusOr<std::unique_ptr<Acceptor>> Listen(std::vector<HostPort> places);
  // The same for `addresses`, in the syntax of ParseAddresses. The error names them.
  static absl::StatusOr<std::unique_ptr<Acceptor>> Listen(const std::string& addresses);
  ~Acceptor() { Stop(); }
  Acceptor(const Acceptor&) = delete;

  // The addresses as given, but with the chosen ports in place of 0, and with 0.0.0.0 where it
  // replaces "::".
  const std::vector<HostPort>& places() const { return places_; }
  // The same with commas between.
  std::string address() const;

  // Gives connections to the server that `builder` will build.
  static Take ToServerOf(grpc::ServerBuilder* builder,
                         const std::shared_ptr<grpc::ServerCredentials>& credentials);

  // Begins to accept connections, and reports them to `connections` if it is given. A quarter of
  // the limit on file descriptors is reserved for other uses: connections beyond the rest are
  // closed at once. If `first_settings` (http2_opening.h) is not empty, each connection is sent
  // these settings and is handed on when it has acknowledged them; the limits of `connections` say
  // how long that may take and how many connections may wait.
  void Start(Take take, Warn warn, std::shared_ptr<Connections> connections = nullptr,
             std::string first_settings = "");
  // Stops accepting connections and listening.
  void Stop();

 private:
  explicit Acceptor(std::vector<HostPort> places) : places_(std::move(places)) {}

  // Binds to `place` and fills in its port. Returns the reason if that fails, else an empty string.
  std::string Bind(HostPort* place);
  void Run();
  // Whether there may be room for another one.
  bool Accept(int listener);
  // Checks a connection that is being opened, and hands it on or closes it. False if it is still
  // being opened.
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
