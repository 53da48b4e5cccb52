// Tells probes whether a server process is alive and takes part: the standard service
// grpc.health.v1.Health, on a port of its own, for whoever asks, by neither key nor TLS. Nothing
// else can be asked there.
#ifndef RUBATO_COMMON_WIRE_HEALTH_H_
#define RUBATO_COMMON_WIRE_HEALTH_H_

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/wire/acceptor.h"

namespace rubato {

class HealthListener {
 public:
  // The most connections at a time. None lasts longer than Connections::kPatience: a probe opens a
  // new one for each request.
  static constexpr size_t kMaxConnections = 16;

  // Listens at `addresses`, as ParseAddresses takes them, and says that `live` is SERVING and
  // `ready` is not. Unavailable if an address is in use or not of this machine. Before other
  // servers of this process are built.
  static absl::StatusOr<std::unique_ptr<HealthListener>> Listen(const std::string& addresses);
  ~HealthListener();

  // Whether the process takes part in its job. Any thread.
  void SetReady(bool is_ready);

  // As given, with the ports that were free for those given as 0.
  std::string address() const { return acceptor_->address(); }

 private:
  HealthListener() = default;

  grpc::CallbackGenericService nothing_;  // refuses all else
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<Acceptor> acceptor_;  // goes first
};

}  // namespace rubato

#endif  // RUBATO_COMMON_WIRE_HEALTH_H_
