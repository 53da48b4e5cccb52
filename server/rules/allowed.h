// The table of what a member of a job may send, and when: messages of a Join call and frames of a
// data stream. The receiver (server/coordinator, server/shard) determines who the sender is and
// looks up the verdict; the numbers in a message are checked afterwards. docs/security.md shows the
// same table (allowed_test.cc).
//
// A message that a correct peer may send but that arrives too late (from an earlier view, or from a
// peer that has lost its place) is dropped. A message that no correct peer sends is refused: the
// call or stream ends.
#ifndef RUBATO_SERVER_RULES_ALLOWED_H_
#define RUBATO_SERVER_RULES_ALLOWED_H_

#include <array>
#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"
#include "common/frames/frame.h"
#include "proto/cluster.pb.h"

namespace rubato {

enum class Verdict { kAllowed, kDropped, kRefused };

// Who speaks on a Join call.
enum class Speaker {
  kStranger,     // has not registered
  kNewWorker,    // a worker that has had no view yet
  kMember,       // one that has, while the job trains
  kMemberAfter,  // the same when the training is over
  kNewShard,     // a shard that has had no view yet
  kShard,        // one that has
  kGone,         // was told to stop: what it says was on its way
};
constexpr size_t kSpeakers = 7;

// Who sends a frame, by the names in it and by what the shard knows.
enum class Sender {
  kUnknown,   // anybody, while the shard has had no view
  kObserver,  // kObserver
  kMember,    // a member of the shard's view, in that view
  kEarlier,   // in an earlier view, whoever
  kNext,      // in the next view: a member of this one; of a pull whoever
  kNobody,    // no member, or in a view beyond the next
  kImpostor,  // by another name than the stream's, or by that of another stream
};
constexpr size_t kSenders = 7;

struct MessageRule {
  proto::PeerMessage::KindCase kind;
  std::array<Verdict, kSpeakers> of;  // by Speaker
};

struct FrameRule {
  FrameKind kind;
  std::array<Verdict, kSenders> of;  // by Sender
};

namespace allowed_internal {
constexpr Verdict A = Verdict::kAllowed, D = Verdict::kDropped, R = Verdict::kRefused;
using Message = proto::PeerMessage;
}  // namespace allowed_internal

// clang-format off
inline constexpr auto kMessageRules = [] {
  using namespace allowed_internal;
  return std::array<MessageRule, 17>{{
      // stranger, new worker, member, member after, new shard, shard, gone
      {Message::kRegistration,   {A, R, R, R, D, D, D}},
      {Message::kWorkRequest,    {R, R, A, D, R, R, D}},
      {Message::kProgress,       {R, R, A, D, R, R, D}},
      {Message::kIdle,           {R, R, A, D, R, R, D}},
      {Message::kEvaluation,     {R, R, A, A, R, R, D}},
      {Message::kLeave,          {R, A, A, A, R, R, D}},
      {Message::kInitialValues,  {R, A, D, D, R, R, D}},
      {Message::kFailure,        {R, A, A, A, A, A, D}},
      {Message::kStopRequest,    {R, R, R, R, A, A, D}},
      {Message::kShardOpened,    {R, R, R, R, R, A, D}},
      {Message::kShardRestored,  {R, R, R, R, R, A, D}},
      {Message::kShardClosed,    {R, R, R, R, R, A, D}},
      {Message::kQuestion,       {R, R, R, R, R, A, D}},
      {Message::kSnapshotCopied, {R, R, R, R, R, A, D}},
      {Message::kSnapshotMissed, {R, R, R, R, R, A, D}},
      {Message::kPartWritten,    {R, R, R, R, R, A, D}},
      {Message::kShardReport,    {R, R, R, R, R, A, D}},
  }};
}();

inline constexpr auto kFrameRules = [] {
  using namespace allowed_internal;
  return std::array<FrameRule, 5>{{
      // unknown, observer, member, earlier, next, nobody, impostor
      {FrameKind::kPush,       {R, R, A, A, A, R, R}},
      {FrameKind::kPull,       {R, A, A, D, A, R, R}},
      {FrameKind::kRetire,     {R, R, A, D, A, R, R}},
      {FrameKind::kRestore,    {R, A, R, R, R, R, R}},
      {FrameKind::kParameters, {R, R, R, R, R, R, R}},
  }};
}();
// clang-format on

// A kind that is not in the table is refused from every peer that is not gone.
constexpr Verdict MaySay(proto::PeerMessage::KindCase kind, Speaker speaker) {
  for (const MessageRule& rule : kMessageRules) {
    if (rule.kind == kind) return rule.of[static_cast<size_t>(speaker)];
  }
  return speaker == Speaker::kGone ? Verdict::kDropped : Verdict::kRefused;
}

constexpr Verdict MaySend(FrameKind kind, Sender sender) {
  for (const FrameRule& rule : kFrameRules) {
    if (rule.kind == kind) return rule.of[static_cast<size_t>(sender)];
  }
  return Verdict::kRefused;
}

// For people.
absl::string_view VerdictName(Verdict verdict);
absl::string_view SpeakerName(Speaker speaker);
absl::string_view SenderName(Sender sender);
// As proto/cluster.proto calls the field.
std::string MessageName(proto::PeerMessage::KindCase kind);
absl::string_view FrameName(FrameKind kind);

}  // namespace rubato

#endif  // RUBATO_SERVER_RULES_ALLOWED_H_
