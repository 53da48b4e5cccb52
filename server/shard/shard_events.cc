#include "server/shard/shard_events.h"

#include <string>

#include "absl/strings/string_view.h"
#include "common/base/crc32c.h"

namespace rubato {
namespace {

std::string HeaderOf(const Frame& frame) {
  std::string header(kFrameHeaderBytes, '\0');
  EncodeFrame(frame, reinterpret_cast<uint8_t*>(header.data()));
  return header;
}

}  // namespace

proto::ShardEvent EventOf(const proto::CoordinatorMessage& message) {
  proto::ShardEvent event;
  *event.mutable_message() = message;
  return event;
}

proto::ShardEvent EventOf(uint64_t stream, const Frame& frame) {
  proto::ShardEvent event;
  event.set_frame(HeaderOf(frame));
  event.set_stream(stream);
  return event;
}

proto::ShardEvent StreamGone(uint64_t stream) {
  proto::ShardEvent event;
  event.set_gone(true);
  event.set_stream(stream);
  return event;
}

proto::ShardOutcome Updated(int64_t block, int64_t version, absl::Span<const float> parameters,
                            absl::Span<const absl::Span<float>> slots) {
  proto::ShardOutcome outcome;
  outcome.mutable_update()->set_block(block);
  outcome.mutable_update()->set_version(version);
  uint32_t bits = BitsOf(parameters);
  for (const absl::Span<const float> slot : slots) bits = BitsOf(slot, bits);
  outcome.mutable_update()->set_bits(bits);
  return outcome;
}

proto::ShardOutcome Sent(uint64_t stream, const Frame& frame) {
  proto::ShardOutcome outcome;
  outcome.mutable_sent()->set_stream(stream);
  outcome.mutable_sent()->set_frame(HeaderOf(frame));
  return outcome;
}

proto::ShardOutcome Said(const proto::PeerMessage& message) {
  proto::ShardOutcome outcome;
  *outcome.mutable_said() = message;
  return outcome;
}

proto::ShardOutcome Refused(const absl::Status& status) {
  proto::ShardOutcome outcome;
  outcome.mutable_refused()->set_code(static_cast<int>(status.code()));
  outcome.mutable_refused()->set_message(std::string(status.message()));
  return outcome;
}

uint32_t BitsOf(absl::Span<const float> values, uint32_t before) {
  return Crc32c({reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)},
                before);
}

}  // namespace rubato
