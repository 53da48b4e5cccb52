#include "common/wire/outbox.h"

namespace rubato {
namespace {

size_t BytesOf(const Payload& payload) { return kFrameHeaderBytes + payload.bytes.size(); }

}  // namespace

void Outbox::Push(const Frame& frame, const Payload& payload) {
  const bool is_pull = payload.size == 0;
  if (is_pull) ++group_;
  frames_.emplace_hint(frames_.end(), Place{{group_, is_pull ? 0 : frame.block}, number_++},
                       OutgoingFrame{frame, payload});
  bytes_ += BytesOf(payload);
}

OutgoingFrame Outbox::PopFront() {
  OutgoingFrame frame = std::move(frames_.begin()->second);
  frames_.erase(frames_.begin());
  bytes_ -= BytesOf(frame.payload);
  return frame;
}

void Outbox::Clear() {
  frames_.clear();
  bytes_ = 0;
}

}  // namespace rubato
