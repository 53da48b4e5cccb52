// One end of a data stream in shared memory. Frames have the wire format: one process copies them
// into a ring, and the other uses them there. Waits by spinning for a moment, then sleeps.
#ifndef RUBATO_COMMON_WIRE_SHARED_LINK_H_
#define RUBATO_COMMON_WIRE_SHARED_LINK_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "common/frames/received_values.h"
#include "common/wire/outbox.h"
#include "common/wire/ring.h"
#include "common/wire/shared_segment.h"

namespace rubato {

class SharedLink {
 public:
  // Called on the link's thread.
  struct Callbacks {
    // The values are borrowed for the call. An error ends the link.
    std::function<absl::Status(const Frame& frame, const ReceivedValues& values)> on_frame;
    // The last call: Stop was called, or the peer or on_frame has failed.
    std::function<void(absl::Status status)> on_end;
  };

  // While more than `max_waiting` bytes wait for the peer to make room, it is not read. Payloads
  // that lie in `arena`, which may be null and is what the segment lends, go by reference if the
  // peer can read them there; their owners are kept until it has given them back. With `hands_over`
  // it is this link's thread that copies what is sent, for senders that have other work to do.
  SharedLink(std::unique_ptr<SharedSegment> segment, std::shared_ptr<const SharedArena> arena,
             size_t max_waiting, Callbacks callbacks, bool hands_over = false);
  // After on_end has begun. What the peer has not given back it may still read.
  ~SharedLink();

  // Any thread. Frames arrive in the order of the calls, but for those that find no room in the
  // ring, or are handed over, and wait: see Outbox.
  void Send(const Frame& frame, const Payload& payload) ABSL_LOCKS_EXCLUDED(writer_mutex_, mutex_);

  // Why the peer's payloads come through the ring although it would lend them.
  const absl::Status& borrowing() const { return borrowing_; }

  // Any thread: lets `asked` go as soon as the link's thread has come round, or has ended.
  void Ask(std::shared_ptr<void> asked) ABSL_LOCKS_EXCLUDED(mutex_);

  // Any thread, any number of times: lets the link end. Whether the peer lives does not matter.
  void Stop();

 private:
  void Run();
  // Whether there was a frame. Sets `*status` to an error of the peer or of on_frame.
  bool ReadFrame(absl::Status* status);
  absl::Status HandleFrame(const RingFrame& frame, const char* payload);
  // Whether anything was written.
  bool WriteWaiting() ABSL_LOCKS_EXCLUDED(writer_mutex_, mutex_);
  // Where the payload goes: into the ring or, if it is lent, from where it lies in the arena. What
  // the peer says of what it can read is asked once for a frame: it may change.
  struct Room {
    std::optional<uint64_t> lent_at;
  };
  std::optional<Room> FindRoom(const Payload& payload) ABSL_EXCLUSIVE_LOCKS_REQUIRED(writer_mutex_);
  void Write(const Frame& frame, const Payload& payload, const Room& room)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(writer_mutex_);
  void Enqueue(const Frame& frame, const Payload& payload) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Where in the arena it lies, if it may be lent now.
  std::optional<uint64_t> FindToLend(const Payload& payload)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(writer_mutex_);
  void TakeBack() ABSL_EXCLUSIVE_LOCKS_REQUIRED(writer_mutex_);
  // Whether there is something to read that may be read, or to write and room for it.
  bool MayGoOn() ABSL_LOCKS_EXCLUDED(writer_mutex_, mutex_);
  void Sleep();
  // This link's thread.
  void Wake();
  void LetAskedGo() ABSL_LOCKS_EXCLUDED(mutex_);

  SharedWords::End& own() const { return segment_->words()->ends[segment_->end()]; }
  SharedWords::End& peer() const { return segment_->words()->ends[1 - segment_->end()]; }

  const std::shared_ptr<SharedSegment> segment_;  // of loans too
  const std::shared_ptr<const SharedArena> arena_;
  std::shared_ptr<SharedArenaView> peers_arena_;  // null: it lends nothing
  absl::Status borrowing_;
  const size_t max_waiting_;
  const Callbacks callbacks_;
  const bool hands_over_;
  std::atomic<bool> stopping_{false};
  uint64_t read_ = 0;  // own().read, which only this process writes
  std::vector<char> scratch_;

  // Of who writes to the ring; `mutex_` is free while payloads are copied.
  absl::Mutex writer_mutex_ ABSL_ACQUIRED_BEFORE(mutex_);
  RingWriter writer_ ABSL_GUARDED_BY(writer_mutex_);
  absl::Mutex mutex_;
  Outbox outbox_ ABSL_GUARDED_BY(mutex_);
  std::atomic<size_t> waiting_bytes_{0};  // of outbox_
  std::shared_ptr<void> asked_ ABSL_GUARDED_BY(mutex_);
  std::atomic<bool> is_asked_{false};

  std::thread thread_;  // last: it uses all of the above
};

}  // namespace rubato

#endif  // RUBATO_COMMON_WIRE_SHARED_LINK_H_
