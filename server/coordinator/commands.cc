#include "server/coordinator/commands.h"

#include "absl/strings/str_cat.h"
#include "common/base/printable.h"

namespace rubato {
namespace {

constexpr size_t kMostOfReason = 200;  // bytes

// Why the job stops, as its summary says.
absl::StatusOr<std::string> WhyStopped(const std::string& reason) {
  if (reason.empty()) return "asked to";
  if (reason.size() <= kMostOfReason) return absl::StrCat("asked to: ", Printable(reason));
  return absl::InvalidArgumentError(absl::StrCat("the reason: found ", reason.size(),
                                                 " bytes, expected at most ", kMostOfReason));
}

absl::StatusOr<proto::CommandReply> Text(const absl::StatusOr<std::string>& text) {
  if (!text.ok()) return text.status();
  proto::CommandReply reply;
  reply.set_text(*text);
  return reply;
}

}  // namespace

absl::Status Commands::Check(const proto::CommandRequest& request,
                             std::optional<bool> may_change) const {
  if (request.kind() == proto::CommandRequest::KIND_STATUS) return absl::OkStatus();
  if (may_change.has_value()) {
    if (*may_change) return absl::OkStatus();
    return absl::PermissionDeniedError(
        "this changes the job: it needs the operator's key or certificate");
  }
  if (!token_.empty() && request.token() == token_) return absl::OkStatus();
  return absl::PermissionDeniedError(
      request.token().empty()
          ? "this changes the job: it needs the run's token (the file `token` in the run's "
            "folder, or RUBATO_TOKEN in the environment)"
          : "the token is not this run's");
}

void Commands::Handle(const proto::CommandRequest& request, std::optional<bool> may_change, Ask ask,
                      absl::FunctionRef<proto::JobStatus()> status, Answer answer) {
  if (const absl::Status allowed = Check(request, may_change); !allowed.ok()) {
    answer(allowed);
    return;
  }
  switch (request.kind()) {
    case proto::CommandRequest::KIND_CHECKPOINT:
      if (const auto begun = ask(coordinator::CheckpointRequested{}); !begun.ok()) {
        answer(begun.status());
      } else {
        waiting_.push_back(std::move(answer));
      }
      break;
    case proto::CommandRequest::KIND_STOP:
      if (const absl::StatusOr<std::string> why = WhyStopped(request.reason()); !why.ok()) {
        answer(why.status());
      } else {
        ask(coordinator::StopRequested{absl::OkStatus(), *why}).IgnoreError();
        answer(Text("the job is stopping"));
      }
      break;
    case proto::CommandRequest::KIND_STATUS: {
      proto::CommandReply reply;
      *reply.mutable_status() = status();
      answer(reply);
      break;
    }
    case proto::CommandRequest::KIND_SWITCH:
      answer(request.mode().staleness() < 0
                 ? absl::InvalidArgumentError("staleness is below 0")
                 : Text(ask(coordinator::SwitchRequested{request.mode()})));
      break;
    default:
      answer(absl::UnimplementedError("no such command"));
  }
}

void Commands::OnCheckpoint(const absl::StatusOr<std::string>& path) {
  for (const Answer& answer : std::exchange(waiting_, {})) answer(Text(path));
}

}  // namespace rubato
