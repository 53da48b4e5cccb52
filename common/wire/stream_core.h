// What one end of a data stream decides, a worker's and a server's alike: when to write which
// frames, when to read, how the stream ends. Single-threaded and without I/O: a shell
// (data_stream.h) tells it what has happened and then begins what Next() says, until that is kNone.
#ifndef RUBATO_COMMON_WIRE_STREAM_CORE_H_
#define RUBATO_COMMON_WIRE_STREAM_CORE_H_

#include <cstddef>

#include "absl/status/status.h"
#include "common/frames/frame.h"
#include "common/frames/payload.h"
#include "common/wire/outbox.h"

namespace rubato {

class StreamCore {
 public:
  // The worker opens the call. The server finishes it, and may do so while a read is under way.
  enum class Side { kWorker, kServer };

  enum class Step {
    kNone,
    kWrite,     // one message from the front of outbox(), then OnWritten
    kRead,      // one message, then OnReceived
    kStopLink,  // then OnLinkEnded
    kCancel,    // the call, so that what is under way ends
    kFinish,    // the call, with status(); then OnFinished
    kGone,      // nothing is under way any more, and nothing follows
  };

  // While more than `max_waiting` bytes wait to be written, nothing is read from the peer, so that
  // answers do not pile up.
  StreamCore(Side side, size_t max_waiting) : side_(side), max_waiting_(max_waiting) {}

  // The call has been opened and greeted. Until then frames wait.
  void OnOpened() { opening_ = false; }
  // It could not be; a server gives the reason as `status`.
  void OnOpenFailed(const absl::Status& status);
  // Frames go through shared memory from OnOpened on; the call only tells whether the peer lives.
  void OnLinked() { linked_ = true; }
  // OK if it was stopped. Else the peer is to blame.
  void OnLinkEnded(const absl::Status& status);

  // Adds a frame to the outbox; drops it if the stream has ended.
  void Push(const Frame& frame, const Payload& payload);
  // Between Hold and Release, which nest, frames wait for more to go with them, until they fill a
  // message.
  void Hold() { ++holds_; }
  void Release() { --holds_; }

  void OnWritten(bool ok);
  // A read has ended. Not `ok`: no more messages follow. Else one of `bytes` has come, and the
  // result is whether it is to be handled, with OnHandled after that: not if this end has ended the
  // stream. The next read begins after that, so that the answers go first; behind a full message,
  // which is seldom the last, it begins before, so that the peer sends on meanwhile.
  bool OnReceived(bool ok, size_t bytes);
  // An error means that the peer has violated the protocol.
  void OnHandled(const absl::Status& status);
  // This end wants no more, because of `status`. The first status stays.
  void End(const absl::Status& status);
  void OnFinished() { finished_ = true; }

  // What to begin next.
  Step Next();

  // Whether frames are for the link, and not for Push.
  bool sends_by_link() const { return linked_ && !opening_ && !ended_; }
  bool ended() const { return ended_; }
  // Why this end has ended the stream; OK if the peer has, or nobody.
  const absl::Status& status() const { return status_; }
  Outbox* outbox() { return &outbox_; }

 private:
  Step NextOfEnding();

  const Side side_;
  const size_t max_waiting_;
  Outbox outbox_;
  int holds_ = 0;
  absl::Status status_;

  // Under way.
  bool opening_ = true;
  bool reading_ = false;
  bool handling_ = false;     // a message
  bool reads_ahead_ = false;  // of it
  bool writing_ = false;
  bool linked_ = false;
  bool finishing_ = false;

  bool broken_ = false;   // a write has failed: what has arrived is read, until a read fails too
  bool ended_ = false;    // nothing begins any more but what ends the stream
  bool by_this_ = false;  // and this end wants it so
  bool ended_by_peer_ = false;  // or the call could not be opened
  bool finished_ = false;
  // Steps that are taken once.
  bool stopped_link_ = false;
  bool cancelled_ = false;
  bool gone_ = false;
};

}  // namespace rubato

#endif  // RUBATO_COMMON_WIRE_STREAM_CORE_H_
