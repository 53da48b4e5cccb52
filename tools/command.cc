#include "tools/command.h"

#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "common/address.h"
#include "common/run_folder.h"
#include "common/status.h"
#include "common/wire/channel.h"
#include "proto/cluster.grpc.pb.h"

namespace rubato {
namespace {

enum class Connection { kMade, kRefused, kSilence };

// Ends at the first refusal: a job that runs listens. Silence is that of one that is frozen, or of
// a network that does not lead there.
Connection Connect(grpc::Channel& channel, absl::Time deadline) {
  while (true) {
    const grpc_connectivity_state state = channel.GetState(/*try_to_connect=*/true);
    if (state == GRPC_CHANNEL_READY) return Connection::kMade;
    if (state == GRPC_CHANNEL_TRANSIENT_FAILURE || state == GRPC_CHANNEL_SHUTDOWN) {
      return Connection::kRefused;
    }
    if (!channel.WaitForStateChange(state, absl::ToChronoTime(deadline))) {
      return Connection::kSilence;
    }
  }
}

// Shows the token, if there is one. Says where it was found.
absl::StatusOr<std::string> AddToken(const RunFolder& folder, proto::CommandRequest* request) {
  if (const char* token = std::getenv("RUBATO_TOKEN")) {
    request->set_token(token);
    return std::string("RUBATO_TOKEN");
  }
  const absl::StatusOr<std::string> found = ReadSmallFile(folder.TokenFile());
  if (found.ok()) {
    request->set_token(std::string(absl::StripAsciiWhitespace(*found)));
  } else if (!absl::IsNotFound(found.status())) {
    return absl::FailedPreconditionError(
        absl::StrCat("this changes the job and needs the run's token: ", found.status().message()));
  }
  return folder.TokenFile();
}

absl::StatusOr<std::string> AddressOf(const RunFolder& folder) {
  if (access(folder.path().c_str(), F_OK) != 0) {
    return absl::NotFoundError(absl::StrCat("found no run ", folder.path()));
  }
  if (access(folder.SummaryFile().c_str(), F_OK) == 0) {
    return absl::UnavailableError(absl::StrCat("the run ", folder.path(), " is over"));
  }
  const absl::StatusOr<std::string> found = ReadSmallFile(folder.AddressFile());
  if (!found.ok()) {
    return absl::Status(found.status().code(),
                        absl::StrCat("the run ", folder.path(),
                                     " has no address (yet?): ", found.status().message()));
  }
  return std::string(absl::StripAsciiWhitespace(*found));
}

}  // namespace

absl::StatusOr<proto::CommandReply> SendCommand(const std::string& run, const std::string& address,
                                                proto::CommandRequest request,
                                                absl::Duration timeout) {
  const RunFolder folder(run);
  const absl::Time deadline = absl::Now() + timeout;
  std::string target = address;
  if (target.empty()) {
    RUBATO_ASSIGN_OR_RETURN(target, AddressOf(folder));
  } else if (const absl::Status status = ParseAddress(address).status(); !status.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("--address: ", status.message()));
  }
  const bool changes = request.kind() != proto::CommandRequest::KIND_STATUS;
  std::string token_from;
  if (changes) {
    RUBATO_ASSIGN_OR_RETURN(token_from, AddToken(folder, &request));
  }
  const std::string silence =
      absl::StrCat("shard 0 at ", target, " has not answered within ",
                   absl::FormatDuration(timeout), ": it is frozen, or cannot be reached from here");
  const std::shared_ptr<grpc::Channel> channel = MakeChannel(target);
  const Connection connection = Connect(*channel, deadline);
  if (connection == Connection::kSilence) return absl::DeadlineExceededError(silence);
  if (connection == Connection::kRefused) {
    return absl::UnavailableError(
        absl::StrCat("nobody answers at ", target, ": ",
                     address.empty() ? absl::StrCat("the run ", run, " is over, or was killed")
                                     : "does shard 0 of the job listen there?"));
  }
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(deadline));
  proto::CommandReply reply;
  const absl::Status status =
      FromGrpc(proto::Coordination::NewStub(channel)->Command(&context, request, &reply));
  if (absl::IsDeadlineExceeded(status)) {
    return absl::DeadlineExceededError(
        absl::StrCat(silence, changes ? ", and may still do what was asked" : ""));
  }
  if (absl::IsPermissionDenied(status)) {
    // Asking again does not help.
    return absl::FailedPreconditionError(absl::StrCat(status.message(),
                                                      request.token().empty() ? "" : ": that in ",
                                                      request.token().empty() ? "" : token_from));
  }
  if (absl::IsUnavailable(status)) {
    return absl::UnavailableError(absl::StrCat("shard 0 at ", target, ": ", status.message()));
  }
  if (!status.ok()) {
    return absl::Status(status.code(),
                        absl::StrCat(target, " does not answer as shard 0 of a job does: ",
                                     status.message()));
  }
  return reply;
}

absl::StatusOr<proto::CommandRequest> SwitchRequest(absl::string_view mode) {
  const auto mistake = [mode](absl::string_view expected) {
    return absl::InvalidArgumentError(
        absl::StrCat("--mode: found ", mode, ", expected ", expected));
  };
  proto::CommandRequest request;
  request.set_kind(proto::CommandRequest::KIND_SWITCH);
  const std::vector<absl::string_view> parts = absl::StrSplit(mode, ',');
  if (parts[0] == "bounded") {
    constexpr absl::string_view kKey = "staleness=";
    int64_t staleness = -1;
    if (parts.size() != 2 || !absl::StartsWith(parts[1], kKey) ||
        !absl::SimpleAtoi(parts[1].substr(kKey.size()), &staleness) || staleness < 0) {
      return mistake("bounded,staleness=N with an N from 0 on");
    }
    request.set_mode(proto::View::MODE_BOUNDED);
    request.set_staleness(staleness);
  } else if (parts.size() == 1 && parts[0] == "sync") {
    request.set_mode(proto::View::MODE_SYNC);
  } else if (parts.size() == 1 && parts[0] == "async") {
    request.set_mode(proto::View::MODE_ASYNC);
  } else {
    return mistake("sync, async or bounded,staleness=N");
  }
  return request;
}

}  // namespace rubato
