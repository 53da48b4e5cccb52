// Frames that wait to be sent on one stream. Among the blocks that wait the lowest goes first: the
// next forward pass needs it first, while the backward pass, or the updates after it, produce it
// last (priority-based parameter propagation: Jayarajan et al., MLSys 2019).
#ifndef RUBATO_COMMON_WIRE_OUTBOX_H_
#define RUBATO_COMMON_WIRE_OUTBOX_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>

#include "common/frames/frame.h"
#include "common/frames/payload.h"

namespace rubato {

// Of a full message. With less the receiver announces room for more of them more often, with more a
// peer that pushes and pulls at once waits for whole messages (docs/wire.md).
constexpr size_t kMessageBytes = 768 << 10;
// A message of this size or more counts as full. One with as many blocks as fit has it, if these
// are of up to 384 KiB, or of 512 and more.
constexpr size_t kFullMessageBytes = 512 << 10;

struct OutgoingFrame {
  Frame frame;
  Payload payload;

  size_t payload_bytes() const { return payload.bytes.size(); }
};

// A frame without a payload is a pull. It neither overtakes other frames nor is overtaken: because
// it arrives after the pushes that were sent before it, no acknowledgements are needed
// (docs/design.md). Frames of one block keep their order.
class Outbox {
 public:
  void Push(const Frame& frame, const Payload& payload);

  bool empty() const { return frames_.empty(); }
  size_t size() const { return frames_.size(); }
  // Of all headers and payloads.
  size_t bytes() const { return bytes_; }

  // The frame to send next; there is one.
  const OutgoingFrame& front() const { return frames_.begin()->second; }
  OutgoingFrame PopFront();

  // In the order in which they will be sent.
  template <typename Visit>
  void ForEachWhile(Visit visit) const {
    for (const auto& [place, frame] : frames_) {
      if (!visit(frame)) return;
    }
  }

  void Clear();

 private:
  // ((frames between the same pulls, block), order of the calls)
  using Place = std::pair<std::pair<uint64_t, uint64_t>, uint64_t>;

  std::map<Place, OutgoingFrame> frames_;
  size_t bytes_ = 0;
  uint64_t group_ = 0;
  uint64_t number_ = 0;
};

}  // namespace rubato

#endif  // RUBATO_COMMON_WIRE_OUTBOX_H_
