#include "server/coordinator/coordinator_record.h"

#include <string>
#include <variant>

#include "absl/status/status.h"
#include "common/base/crc32c.h"
#include "server/run/metrics_file.h"

namespace rubato::coordinator {
namespace {

proto::Result ToProto(const absl::Status& status) {
  proto::Result result;
  result.set_code(static_cast<int>(status.code()));
  result.set_message(std::string(status.message()));
  return result;
}

absl::Status FromProto(const proto::Result& result) {
  return absl::Status(static_cast<absl::StatusCode>(result.code()), result.message());
}

// One overload for each kind of event.

void Fill(const FromPeer& event, proto::CoordinatorEvent* out) {
  out->mutable_message()->set_peer(event.peer);
  *out->mutable_message()->mutable_message() = event.message;
}

void Fill(const PeerGone& event, proto::CoordinatorEvent* out) { out->set_peer_gone(event.peer); }

void Fill(const Heartbeat& event, proto::CoordinatorEvent* out) {
  *out->mutable_heartbeat() = event.request;
}

void Fill(const Tick&, proto::CoordinatorEvent* out) { out->set_tick(true); }

void Fill(const Collected& event, proto::CoordinatorEvent* out) {
  *out->mutable_collected() = ToProto(event.status);
}

void Fill(const Checkpointed& event, proto::CoordinatorEvent* out) {
  proto::CoordinatorEvent::Checkpointed* done = out->mutable_checkpointed();
  done->set_snapshot(event.snapshot);
  *done->mutable_result() = ToProto(event.path.status());
  if (event.path.ok()) done->set_path(*event.path);
}

void Fill(const CheckpointRequested&, proto::CoordinatorEvent* out) {
  out->set_request_checkpoint(true);
}

void Fill(const SwitchRequested& event, proto::CoordinatorEvent* out) {
  *out->mutable_request_switch() = event.mode;
}

void Fill(const StopRequested& event, proto::CoordinatorEvent* out) {
  *out->mutable_request_stop()->mutable_end() = ToProto(event.end);
  out->mutable_request_stop()->set_reason(event.reason);
}

void Fill(const Failed& event, proto::CoordinatorEvent* out) {
  *out->mutable_failure() = ToProto(event.status);
}

void Fill(const RestoreBroke& event, proto::CoordinatorEvent* out) {
  *out->mutable_restore_broke() = ToProto(event.status);
}

void Fill(const PartsFolder& event, proto::CoordinatorEvent* out) {
  out->set_parts_folder(event.path);
}

void Fill(const ValuesSaved& event, proto::CoordinatorEvent* out) {
  *out->mutable_values_saved() = ToProto(event.status);
}

Event FromProto(const proto::CoordinatorEvent& event) {
  switch (event.kind_case()) {
    case proto::CoordinatorEvent::kMessage:
      return FromPeer{event.message().peer(), event.message().message()};
    case proto::CoordinatorEvent::kPeerGone:
      return PeerGone{event.peer_gone()};
    case proto::CoordinatorEvent::kHeartbeat:
      return Heartbeat{event.heartbeat()};
    case proto::CoordinatorEvent::kCollected:
      return Collected{FromProto(event.collected())};
    case proto::CoordinatorEvent::kCheckpointed: {
      const proto::CoordinatorEvent::Checkpointed& done = event.checkpointed();
      absl::StatusOr<std::string> path = done.path();
      if (const absl::Status status = FromProto(done.result()); !status.ok()) path = status;
      return Checkpointed{done.snapshot(), path};
    }
    case proto::CoordinatorEvent::kRequestCheckpoint:
      return CheckpointRequested{};
    case proto::CoordinatorEvent::kRequestSwitch:
      return SwitchRequested{event.request_switch()};
    case proto::CoordinatorEvent::kRequestStop:
      return StopRequested{FromProto(event.request_stop().end()), event.request_stop().reason()};
    case proto::CoordinatorEvent::kFailure:
      return Failed{FromProto(event.failure())};
    case proto::CoordinatorEvent::kRestoreBroke:
      return RestoreBroke{FromProto(event.restore_broke())};
    case proto::CoordinatorEvent::kPartsFolder:
      return PartsFolder{event.parts_folder()};
    case proto::CoordinatorEvent::kValuesSaved:
      return ValuesSaved{FromProto(event.values_saved())};
    case proto::CoordinatorEvent::kTick:
    case proto::CoordinatorEvent::KIND_NOT_SET:
      break;
  }
  return Tick{};
}

// One overload for each kind of outcome.

void Fill(const Send& send, proto::CoordinatorOutcome* out) {
  out->mutable_send()->set_peer(send.peer);
  *out->mutable_send()->mutable_message() = send.message;
}

void Fill(const Log& log, proto::CoordinatorOutcome* out) { out->set_log(log.text); }

void Fill(const Warn& warn, proto::CoordinatorOutcome* out) { out->set_warning(warn.text); }

void Fill(const MetricsLine& line, proto::CoordinatorOutcome* out) {
  out->set_metrics(ToJson(line));
}

void Fill(const Journal& journal, proto::CoordinatorOutcome* out) {
  *out->mutable_journal()->mutable_view() = journal.view;
  out->mutable_journal()->set_reason(journal.reason);
}

void Fill(const Collect& collect, proto::CoordinatorOutcome* out) {
  out->set_collect(collect.version);
}

void Fill(const Restore& restore, proto::CoordinatorOutcome* out) {
  proto::CoordinatorOutcome::Restore* message = out->mutable_restore();
  for (const int shard : restore.shards) message->add_shards(shard);
  message->set_slots(restore.slots);
}

void Fill(const SaveValues& save, proto::CoordinatorOutcome* out) {
  out->mutable_save_values()->set_begin(save.begin);
  out->mutable_save_values()->set_bits(Crc32c(save.values));
}

void Fill(const SaveData& save, proto::CoordinatorOutcome* out) {
  *out->mutable_save_data() = save.data;
}

void Fill(const WriteCheckpoint& write, proto::CoordinatorOutcome* out) {
  out->mutable_checkpoint()->set_snapshot(write.snapshot);
  *out->mutable_checkpoint()->mutable_manifest() = write.manifest;
  for (const int shard : write.unseen) out->mutable_checkpoint()->add_unseen(shard);
}

void Fill(const Keep& keep, proto::CoordinatorOutcome* out) { *out->mutable_keep() = keep.lasting; }

void Fill(const End& end, proto::CoordinatorOutcome* out) {
  *out->mutable_end()->mutable_result() = ToProto(end.status);
  if (end.lost_shard.has_value()) out->mutable_end()->set_lost_shard(*end.lost_shard);
}

void Fill(const Answer& answer, proto::CoordinatorOutcome* out) {
  *out->mutable_answer()->mutable_result() = ToProto(answer.text.status());
  if (answer.text.ok()) out->mutable_answer()->set_text(*answer.text);
}

template <typename Message, typename Variant>
Message ToProto(const Variant& variant) {
  Message message;
  std::visit([&message](const auto& kind) { Fill(kind, &message); }, variant);
  return message;
}

}  // namespace

Outcomes HandleAndRecord(const Event& event, absl::Time now, Coordinator* core,
                         RecordingWriter* recording) {
  if (recording == nullptr) return core->Handle(event, now);
  auto message = ToProto<proto::CoordinatorEvent>(event);
  message.set_now_nanos(absl::ToUnixNanos(now));
  recording->Event(message);
  Outcomes outcomes = core->Handle(event, now);
  for (const Outcome& outcome : outcomes) {
    recording->Outcome(ToProto<proto::CoordinatorOutcome>(outcome));
  }
  return outcomes;
}

std::vector<proto::CoordinatorOutcome> Replay(const proto::CoordinatorEvent& event,
                                              Coordinator* core) {
  std::vector<proto::CoordinatorOutcome> outcomes;
  for (const Outcome& outcome :
       core->Handle(FromProto(event), absl::FromUnixNanos(event.now_nanos()))) {
    outcomes.push_back(ToProto<proto::CoordinatorOutcome>(outcome));
  }
  return outcomes;
}

}  // namespace rubato::coordinator
