// One end of a data stream, a worker's or a server's: does what StreamCore says, by a gRPC call and
// by memory that both ends share once that is agreed on.
#ifndef RUBATO_COMMON_WIRE_DATA_STREAM_H_
#define RUBATO_COMMON_WIRE_DATA_STREAM_H_

#include <cstddef>
#include <functional>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "common/wire/grpc_types.h"
#include "common/wire/message.h"
#include "common/wire/shared_arena.h"
#include "common/wire/shared_link.h"
#include "common/wire/shared_segment.h"
#include "common/wire/stream_core.h"

namespace rubato {

// Operations of the call end on the thread of a completion queue, where each tag is called.
class DataStream {
 public:
  using Tag = std::function<void(bool ok)>;

  virtual ~DataStream() = default;
  DataStream(const DataStream&) = delete;

  // Any thread. Frames arrive in the order of the calls, but for those that find others waiting:
  // see Outbox. What is sent on a stream that has ended is dropped.
  void Send(const Frame& frame, const Payload& payload) ABSL_LOCKS_EXCLUDED(mutex_);
  // Any thread: see StreamCore.
  void Hold() ABSL_LOCKS_EXCLUDED(mutex_);
  void Release() ABSL_LOCKS_EXCLUDED(mutex_);
  void End(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mutex_);
  // Any thread: lets `asked` go when the thread of the link, if there is one, has come round.
  void Ask(std::shared_ptr<void> asked) ABSL_LOCKS_EXCLUDED(mutex_);

 protected:
  // Payloads that lie in `arena`, which may be null, are lent to a peer that shares memory;
  // `hands_over`: see SharedLink.
  DataStream(StreamCore::Side side, size_t max_waiting, std::shared_ptr<const SharedArena> arena,
             bool hands_over = false);

  // The call of this end. Neither blocks nor calls back.
  virtual void StartRead(grpc::ByteBuffer* message, Tag* tag) = 0;
  virtual void StartWrite(const grpc::ByteBuffer& message, Tag* tag) = 0;
  virtual void StartFinish(const absl::Status& status, Tag* tag) = 0;
  virtual void Cancel() = 0;

  // A frame has arrived. Its values are borrowed for the call; an error is the peer's fault. Called
  // on the queue's or the link's thread, one call at a time.
  virtual absl::Status OnFrame(const Frame& frame, const ReceivedValues& values) = 0;
  // All frames of a message have come.
  virtual void OnMessageEnd() {}
  // The last call, on the queue's thread. `status` says why this end has ended the stream; OK if
  // the peer has.
  virtual void OnGone(const absl::Status& status) = 0;

  // Agreed on: call it before Opened. Returns why the peer's payloads come through the ring
  // although it would lend them.
  absl::Status Link(std::unique_ptr<SharedSegment> segment) ABSL_LOCKS_EXCLUDED(mutex_);
  void Opened() ABSL_LOCKS_EXCLUDED(mutex_);
  void OpenFailed(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mutex_);
  bool ended() ABSL_LOCKS_EXCLUDED(mutex_);

  const std::shared_ptr<const SharedArena> arena_;

 private:
  void OnRead(bool ok) ABSL_LOCKS_EXCLUDED(mutex_);
  // Begins what the core says. Whether the stream is gone.
  bool Proceed() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Tells the core of an operation that has ended, and goes on.
  template <typename Tell>
  void OnEnded(Tell tell) ABSL_LOCKS_EXCLUDED(mutex_);

  const size_t max_waiting_;
  const bool hands_over_;
  Tag read_, written_, finished_;
  grpc::ByteBuffer incoming_;  // of the read under way

  absl::Mutex mutex_;
  StreamCore core_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<SharedLink> link_;  // last: its thread uses all of the above
};

}  // namespace rubato

#endif  // RUBATO_COMMON_WIRE_DATA_STREAM_H_
