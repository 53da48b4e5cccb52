#include "server/rules/allowed.h"

namespace rubato {

absl::string_view VerdictName(Verdict verdict) {
  constexpr absl::string_view kNames[] = {"allowed", "dropped", "refused"};
  return kNames[static_cast<size_t>(verdict)];
}

absl::string_view SpeakerName(Speaker speaker) {
  constexpr absl::string_view kNames[kSpeakers] = {
      "stranger", "new worker", "member", "member after", "new shard", "shard", "gone"};
  return kNames[static_cast<size_t>(speaker)];
}

absl::string_view SenderName(Sender sender) {
  constexpr absl::string_view kNames[kSenders] = {"no view yet", "observer", "member",  "earlier",
                                                  "next",        "nobody",   "impostor"};
  return kNames[static_cast<size_t>(sender)];
}

std::string MessageName(proto::PeerMessage::KindCase kind) {
  const auto* const field = proto::PeerMessage::descriptor()->FindFieldByNumber(kind);
  return field == nullptr ? "nothing that is known" : field->name();
}

absl::string_view FrameName(FrameKind kind) {
  switch (kind) {
    case FrameKind::kPush:
      return "push";
    case FrameKind::kPull:
      return "pull";
    case FrameKind::kParameters:
      return "parameters";
    case FrameKind::kRestore:
      return "restore";
    case FrameKind::kRetire:
      return "retire";
  }
  return "unknown";
}

}  // namespace rubato
