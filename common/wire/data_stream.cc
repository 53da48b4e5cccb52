#include "common/wire/data_stream.h"

#include <utility>

namespace rubato {

DataStream::DataStream(StreamCore::Side side, size_t max_waiting,
                       std::shared_ptr<const SharedArena> arena, bool hands_over)
    : arena_(std::move(arena)),
      max_waiting_(max_waiting),
      hands_over_(hands_over),
      core_(side, max_waiting) {
  read_ = [this](bool ok) { OnRead(ok); };
  written_ = [this](bool ok) { OnEnded([ok](StreamCore* core) { core->OnWritten(ok); }); };
  finished_ = [this](bool) { OnEnded([](StreamCore* core) { core->OnFinished(); }); };
}

void DataStream::Send(const Frame& frame, const Payload& payload) {
  absl::MutexLock lock(&mutex_);
  if (core_.sends_by_link()) {
    link_->Send(frame, payload);
  } else {
    core_.Push(frame, payload);
    Proceed();
  }
}

void DataStream::Hold() {
  absl::MutexLock lock(&mutex_);
  core_.Hold();
}

void DataStream::Release() {
  absl::MutexLock lock(&mutex_);
  core_.Release();
  Proceed();
}

void DataStream::End(const absl::Status& status) {
  absl::MutexLock lock(&mutex_);
  core_.End(status);
  Proceed();
}

void DataStream::Ask(std::shared_ptr<void> asked) {
  absl::MutexLock lock(&mutex_);
  if (link_ != nullptr) link_->Ask(std::move(asked));
}

absl::Status DataStream::Link(std::unique_ptr<SharedSegment> segment) {
  SharedLink::Callbacks callbacks;
  callbacks.on_frame = [this](const Frame& frame, const ReceivedValues& values) {
    const absl::Status status = OnFrame(frame, values);
    OnMessageEnd();
    return status;
  };
  callbacks.on_end = [this](const absl::Status& status) {
    absl::MutexLock lock(&mutex_);
    core_.OnLinkEnded(status);
    Proceed();
  };
  absl::MutexLock lock(&mutex_);
  core_.OnLinked();
  link_ = std::make_unique<SharedLink>(std::move(segment), arena_, max_waiting_,
                                       std::move(callbacks), hands_over_);
  return link_->borrowing();
}

void DataStream::Opened() {
  absl::MutexLock lock(&mutex_);
  core_.OnOpened();
  while (core_.sends_by_link() && !core_.outbox()->empty()) {
    const OutgoingFrame outgoing = core_.outbox()->PopFront();
    link_->Send(outgoing.frame, outgoing.payload);
  }
  Proceed();
}

void DataStream::OpenFailed(const absl::Status& status) {
  absl::MutexLock lock(&mutex_);
  core_.OnOpenFailed(status);
  Proceed();
}

bool DataStream::ended() {
  absl::MutexLock lock(&mutex_);
  return core_.ended();
}

void DataStream::OnRead(bool ok) {
  grpc::ByteBuffer message;
  message.Swap(&incoming_);
  bool handles = false;
  OnEnded([&](StreamCore* core) {
    handles = core->OnReceived(ok, message.Length());
    if (handles) core->Hold();
  });
  if (!handles) return;  // and the stream may be gone
  const absl::Status status = ReadMessage(
      message,
      [this](const Frame& frame, const ReceivedValues& values) { return OnFrame(frame, values); });
  message.Clear();
  OnMessageEnd();
  OnEnded([&status](StreamCore* core) {
    core->Release();
    core->OnHandled(status);
  });
}

template <typename Tell>
void DataStream::OnEnded(Tell tell) {
  absl::Status status;
  {
    absl::MutexLock lock(&mutex_);
    tell(&core_);
    if (!Proceed()) return;
    status = core_.status();
  }
  OnGone(status);
}

bool DataStream::Proceed() {
  while (true) {
    switch (core_.Next()) {
      case StreamCore::Step::kNone:
        return false;
      case StreamCore::Step::kWrite:
        StartWrite(TakeMessage(core_.outbox()), &written_);
        break;
      case StreamCore::Step::kRead:
        StartRead(&incoming_, &read_);
        break;
      case StreamCore::Step::kStopLink:
        link_->Stop();
        break;
      case StreamCore::Step::kCancel:
        Cancel();
        break;
      case StreamCore::Step::kFinish:
        StartFinish(core_.status(), &finished_);
        break;
      case StreamCore::Step::kGone:
        return true;
    }
  }
}

}  // namespace rubato
