#include "server/process/checkpoint_request.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "absl/time/time.h"
#include "common/base/status.h"
#include "common/wire/channel.h"
#include "common/wire/control_methods.h"
#include "common/wire/hello.h"
#include "proto/cluster.grpc.pb.h"

namespace rubato {

absl::Status RequestCheckpoint(const std::string& address, const ConnectionOptions& connection,
                               absl::Duration patience) {
  const std::shared_ptr<grpc::Channel> channel = MakeChannel(address, connection);
  grpc::ClientContext context;
  context.set_deadline(DeadlineIn(patience));
  if (std::optional<Caller> caller = connection.credentials.NewCaller()) {
    // One that is frozen takes the connection and says nothing.
    RUBATO_RETURN_IF_ERROR(
        SayHello(channel, std::min(patience, connection.lease), nullptr, &*caller));
    context.AddMetadata(kCallerKey, caller->Show(kCommandMethod));
  }
  proto::CommandRequest request;
  request.set_kind(proto::CommandRequest::KIND_CHECKPOINT);
  proto::CommandReply reply;
  return FromGrpc(proto::Coordination::NewStub(channel)->Command(&context, request, &reply));
}

}  // namespace rubato
