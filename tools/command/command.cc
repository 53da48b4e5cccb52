#include "tools/command/command.h"

#include <grpcpp/grpcpp.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "common/base/address.h"
#include "common/base/monotonic.h"
#include "common/base/status.h"
#include "common/files/run_folder.h"
#include "common/job/completion.h"
#include "common/job/yaml_reader.h"
#include "common/wire/channel.h"
#include "common/wire/control_methods.h"
#include "common/wire/hello.h"
#include "common/wire/key.h"
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
    if (!channel.WaitForStateChange(state, DeadlineIn(deadline - MonotonicNow()))) {
      return Connection::kSilence;
    }
  }
}

// What a person shows: a key, which is not sent, or an open job's token, which is.
struct Pass {
  std::optional<JobKey> key;
  std::string token;
  std::string from;  // where it was found
};

// RUBATO_TOKEN; else, if it `is_of_folder` that is asked, what the folder's token file says; else a
// key of the environment; else that file all the same.
absl::StatusOr<Pass> FindPass(const RunFolder& folder, bool is_of_folder, bool is_needed) {
  Pass pass;
  const absl::StatusOr<std::string> found = ReadSmallFile(folder.TokenFile());
  if (const char* text = std::getenv("RUBATO_TOKEN")) {
    pass.token = std::string(absl::StripAsciiWhitespace(text));
    pass.from = "RUBATO_TOKEN";
  } else if (!is_of_folder || !found.ok()) {
    RUBATO_ASSIGN_OR_RETURN(pass.key, FindKey(std::getenv));
    pass.from = "RUBATO_KEY";
  }
  if (pass.from.empty() || (pass.from == "RUBATO_KEY" && !pass.key.has_value())) {
    pass.from = folder.TokenFile();
    if (found.ok()) {
      pass.token = std::string(absl::StripAsciiWhitespace(*found));
    } else if (is_needed && !absl::IsNotFound(found.status())) {
      return absl::FailedPreconditionError(absl::StrCat(
          "this changes the job and needs the run's token: ", found.status().message()));
    }
  }
  if (absl::StatusOr<JobKey> key = JobKey::Parse(pass.token); key.ok()) {
    pass.key = *std::move(key);
    pass.token.clear();
  }
  return pass;
}

