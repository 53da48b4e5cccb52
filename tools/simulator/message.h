// What travels in the simulated network: frames of the data streams and messages of the control
// calls, as on the real wire but without their encoding.
#ifndef RUBATO_TOOLS_SIMULATOR_MESSAGE_H_
#define RUBATO_TOOLS_SIMULATOR_MESSAGE_H_

#include <array>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/strings/string_view.h"
#include "common/frames/frame.h"
#include "common/frames/payload.h"
#include "proto/cluster.pb.h"

namespace rubato {

// The contents of a block: floats, or a symbol in their place (see symbol.h).
struct Content {
  uint64_t symbol = 0;
  std::shared_ptr<const Payload> floats;  // null: the symbol
};

// On the wire with its header; `symbolic` where it is a symbol.
inline int64_t BytesOf(const Content& content, int64_t symbolic) {
  if (content.floats == nullptr) return symbolic;
  return kFrameHeaderBytes + static_cast<int64_t>(content.floats->bytes.size());
}

// Two cache lines: with a hundred thousand messages in flight, hardly one is in the cache.
struct alignas(64) SimMessage {
  // Of which faults are told apart.
  enum class Kind : uint8_t { kPush, kPull, kParameters, kToCoordinator, kFromCoordinator };
  static constexpr std::array<absl::string_view, 5> kKindNames = {
      "push", "pull", "parameters", "to coordinator", "from coordinator"};

  int64_t bytes = 0;  // on the wire
  Frame frame;        // of the first three kinds
  Content content;    // of the first three kinds; of the others, its owner holds the message
  Kind kind = Kind::kPush;
  uint16_t term = 0;    // that the data stream shows when it is opened
  uint32_t number = 0;  // of what its sender sends on a data stream, in the order of the calls

  static SimMessage ToCoordinator(proto::PeerMessage message) {
    return Control(Kind::kToCoordinator, std::move(message));
  }
  static SimMessage FromCoordinator(proto::CoordinatorMessage message) {
    return Control(Kind::kFromCoordinator, std::move(message));
  }
  const proto::PeerMessage& to_coordinator() const {
    return *static_cast<const proto::PeerMessage*>(content.floats->owner.get());
  }
  std::shared_ptr<const proto::CoordinatorMessage> from_coordinator() const {
    return std::static_pointer_cast<const proto::CoordinatorMessage>(content.floats->owner);
  }

 private:
  template <typename Message>
  static SimMessage Control(Kind kind, Message message) {
    SimMessage out;
    out.kind = kind;
    out.bytes = static_cast<int64_t>(message.ByteSizeLong());
    Payload payload;
    payload.owner = std::make_shared<const Message>(std::move(message));
    out.content.floats = std::make_shared<const Payload>(std::move(payload));
    return out;
  }
};
static_assert(sizeof(SimMessage) == 128);

inline absl::string_view KindName(SimMessage::Kind kind) {
  return SimMessage::kKindNames[static_cast<size_t>(kind)];
}

// Whether it is a frame of a data stream.
inline bool IsData(SimMessage::Kind kind) { return kind <= SimMessage::Kind::kParameters; }

}  // namespace rubato

#endif  // RUBATO_TOOLS_SIMULATOR_MESSAGE_H_
