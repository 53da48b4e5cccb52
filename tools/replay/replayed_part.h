// One core's recording, run again: what came of each event now beside what came of it then.
#ifndef RUBATO_TOOLS_REPLAY_REPLAYED_PART_H_
#define RUBATO_TOOLS_REPLAY_REPLAYED_PART_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status.h"
#include "google/protobuf/message.h"
#include "server/run/recording.h"

namespace rubato {

struct ReplayedPart {
  std::string name;  // "shard 1"
  std::string path;
  int64_t bytes = 0;
  int64_t events = 0;
  bool has_end = false;                   // else it was killed, or its disk was full
  std::optional<std::string> difference;  // the first one, which ended the replay
};

// The field of the message's oneof `kind` that is set; "nothing" if none is.
inline std::string KindOf(const google::protobuf::Message& message) {
  const google::protobuf::OneofDescriptor* kind = message.GetDescriptor()->FindOneofByName("kind");
  const google::protobuf::FieldDescriptor* field =
      message.GetReflection()->GetOneofFieldDescriptor(message, kind);
  return field == nullptr ? "nothing" : field->name();
}

// A message for people, in one line of bearable length.
inline std::string Brief(const google::protobuf::Message& message) {
  constexpr size_t kLongest = 200;
  const std::string text = message.ShortDebugString();
  return text.size() <= kLongest ? text : absl::StrCat(text.substr(0, kLongest), "...");
}

// Hands each event of the recording to `handle`, which says what comes of it, up to the end or the
// first difference; `describe` says what an event or an outcome is. InvalidArgument if the
// recording is damaged; errors of `handle`.
template <typename Event, typename Outcome>
absl::Status ReplayEvents(RecordingReader* reader,
                          const std::function<absl::Status(const Event&, std::vector<float> values,
                                                           std::vector<Outcome>* outcomes)>& handle,
                          const std::function<std::string(const Event&)>& describe_event,
                          const std::function<std::string(const Outcome&)>& describe,
                          ReplayedPart* part) {
  std::optional<Event> event;
  std::vector<Outcome> recorded, replayed;
  // `is_whole`: no more of its outcomes can have been recorded.
  const auto compare = [&](bool is_whole) {
    const size_t count = is_whole ? std::max(recorded.size(), replayed.size()) : recorded.size();
    for (size_t i = 0; i < count; ++i) {
      const bool was = i < recorded.size(), is = i < replayed.size();
      if (was && is && recorded[i].SerializeAsString() == replayed[i].SerializeAsString()) continue;
      std::string then = was ? describe(recorded[i]) : "nothing more";
      std::string now = is ? describe(replayed[i]) : "nothing more";
      if (then == now) {
        then = Brief(recorded[i]);
        now = Brief(replayed[i]);
      }
      part->difference =
          absl::StrFormat("%s, event %d (%s): recorded: %s; replayed: %s", part->name, part->events,
                          describe_event(*event), then, now);
      return;
    }
  };
  while (true) {
    RUBATO_ASSIGN_OR_RETURN(std::optional<RecordingEntry> entry, reader->Next());
    if (entry.has_value() && entry->kind == RecordingEntry::Kind::kOutcome) {
      if (!recorded.emplace_back().ParseFromString(entry->message) || !event.has_value()) {
        return absl::InvalidArgumentError(
            absl::StrFormat("%s is damaged: what came of event %d is no message of this version",
                            part->path, reader->events()));
      }
      continue;
    }
    if (event.has_value()) compare(entry.has_value() || reader->has_end());
    part->has_end = reader->has_end();
    if (part->difference.has_value() || !entry.has_value()) return absl::OkStatus();
    part->events = reader->events();
    if (!event.emplace().ParseFromString(entry->message)) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "%s is damaged: event %d is no message of this version", part->path, part->events));
    }
    recorded.clear();
    replayed.clear();
    RUBATO_RETURN_IF_ERROR(handle(*event, std::move(entry->values), &replayed));
  }
}

}  // namespace rubato

#endif  // RUBATO_TOOLS_REPLAY_REPLAYED_PART_H_
