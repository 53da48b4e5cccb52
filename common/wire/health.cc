#include "common/wire/health.h"

#include <grpcpp/health_check_service_interface.h>

#include <utility>

#include "common/base/status.h"
#include "common/wire/channel.h"
#include "common/wire/connections.h"
#include "common/wire/http2_opening.h"

namespace rubato {
namespace {

constexpr int kMaxQuestionBytes = 1024;
constexpr int kMaxQuestions = 4;          // of a connection, at a time
constexpr uint64_t kMaxBytes = 32 << 10;  // of a connection

}  // namespace

absl::StatusOr<std::unique_ptr<HealthListener>> HealthListener::Listen(
    const std::string& addresses) {
  std::unique_ptr<HealthListener> health(new HealthListener);
  RUBATO_ASSIGN_OR_RETURN(health->acceptor_, Acceptor::Listen(addresses));
  grpc::ServerBuilder builder;
  builder.SetMaxReceiveMessageSize(kMaxQuestionBytes);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMaxQuestions);
  Acceptor::Take take = Acceptor::ToServerOf(&builder, grpc::InsecureServerCredentials());
  builder.RegisterCallbackGenericService(&health->nothing_);
  // Of this server alone: others are built without.
  grpc::EnableDefaultHealthCheckService(true);
  health->server_ = builder.BuildAndStart();
  grpc::EnableDefaultHealthCheckService(false);
  if (health->server_ == nullptr) return absl::InternalError("gRPC's server does not start");
  health->server_->GetHealthCheckService()->SetServingStatus("live", true);
  health->SetReady(false);
  // Nobody is ever known here, so no connection stays.
  Connections::Limits limits;
  limits.strangers = kMaxConnections;
  limits.stranger_bytes = kMaxBytes;
  health->acceptor_->Start(
      std::move(take), [](const std::string&) {}, std::make_shared<Connections>(limits),
      FirstSettings(kMaxQuestions));
  return health;
}

HealthListener::~HealthListener() {
  if (acceptor_ != nullptr) acceptor_->Stop();
  if (server_ != nullptr) server_->Shutdown(DeadlineIn(absl::ZeroDuration()));
}

void HealthListener::SetReady(bool is_ready) {
  server_->GetHealthCheckService()->SetServingStatus("ready", is_ready);
}

}  // namespace rubato
