// What travels in the simulated network: frames of the data streams and messages of the control
// calls, as on the real wire but without their encoding.
#ifndef RUBATO_TOOLS_SIMULATOR_MESSAGE_H_
#define RUBATO_TOOLS_SIMULATOR_MESSAGE_H_

#include <array>
#include <cstdint>
#include <memory>

#include "absl/strings/string_view.h"
#include "common/wire/frame.h"
#include "common/wire/payload.h"
#include "proto/cluster.pb.h"

namespace rubato {

// What stands for the floats of a block: the floats, or a symbol (see symbol.h).
struct Content {
  uint64_t symbol = 0;
  Payload floats;
};

struct SimMessage {
  // Of which faults are told apart.
  enum class Kind : uint8_t { kPush, kPull, kParameters, kToCoordinator, kFromCoordinator };
  static constexpr std::array<absl::string_view, 5> kKindNames = {
      "push", "pull", "parameters", "to coordinator", "from coordinator"};

  Kind kind = Kind::kPush;
  int64_t bytes = 0;  // on the wire

  Frame frame;  // of the first three kinds
  Content content;
  std::shared_ptr<const proto::PeerMessage> to_coordinator;
  std::shared_ptr<const proto::CoordinatorMessage> from_coordinator;
};

inline absl::string_view KindName(SimMessage::Kind kind) {
  return SimMessage::kKindNames[static_cast<size_t>(kind)];
}

// Whether it is a frame of a data stream.
inline bool IsData(SimMessage::Kind kind) { return kind <= SimMessage::Kind::kParameters; }

}  // namespace rubato

#endif  // RUBATO_TOOLS_SIMULATOR_MESSAGE_H_