absl::StatusOr<std::string> AddressOf(const RunFolder& folder) {
  if (access(folder.path().c_str(), F_OK) != 0) {
    return absl::NotFoundError(
        absl::StrCat("found no run ", folder.path(), ", expected a run's folder"));
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

// Where a job asks for certificates: the run's own, if it `is_of_folder` that is asked and it has
// some; else what RUBATO_CERTIFICATES names, but for a run that has a token.
absl::StatusOr<Credentials> FindCertificates(const RunFolder& folder, bool is_of_folder) {
  const auto exists = [](const std::string& path) { return access(path.c_str(), F_OK) == 0; };
  const std::string own = absl::StrCat(folder.CertificatesFolder(), "/", RoleName(Role::kOperator));
  if (is_of_folder && exists(own)) return Credentials::FromCertificates(own, Role::kObserver);
  const char* const named = std::getenv("RUBATO_CERTIFICATES");
  if (named == nullptr || *named == '\0') return Credentials();
  if (is_of_folder && exists(folder.TokenFile())) return Credentials();
  return Credentials::FromCertificates(named, Role::kObserver);
}

// A job that is asked.
struct Peer {
  RunFolder folder;
  std::string address;  // of its coordinator
  std::shared_ptr<grpc::Channel> channel = nullptr;
  bool is_tls = false;
};

std::string Silence(const std::string& address, absl::Duration timeout) {
  return absl::StrCat("the coordinator at ", address, " has not answered within ",
                      absl::FormatDuration(timeout),
                      ": it is frozen, or cannot be reached from here");
}

// What is asked. `key` is shown if it is not null.
struct Question {
  proto::CommandRequest request;
  absl::Duration timeout;
  absl::Time deadline;
  const JobKey* key;

  bool changes() const { return request.kind() != proto::CommandRequest::KIND_STATUS; }
};

// The run in `folder`; `address`, if not empty, is that of its coordinator.
absl::StatusOr<Peer> ConnectTo(RunFolder folder, bool is_of_folder, const std::string& address,
                               const Question& question) {
  Peer peer{std::move(folder), address};
  if (address.empty()) {
    RUBATO_ASSIGN_OR_RETURN(peer.address, AddressOf(peer.folder));
  } else if (const absl::Status status = ParseAddresses(address).status(); !status.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("--address: ", status.message()));
  }
  ConnectionOptions connection_options;
  RUBATO_ASSIGN_OR_RETURN(connection_options.credentials,
                          FindCertificates(peer.folder, is_of_folder));
  peer.is_tls = connection_options.credentials.is_tls();
  peer.channel = MakeChannel(peer.address, connection_options);
  const Connection connection = Connect(*peer.channel, question.deadline);
  if (connection == Connection::kSilence) {
    return absl::DeadlineExceededError(Silence(peer.address, question.timeout));
  }
  if (connection == Connection::kMade) return peer;
  if (const absl::Status why = WhyNotConnected(peer.channel); !why.message().empty()) {
    return absl::Status(
        absl::IsUnauthenticated(why) ? absl::StatusCode::kFailedPrecondition : why.code(),
        absl::StrCat("the coordinator at ", peer.address, ": ", why.message()));
  }
  return absl::UnavailableError(absl::StrCat(
      "nobody answers at ", peer.address, ": ",
      address.empty() ? absl::StrCat("the run ", peer.folder.path(), " is over, or was killed")
                      : "does the coordinator of the job listen there?"));
}

// The answer of the run in `folder`; `address`, if not empty, is that of its coordinator. Sets
// `is_over` if the run is not there any more: nobody answers at its address, or another job.
absl::StatusOr<proto::CommandReply> Ask(RunFolder folder, bool is_of_folder,
                                        const std::string& address, const Question& question,
                                        bool* is_over) {
  const absl::StatusOr<Peer> peer = ConnectTo(std::move(folder), is_of_folder, address, question);
  *is_over = !peer.ok() && !absl::IsDeadlineExceeded(peer.status());
  RUBATO_RETURN_IF_ERROR(peer.status());
  Pass pass;
  if (question.key != nullptr) {
    pass.key = *question.key;
  } else {
    RUBATO_ASSIGN_OR_RETURN(pass, FindPass(peer->folder, is_of_folder, question.changes()));
  }
  proto::CommandRequest request = question.request;
  if (question.changes() && !pass.token.empty()) request.set_token(pass.token);
  grpc::ClientContext context;
  context.set_deadline(DeadlineIn(question.deadline - MonotonicNow()));
  proto::CommandReply reply;
  const absl::Status status = [&]() -> absl::Status {
    if (pass.key.has_value()) {
      // What may be done goes by the least that is needed.
      RUBATO_ASSIGN_OR_RETURN(
          const JobKey key,
          pass.key->Of(pass.key->is_secret() ? Role::kOperator : pass.key->role()));
      Caller caller(key);
      RUBATO_RETURN_IF_ERROR(
          SayHello(peer->channel, question.deadline - MonotonicNow(), nullptr, &caller));
      context.AddMetadata(kCallerKey, caller.Show(kCommandMethod));
    }
    return FromGrpc(
        proto::Coordination::NewStub(peer->channel)->Command(&context, request, &reply));
  }();
  if (absl::IsDeadlineExceeded(status)) {
    return absl::DeadlineExceededError(absl::StrCat(
        "the coordinator at ", peer->address, " has not answered within ",
        absl::FormatDuration(question.timeout), ": it is busy or frozen",
        question.changes()
            ? "; whether it does what was asked is not known: `rubato status` will tell"
            : ""));
  }
  if (absl::IsPermissionDenied(status) || absl::IsUnauthenticated(status)) {
    // Asking again does not help.
    const bool has_shown = pass.key.has_value() || !pass.token.empty();
    const bool lacks_key = absl::IsUnauthenticated(status) && !pass.key.has_value();
    *is_over = has_shown && (absl::IsUnauthenticated(status) || !pass.token.empty());
    if (lacks_key && has_shown) {
      return absl::FailedPreconditionError(absl::StrCat(
          pass.from, ": not a key, and the coordinator at ", peer->address, " asks for one"));
    }
    if (lacks_key && !peer->is_tls) {
      return absl::FailedPreconditionError(
          absl::StrCat("the coordinator at ", peer->address,
                       " asks for a key, and this process has none: give it the run's token "
                       "(RUBATO_TOKEN) or the job's key (RUBATO_KEY or RUBATO_KEY_FILE)"));
    }
    return absl::FailedPreconditionError(
        absl::StrCat(status.message(), has_shown ? ": that in " : "", has_shown ? pass.from : ""));
  }
  if (absl::IsUnavailable(status)) {
    return absl::UnavailableError(
        absl::StrCat("the coordinator at ", peer->address, ": ", status.message()));
  }
  if (absl::IsInvalidArgument(status)) return status;  // of what was asked
  if (!status.ok()) {
    return absl::Status(
        status.code(),
        absl::StrCat(peer->address,
                     " does not answer as the coordinator of a job does: ", status.message()));
  }
  return reply;
}

// The runs under runs/ that have said where they listen, and not that they are over; the newest
// first.
std::vector<RunFolder> RunsUnderWay() {
  namespace fs = std::filesystem;
  std::vector<std::pair<fs::file_time_type, RunFolder>> found;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator("runs", error)) {
    if (entry.is_symlink(error)) continue;
    const RunFolder folder(entry.path().string());
    const fs::file_time_type time = fs::last_write_time(folder.AddressFile(), error);
    if (error || fs::exists(folder.SummaryFile(), error)) continue;
    found.emplace_back(time, folder);
  }
  std::sort(found.begin(), found.end(),
            [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<RunFolder> runs;
  for (auto& [time, folder] : found) runs.push_back(std::move(folder));
  return runs;
}

// runs/latest if it runs, else the newest that does: one that has yet to begin, or that was given a
// folder under runs/. What is over refuses at once. Who refuses after a while was frozen, and has
// been killed meanwhile: another run is not meant then.
absl::StatusOr<proto::CommandReply> AskNewest(const Question& question) {
  const absl::Time soon = MonotonicNow() + kAnswerTimeout;
  bool is_over = false;
  const auto ask = [&](RunFolder folder) {
    absl::StatusOr<proto::CommandReply> reply =
        Ask(std::move(folder), true, /*address=*/"", question, &is_over);
    if (MonotonicNow() > soon) is_over = false;
    return reply;
  };
  std::error_code error;
  const std::filesystem::path latest = std::filesystem::read_symlink("runs/latest", error);
  const absl::StatusOr<proto::CommandReply> first =
      ask(RunFolder(error ? "runs/latest" : "runs/" + latest.string()));
  if (!is_over) return first;
  for (RunFolder& folder : RunsUnderWay()) {
    absl::StatusOr<proto::CommandReply> other = ask(std::move(folder));
    if (!is_over) return other;
  }
  if (absl::IsNotFound(first.status()) && access("runs/latest", F_OK) != 0) {
    return absl::NotFoundError(absl::StrCat(
        "found no run below ", std::filesystem::current_path(error).string(),
        ": go to the folder where `rubato train` was started, or name the run's folder"));
  }
  return absl::Status(
      first.status().code(),
      absl::StrCat(first.status().message(), "; a run with --run-dir has to be named"));
}

}  // namespace

absl::StatusOr<proto::CommandReply> SendCommand(const std::string& run, const std::string& address,
                                                proto::CommandRequest request,
                                                absl::Duration timeout, const JobKey* key) {
  const Question question{std::move(request), timeout, MonotonicNow() + timeout, key};
  if (run.empty() && address.empty()) return AskNewest(question);
  bool is_over;
  return Ask(RunFolder(run.empty() ? "runs/latest" : run), /*is_of_folder=*/!run.empty(), address,
             question, &is_over);
}

absl::StatusOr<proto::CommandRequest> SwitchRequest(absl::string_view mode) {
  proto::CommandRequest request;
  request.set_kind(proto::CommandRequest::KIND_SWITCH);
  YamlReader reader(request.mutable_mode());
  reader.ReadFlag("--mode", mode);
  Complete(request.mutable_mode(), &reader.report());
  if (const absl::Status status = reader.report().ToStatus(); !status.ok()) {
    if (mode != "bounded") return status;
    return absl::InvalidArgumentError(
        absl::StrCat(status.message(), ", as in --mode bounded,staleness=3"));
  }
  return request;
}

}  // namespace rubato
