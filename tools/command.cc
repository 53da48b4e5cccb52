#include "tools/command.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/run_folder.h"
#include "common/status.h"
#include "common/wire/channel.h"
#include "proto/cluster.grpc.pb.h"

namespace rubato {

absl::StatusOr<std::string> SendCommand(const std::string& run, const std::string& address,
                                        proto::CommandRequest::Kind kind) {
  std::string target = address;
  if (target.empty()) {
    const absl::StatusOr<std::string> found = ReadSmallFile(RunFolder(run).AddressFile());
    if (!found.ok()) {
      return absl::NotFoundError(
          absl::StrCat("no run ", run, ": it has no address (", found.status().message(), ")"));
    }
    target = std::string(absl::StripAsciiWhitespace(*found));
  }
  const auto stub = proto::Coordination::NewStub(MakeChannel(target));
  grpc::ClientContext context;
  // A large checkpoint takes its time to be written.
  context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Minutes(10)));
  proto::CommandRequest request;
  request.set_kind(kind);
  proto::CommandReply reply;
  const absl::Status status = FromGrpc(stub->Command(&context, request, &reply));
  if (!status.ok()) {
    return absl::Status(status.code(),
                        absl::StrCat("no answer from shard 0 at ", target,
                                     ": does the job still run? ", status.message()));
  }
  return reply.text();
}

}  // namespace rubato
