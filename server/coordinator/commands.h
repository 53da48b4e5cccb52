// Handles the commands of a person, over any call: who may give them, what the coordinator's core
// is asked, and when the caller is answered. Single-threaded and without I/O.
#ifndef RUBATO_SERVER_COORDINATOR_COMMANDS_H_
#define RUBATO_SERVER_COORDINATOR_COMMANDS_H_

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "proto/cluster.pb.h"
#include "server/coordinator/coordinator_event.h"

namespace rubato {

class Commands {
 public:
  // Called once a command, with its reply or why there is none.
  using Answer = std::function<void(const absl::StatusOr<proto::CommandReply>& reply)>;

  // What the core answers to an event.
  using Ask = absl::FunctionRef<absl::StatusOr<std::string>(const coordinator::Event& event)>;

  // Commands that change the job must carry this token, unless their sender has authenticated with
  // a key. Before it is set, such commands are refused.
  void SetToken(std::string token) { token_ = std::move(token); }

  // `may_change`: whether the sender's key lets it change the job; nothing if it has shown none.
  // `status` says how the job stands. Answers now, or, of a checkpoint, when it has been written.
  void Handle(const proto::CommandRequest& request, std::optional<bool> may_change, Ask ask,
              absl::FunctionRef<proto::JobStatus()> status, Answer answer);

  // A checkpoint has been written at `path`, or none will be: answers those who wait.
  void OnCheckpoint(const absl::StatusOr<std::string>& path);

 private:
  // PermissionDenied if the sender may not give this command.
  absl::Status Check(const proto::CommandRequest& request, std::optional<bool> may_change) const;

  std::string token_;
  std::vector<Answer> waiting_;
};

}  // namespace rubato

#endif  // RUBATO_SERVER_COORDINATOR_COMMANDS_H_
