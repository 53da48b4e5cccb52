#include "tools/simulator/virtual_streams.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/status/status.h"
#include "common/base/random.h"

namespace rubato {

using Step = StreamCore::Step;

StreamLimits StreamLimits::Draw(uint64_t seed) {
  RandomStream random(Key(seed, "streams"));
  constexpr int64_t kBytes[] = {0, 200, 1000, 4 << 20};
  return {kBytes[random.Below(4)], kBytes[random.Below(4)]};
}

std::shared_ptr<VirtualStreams::Stream> VirtualStreams::Find(ConnectionId stream) const {
  const auto found = streams_.find(stream);
  return found == streams_.end() ? nullptr : found->second;
}

std::shared_ptr<VirtualStreams::Stream> VirtualStreams::Add(ConnectionId id) {
  // A worker waits for all parameters before it pushes on, so what waits there is bounded.
  const size_t most = side_ == StreamCore::Side::kServer ? static_cast<size_t>(limits_->waiting)
                                                         : std::numeric_limits<size_t>::max();
  return streams_[id] = std::make_shared<Stream>(id, side_, most);
}

void VirtualStreams::Open(ConnectionId id, uint32_t term) {
  if (!limits_.has_value()) return;
  const std::shared_ptr<Stream> stream = Add(id);
  stream->term = term;
  if (!network_.HasSent(id, self_)) return;
  stream->opening = false;
  stream->core.OnOpened();
  Proceed(stream.get());
}

void VirtualStreams::Close(ConnectionId id) {
  if (!limits_.has_value()) {
    network_.Close(id, self_);
    return;
  }
  const std::shared_ptr<Stream> stream = Find(id);
  if (stream == nullptr) return;
  stream->is_closed = true;
  stream->core.End(absl::OkStatus());
  // A call that has not begun when it is given up does not begin.
  if (std::exchange(stream->opening, false)) stream->core.OnOpenFailed(absl::OkStatus());
  ProceedToTheEnd(stream.get());
}

void VirtualStreams::CloseAll() {
  std::vector<ConnectionId> ids;
  for (const auto& [id, stream] : streams_) ids.push_back(id);
  std::sort(ids.begin(), ids.end());
  for (const ConnectionId id : ids) Close(id);
}

void VirtualStreams::Queue(ConnectionId id, SimMessage&& message) {
  const std::shared_ptr<Stream> stream = Find(id);
  if (stream == nullptr) return;
  if (batches_ > 0 && !std::exchange(stream->is_held, true)) {
    stream->core.Hold();
    held_.push_back(id);
  }
  message.number = ++stream->sent;
  message.term = static_cast<uint16_t>(stream->term);
  const bool is_pull =
      message.frame.kind == FrameKind::kPull || message.frame.kind == FrameKind::kRetire;
  if (judge_ != nullptr && !stream->core.ended() && !stream->dead) {
    judge_->OnQueued({id, side_}, message.number, is_pull, message.frame.block, message.bytes);
  }
  const Frame frame = message.frame;
  const size_t bytes = static_cast<size_t>(message.bytes - kFrameHeaderBytes);
  const auto owner = std::make_shared<const SimMessage>(std::move(message));
  // Nobody looks at the bytes: the message goes as it is.
  const absl::Span<const char> none(reinterpret_cast<const char*>(owner.get()), bytes);
  stream->core.Push(frame, Payload(owner, Codec::kFloat32, none, is_pull ? 0 : 1));
  Proceed(stream.get());
}

void VirtualStreams::Arrive(ConnectionId id, SimMessage&& message) {
  std::shared_ptr<Stream> stream = Find(id);
  if (stream == nullptr) {
    if (side_ == StreamCore::Side::kWorker) return;  // of one that is gone
    if (!owner_.Takes(message.term)) {
      network_.Close(id, self_);
      return;
    }
    stream = Add(id);
    stream->opening = false;
    stream->core.OnOpened();
  }
  stream->inbox.push_back(std::move(message));
  Proceed(stream.get());
}

void VirtualStreams::OnBroken(ConnectionId id) {
  if (!limits_.has_value()) {
    owner_.OnGone(id);
    return;
  }
  const std::shared_ptr<Stream> stream = Find(id);
  if (stream == nullptr) return;
  stream->dead = true;
  if (std::exchange(stream->opening, false)) stream->core.OnOpenFailed(absl::OkStatus());
  ProceedToTheEnd(stream.get());
}

void VirtualStreams::OnSent(ConnectionId id) {
  const std::shared_ptr<Stream> stream = Find(id);
  if (stream == nullptr) return;
  if (std::exchange(stream->opening, false)) {
    stream->core.OnOpened();
  } else {
    stream->on_card = false;
  }
  Proceed(stream.get());
}

void VirtualStreams::OnAcknowledged(ConnectionId id) {
  const std::shared_ptr<Stream> stream = Find(id);
  // What a fault has sent twice is read twice.
  if (stream == nullptr || stream->unread.empty()) return;
  stream->unread_bytes -= stream->unread.front();
  stream->unread.pop_front();
  Proceed(stream.get());
}

void VirtualStreams::ReleaseHeld() {
  const std::vector<ConnectionId> held = std::exchange(held_, {});
  for (const ConnectionId id : held) {
    const std::shared_ptr<Stream> stream = Find(id);
    if (stream == nullptr) continue;
    stream->is_held = false;
    stream->core.Release();
    Proceed(stream.get());
  }
}

void VirtualStreams::Proceed(Stream* stream) {
  do {
    for (Step step = stream->core.Next(); step != Step::kNone; step = stream->core.Next()) {
      Begin(step, stream);
    }
  } while (EndOperation(stream));
}

void VirtualStreams::ProceedToTheEnd(Stream* stream) {
  Proceed(stream);
  if (judge_ != nullptr && !stream->handles) judge_->OnDead({stream->id, side_}, stream->is_gone);
}

void VirtualStreams::Begin(Step step, Stream* stream) {
  switch (step) {
    case Step::kWrite:
      Write(stream);
      break;
    case Step::kRead:
      if (judge_ != nullptr && side_ == StreamCore::Side::kServer) {
        judge_->OnBeginRead({stream->id, side_}, limits_->waiting);
      }
      stream->reading = true;
      break;
    case Step::kCancel:
    case Step::kFinish:
      if (!std::exchange(stream->dead, true)) network_.Close(stream->id, self_);
      if (step == Step::kFinish) stream->core.OnFinished();
      break;
    case Step::kGone:
      stream->is_gone = true;
      if (judge_ != nullptr) judge_->OnGone({stream->id, side_});
      streams_.erase(stream->id);
      if (!stream->is_closed) owner_.OnGone(stream->id);
      break;
    case Step::kStopLink:  // memory is not shared here
    case Step::kNone:
      break;
  }
}

void VirtualStreams::Write(Stream* stream) {
  const OutgoingFrame outgoing = stream->core.outbox()->PopFront();
  SimMessage message = *static_cast<const SimMessage*>(outgoing.payload.owner.get());
  if (judge_ != nullptr) judge_->OnWrite({stream->id, side_}, message.number);
  stream->writing = true;
  stream->unread.push_back(message.bytes);
  stream->unread_bytes += message.bytes;
  network_.Send(stream->id, self_, std::move(message));
  stream->on_card = !network_.HasSent(stream->id, self_);
}

// A write ends before or after what has arrived is read, as the stream's number says.
bool VirtualStreams::EndOperation(Stream* stream) {
  const bool may_read =
      stream->reading && !stream->handles && (!stream->inbox.empty() || stream->dead);
  const bool may_write =
      stream->writing &&
      (stream->dead || (!stream->on_card && stream->unread_bytes <= limits_->window));
  if (may_read && !(may_write && stream->id % 2 == 0)) {
    Read(stream);
    return true;
  }
  if (!may_write) return false;
  stream->writing = false;
  stream->core.OnWritten(!stream->dead);
  if (judge_ != nullptr && stream->dead) judge_->OnWriteFailed({stream->id, side_});
  return true;
}

void VirtualStreams::Read(Stream* stream) {
  stream->reading = false;
  if (stream->inbox.empty()) {
    stream->core.OnReceived(false, 0);
    return;
  }
  SimMessage message = std::move(stream->inbox.front());
  stream->inbox.pop_front();
  if (judge_ != nullptr) judge_->OnRead({stream->id, side_}, message.number);
  if (!stream->dead) network_.Acknowledge(stream->id, self_);
  // Every second one counts as full, whatever it holds: the core reads ahead behind it.
  const size_t bytes = message.number % 2 == 0 ? kFullMessageBytes : 0;
  if (!stream->core.OnReceived(true, bytes)) return;
  stream->core.Hold();
  stream->handles = true;
  Proceed(stream);
  {
    Batch batch(this);
    owner_.OnFrame(stream->id, std::move(message));
  }
  stream->handles = false;
  stream->core.Release();
  stream->core.OnHandled(absl::OkStatus());
}

}  // namespace rubato
