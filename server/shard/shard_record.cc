#include "server/shard/shard_record.h"

#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "common/base/check.h"
#include "common/base/crc32c.h"
#include "common/base/overloaded.h"
#include "common/base/status.h"

namespace rubato {
namespace {

std::string EncodedHeader(const Frame& frame) {
  std::string header(kFrameHeaderBytes, '\0');
  EncodeFrame(frame, reinterpret_cast<uint8_t*>(header.data()));
  return header;
}

proto::ShardEvent ToProto(const ShardEvent& event) {
  proto::ShardEvent out;
  std::visit(
      Overloaded{[&](const shard_event::Message& what) { *out.mutable_message() = what.message; },
                 [&](const shard_event::Arrival& what) {
                   out.set_frame(EncodedHeader(what.frame));
                   out.set_stream(what.stream);
                 },
                 [&](const shard_event::StreamGone& what) {
                   out.set_gone(true);
                   out.set_stream(what.stream);
                 },
                 // Of floats, changes take no time.
                 [](const shard_event::ChangeDue&) { RUBATO_CHECK(false); }},
      event);
  return out;
}

}  // namespace

proto::ShardOutcome ToProto(const ShardOutcome& outcome) {
  proto::ShardOutcome out;
  std::visit(
      Overloaded{[&](const shard_outcome::Sent& sent) {
                   out.mutable_sent()->set_stream(sent.stream);
                   out.mutable_sent()->set_frame(EncodedHeader(sent.frame));
                 },
                 [&](const shard_outcome::Said& said) { *out.mutable_said() = said.message; },
                 [&](const shard_outcome::Updated& updated) {
                   out.mutable_update()->set_block(updated.block);
                   out.mutable_update()->set_version(updated.version);
                   uint32_t bits = BitsOf(updated.parameters);
                   for (const absl::Span<const float> slot : updated.slots) {
                     bits = BitsOf(slot, bits);
                   }
                   out.mutable_update()->set_bits(bits);
                 },
                 [&](const shard_outcome::Refused& refused) {
                   const absl::Status& status = refused.status;
                   out.mutable_refused()->set_code(static_cast<int>(status.code()));
                   out.mutable_refused()->set_message(std::string(status.message()));
                 },
                 [&](const shard_outcome::WritePart& part) {
                   out.mutable_part()->set_snapshot(part.snapshot);
                   for (const auto& [block, copy] : part.blocks) {
                     for (const Payload& values : copy.values) {
                       out.mutable_part()->add_bits(BitsOf(values.values()));
                     }
                   }
                 },
                 [&](const shard_outcome::ForgetPart& part) {  // nothing of it is written any more
                   out.mutable_part()->set_snapshot(part.snapshot);
                 },
                 [&](const shard_outcome::ReadPart& part) { out.set_read(part.path); }},
      outcome);
  return out;
}

absl::Status HandleAndRecord(const ShardEvent& event, ShardProtocol* shard,
                             RecordingWriter* recording) {
  if (recording == nullptr) return shard->Handle(event);
  std::vector<float> scratch;
  const auto* arrival = std::get_if<shard_event::Arrival>(&event);
  recording->Event(ToProto(event), arrival == nullptr ? absl::Span<const float>()
                                                      : arrival->values.Whole(&scratch));
  return shard->Handle(event);
}

ShardProtocol::Sink RecordingSink(ShardProtocol::Sink sink, RecordingWriter* recording) {
  if (recording == nullptr) return sink;
  return [sink = std::move(sink), recording](const ShardOutcome& outcome) {
    recording->Outcome(ToProto(outcome));
    sink(outcome);
  };
}

absl::Status Replay(const proto::ShardEvent& event, absl::Span<const float> values,
                    ShardProtocol* shard) {
  if (event.has_message()) return shard->Handle(shard_event::Message{event.message()});
  if (event.has_gone()) return shard->Handle(shard_event::StreamGone{event.stream()});
  RUBATO_ASSIGN_OR_RETURN(
      const Frame frame,
      DecodeFrame(absl::MakeConstSpan(reinterpret_cast<const uint8_t*>(event.frame().data()),
                                      event.frame().size())));
  // Refused or not is an outcome.
  shard->Handle(shard_event::Arrival{event.stream(), frame, values}).IgnoreError();
  return absl::OkStatus();
}

uint32_t BitsOf(absl::Span<const float> values, uint32_t before) {
  return Crc32c({reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)},
                before);
}

}  // namespace rubato
