// What the coordinator's end of one peer's call decides: when to read, what to write, when the call
// ends. Single-threaded and without I/O: a shell (cluster_service.h) tells it what has happened and
// then begins what Next() says, until that is kNone.
#ifndef RUBATO_SERVER_COORDINATOR_CONTROL_CALL_H_
#define RUBATO_SERVER_COORDINATOR_CONTROL_CALL_H_

#include <deque>
#include <utility>

#include "absl/time/time.h"
#include "proto/cluster.pb.h"

namespace rubato {

class ControlCall {
 public:
  // The peer sends the first message. A peer that sends nothing for this long is dropped.
  static constexpr absl::Duration kPatience = absl::Seconds(10);

  // Messages of a peer beyond this number between two ticks of the coordinator are read after the
  // next tick.
  static constexpr int kMaxMessages = 10'000;

  // Those that may come together. A peer sends at most 64 KiB of them.
  static constexpr int kMaxTogether = 4'096;

  explicit ControlCall(absl::Time now = absl::InfiniteFuture()) : begun_(now) {}

  enum class Step {
    kNone,
    kRead,    // then OnRead
    kWrite,   // outgoing(), then OnWritten
    kFinish,  // the last
  };

  // Messages go one at a time, in order. Nothing follows a Stop.
  void Push(proto::CoordinatorMessage message) {
    if (stop_pushed_ || gone_) return;
    stop_pushed_ = message.has_stop();
    outbox_.push_back(std::move(message));
  }
  // So many messages at once. Not `ok`: the peer is gone.
  void OnRead(bool ok, int messages = 1) {
    reading_ = false;
    has_spoken_ = true;
    read_ += messages;
    gone_ = gone_ || !ok;
  }
  // If the write failed, the peer is gone, and the read fails too.
  void OnWritten() {
    writing_ = false;
    outbox_.pop_front();
  }

  void OnTick() { read_ = 0; }

  bool has_spoken() const { return has_spoken_; }
  bool KeepsSilent(absl::Time now) const { return !has_spoken_ && now - begun_ > kPatience; }

  Step Next() {
    if (finished_) return Step::kNone;
    if (!writing_ && (gone_ || (stop_pushed_ && outbox_.empty()))) {
      finished_ = true;
      return Step::kFinish;
    }
    if (!writing_ && !outbox_.empty()) {
      writing_ = true;
      return Step::kWrite;
    }
    if (!reading_ && !gone_ && read_ < kMaxMessages) {
      reading_ = true;
      return Step::kRead;
    }
    return Step::kNone;
  }

  const proto::CoordinatorMessage& outgoing() const { return outbox_.front(); }

 private:
  std::deque<proto::CoordinatorMessage> outbox_;  // the first is under way while writing_
  const absl::Time begun_;
  int read_ = 0;  // since the last tick
  bool has_spoken_ = false;
  bool reading_ = false;
  bool writing_ = false;
  bool stop_pushed_ = false;
  bool gone_ = false;
  bool finished_ = false;
};

}  // namespace rubato

#endif  // RUBATO_SERVER_COORDINATOR_CONTROL_CALL_H_
