#include "common/wire/health.h"

#include <grpcpp/health_check_service_interface.h>

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/address.h"
#include "common/base/status.h"
#include "common/wire/strangers.h"

namespace rubato {
namespace {

constexpr int kMaxQuestionBytes = 1024;
constexpr int kMaxQuestions = 4;  // of a connection, at a time

}  // namespace

absl::StatusOr<std::unique_ptr<HealthListener>> HealthListener::Listen(
    const std::string& addresses) {
  RUBATO_ASSIGN_OR_RETURN(std::vector<HostPort> places, ParseAddresses(addresses));
  std::unique_ptr<HealthListener> health(new HealthListener);
  absl::StatusOr<std::unique_ptr<Acceptor>> acceptor = Acceptor::Listen(std::move(places));
  if (!acceptor.ok()) {
    return absl::UnavailableError(
        absl::StrCat("cannot listen at ", addresses, ": ", acceptor.status().message()));
  }
  health->acceptor_ = *std::move(acceptor);
  grpc::ServerBuilder builder;
  builder.SetMaxReceiveMessageSize(kMaxQuestionBytes);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMaxQuestions);
  const std::shared_ptr<grpc::experimental::ExternalConnectionAcceptor> to_server =
      builder.experimental().AddExternalConnectionAcceptor(
          grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD,
          grpc::InsecureServerCredentials());
  builder.RegisterCallbackGenericService(&health->nothing_);
  // Of this server alone: others are built without.
  grpc::EnableDefaultHealthCheckService(true);
  health->server_ = builder.BuildAndStart();
  grpc::EnableDefaultHealthCheckService(false);
  if (health->server_ == nullptr) return absl::InternalError("gRPC's server does not start");
  health->server_->GetHealthCheckService()->SetServingStatus("live", true);
  health->SetReady(false);
  // Nobody is ever known here, so no connection stays.
  const auto strangers = std::make_shared<Strangers>(
      kMaxConnections, uint64_t{kMaxQuestions} * kMaxQuestionBytes * kMaxConnections);
  health->acceptor_->Start(
      [to_server](int fd) {
        grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
        connection.fd = fd;
        to_server->HandleNewConnection(&connection);
      },
      [](const std::string&) {}, strangers);
  for (const HostPort& place : health->acceptor_->places()) {
    absl::StrAppend(&health->address_, health->address_.empty() ? "" : ",", ToString(place));
  }
  return health;
}

HealthListener::~HealthListener() {
  if (acceptor_ != nullptr) acceptor_->Stop();
  if (server_ != nullptr) server_->Shutdown(absl::ToChronoTime(absl::Now()));
}

void HealthListener::SetReady(bool is_ready) {
  server_->GetHealthCheckService()->SetServingStatus("ready", is_ready);
}

}  // namespace rubato
