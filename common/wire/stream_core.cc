#include "common/wire/stream_core.h"

namespace rubato {

void StreamCore::OnOpenFailed(const absl::Status& status) {
  opening_ = false;
  if (status_.ok()) status_ = status;
  ended_ = ended_by_peer_ = true;
  outbox_.Clear();
}

void StreamCore::OnLinkEnded(const absl::Status& status) {
  linked_ = false;
  if (!status.ok()) End(status);
}

void StreamCore::Push(const Frame& frame, const Payload& payload) {
  if (!ended_ && !broken_) outbox_.Push(frame, payload);
}

void StreamCore::OnWritten(bool ok) {
  writing_ = false;
  if (ok) return;
  broken_ = true;
  outbox_.Clear();
}

bool StreamCore::OnReceived(bool ok, size_t bytes) {
  reading_ = false;
  handling_ = ok && !ended_;
  reads_ahead_ = bytes >= kFullMessageBytes;
  if (!ok) {
    ended_ = ended_by_peer_ = true;
    outbox_.Clear();
  }
  return handling_;
}

void StreamCore::OnHandled(const absl::Status& status) {
  handling_ = false;
  if (!status.ok()) End(status);
}

void StreamCore::End(const absl::Status& status) {
  if (!by_this_ && status_.ok()) status_ = status;
  ended_ = by_this_ = true;
  outbox_.Clear();
}

StreamCore::Step StreamCore::Next() {
  if (ended_) return NextOfEnding();
  if (opening_) return Step::kNone;
  if (!writing_ && !linked_ && !outbox_.empty() &&
      (holds_ == 0 || outbox_.bytes() >= kMessageBytes)) {
    writing_ = true;
    return Step::kWrite;
  }
  if (!reading_ && (!handling_ || reads_ahead_) && outbox_.bytes() <= max_waiting_) {
    reading_ = true;
    return Step::kRead;
  }
  return Step::kNone;
}

StreamCore::Step StreamCore::NextOfEnding() {
  if (linked_ && !stopped_link_) {
    stopped_link_ = true;
    return Step::kStopLink;
  }
  // A stalled peer may never let a write end. A worker that has had enough cancels the call, or the
  // server would not know; where the server has ended it, its status comes.
  const bool lasts =
      side_ == Side::kServer ? writing_ && !opening_ : by_this_ && (writing_ || !ended_by_peer_);
  if (lasts && !cancelled_) {
    cancelled_ = true;
    return Step::kCancel;
  }
  if (!finishing_ && !opening_ && !writing_ && !linked_ && (!reading_ || side_ == Side::kServer)) {
    finishing_ = true;
    return Step::kFinish;
  }
  if (finished_ && !reading_ && !handling_ && !gone_) {
    gone_ = true;
    return Step::kGone;
  }
  return Step::kNone;
}

}  // namespace rubato
