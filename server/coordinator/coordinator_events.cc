#include "server/coordinator/coordinator_events.h"

#include <optional>
#include <string>

#include "server/run/metrics_file.h"

namespace rubato {

proto::Result ToResult(const absl::Status& status) {
  proto::Result result;
  result.set_code(static_cast<int>(status.code()));
  result.set_message(std::string(status.message()));
  return result;
}

absl::Status FromResult(const proto::Result& result) {
  return absl::Status(static_cast<absl::StatusCode>(result.code()), result.message());
}

proto::CoordinatorOutcome OutcomeOf(const CoordinatorAction& action) {
  proto::CoordinatorOutcome outcome;
  switch (action.kind) {
    case CoordinatorAction::Kind::kSend:
      outcome.mutable_send()->set_peer(action.peer);
      *outcome.mutable_send()->mutable_message() = action.message;
      break;
    case CoordinatorAction::Kind::kLog:
      outcome.set_log(action.text);
      break;
    case CoordinatorAction::Kind::kWarn:
      outcome.set_warning(action.text);
      break;
    case CoordinatorAction::Kind::kMetrics:
      outcome.set_metrics(ToJson(action.metrics));
      break;
    case CoordinatorAction::Kind::kJournal:
      *outcome.mutable_journal()->mutable_view() = action.message.view();
      outcome.mutable_journal()->set_reason(action.text);
      break;
    case CoordinatorAction::Kind::kCollect:
      outcome.set_collect(action.version);
      break;
    case CoordinatorAction::Kind::kRestore:
      outcome.set_restore(true);
      break;
    case CoordinatorAction::Kind::kCheckpoint:
      outcome.mutable_checkpoint()->set_snapshot(action.snapshot);
      *outcome.mutable_checkpoint()->mutable_manifest() = action.manifest;
      break;
    case CoordinatorAction::Kind::kEnd:
      *outcome.mutable_end() = ToResult(action.end);
      break;
  }
  return outcome;
}

proto::CoordinatorOutcome AnswerOf(const absl::StatusOr<std::string>& answer) {
  proto::CoordinatorOutcome outcome;
  *outcome.mutable_answer()->mutable_result() = ToResult(answer.status());
  if (answer.ok()) outcome.mutable_answer()->set_text(*answer);
  return outcome;
}

void Repeat(const proto::CoordinatorEvent& event, Coordinator* core,
            std::vector<proto::CoordinatorOutcome>* outcomes) {
  const absl::Time now = absl::FromUnixNanos(event.now_nanos());
  CoordinatorActions actions;
  std::optional<absl::StatusOr<std::string>> answer;
  switch (event.kind_case()) {
    case proto::CoordinatorEvent::kMessage:
      core->OnMessage(event.message().peer(), event.message().message(), now, &actions);
      break;
    case proto::CoordinatorEvent::kPeerGone:
      core->OnPeerGone(event.peer_gone(), now, &actions);
      break;
    case proto::CoordinatorEvent::kHeartbeat:
      core->OnHeartbeat({event.heartbeat().rank(), event.heartbeat().incarnation()}, now);
      break;
    case proto::CoordinatorEvent::kTick:
      core->OnTick(now, &actions);
      break;
    case proto::CoordinatorEvent::kCollected:
      core->OnCollected(FromResult(event.collected()), &actions);
      break;
    case proto::CoordinatorEvent::kCheckpointed: {
      const proto::CoordinatorEvent::Checkpointed& done = event.checkpointed();
      absl::StatusOr<std::string> path = done.path();
      if (const absl::Status status = FromResult(done.result()); !status.ok()) path = status;
      core->OnCheckpointed(done.snapshot(), path, now, &actions);
      break;
    }
    case proto::CoordinatorEvent::kRequestCheckpoint:
      if (const absl::Status status = core->RequestCheckpoint(now, &actions); status.ok()) {
        answer = "";
      } else {
        answer = status;
      }
      break;
    case proto::CoordinatorEvent::kRequestSwitch: {
      const proto::CoordinatorEvent::Switch& wanted = event.request_switch();
      answer = core->RequestSwitch({wanted.mode(), wanted.staleness()}, now, &actions);
      break;
    }
    case proto::CoordinatorEvent::kRequestStop:
      core->RequestStop(FromResult(event.request_stop().end()), event.request_stop().reason(), now,
                        &actions);
      break;
    case proto::CoordinatorEvent::kFailure:
      core->OnFailure(FromResult(event.failure()), &actions);
      break;
    case proto::CoordinatorEvent::KIND_NOT_SET:
      break;
  }
  for (const CoordinatorAction& action : actions) outcomes->push_back(OutcomeOf(action));
  if (answer.has_value()) outcomes->push_back(AnswerOf(*answer));
}

}  // namespace rubato
