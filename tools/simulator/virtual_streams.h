// The ends of the data streams of one simulated process. Like common/wire/data_stream.h for a real
// process, they follow StreamCore, over connections of the virtual network: so waiting frames are
// sent in the order of Outbox, nothing is read from a peer that does not take its answers, and a
// stream ends as a real one does. A message carries one frame.
#ifndef RUBATO_TOOLS_SIMULATOR_VIRTUAL_STREAMS_H_
#define RUBATO_TOOLS_SIMULATOR_VIRTUAL_STREAMS_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "common/wire/stream_core.h"
#include "common/wire/stream_judge.h"
#include "tools/simulator/network.h"

namespace rubato {

// Bytes.
struct StreamLimits {
  int64_t waiting = 4 << 20;  // of answers to a worker; while more wait it is not read
  int64_t window = 4 << 20;   // in windows and sockets; while there are more a write goes on

  // From hardly any to those of real streams.
  static StreamLimits Draw(uint64_t seed);
};

class VirtualStreams {
 public:
  // Whose streams they are.
  class Owner {
   public:
    // Whether a server takes a stream that shows this term.
    virtual bool Takes(uint32_t /*term*/) { return true; }
    // It may close the stream, and send.
    virtual void OnFrame(ConnectionId stream, SimMessage&& message) = 0;
    // The last of a stream that it has not closed.
    virtual void OnGone(ConnectionId stream) = 0;

   protected:
    ~Owner() = default;
  };

  // Without limits what is sent goes to the network as it is: for large clusters in which one
  // message stands for all of a worker's blocks. `judge` may be null. All outlive it.
  VirtualStreams(VirtualNetwork* network, StreamCore::Side side, std::optional<StreamLimits> limits,
                 StreamJudge* judge, Owner* owner)
      : network_(*network), side_(side), limits_(limits), judge_(judge), owner_(*owner) {}

  void SetSelf(ProcessId self) { self_ = self; }
  // A worker's end, which shows `term`; a server's opens with the first message.
  void Open(ConnectionId stream, uint32_t term = 0);
  void Send(ConnectionId stream, SimMessage&& message) {
    if (limits_.has_value()) {
      Queue(stream, std::move(message));
    } else {
      network_.Send(stream, self_, std::move(message));
    }
  }
  // The peer hears of it; nothing is heard of the stream from here on.
  void Close(ConnectionId stream);
  void CloseAll();

  // While one exists, what is sent waits for more: for an event whose handling sends several
  // frames.
  class Batch {
   public:
    explicit Batch(VirtualStreams* streams) : streams_(*streams) { ++streams_.batches_; }
    ~Batch() {
      if (--streams_.batches_ == 0 && !streams_.held_.empty()) streams_.ReleaseHeld();
    }
    Batch(const Batch&) = delete;
    Batch& operator=(const Batch&) = delete;

   private:
    VirtualStreams& streams_;
  };

  // What the network tells the process.
  void OnMessage(ConnectionId stream, SimMessage&& message) {
    if (limits_.has_value()) {
      Arrive(stream, std::move(message));
    } else {
      owner_.OnFrame(stream, std::move(message));
    }
  }
  void OnBroken(ConnectionId stream);
  void OnSent(ConnectionId stream);
  void OnAcknowledged(ConnectionId stream);

 private:
  // The call under a stream.
  struct Stream {
    Stream(ConnectionId id, StreamCore::Side side, size_t max_waiting)
        : id(id), core(side, max_waiting) {}

    const ConnectionId id;
    StreamCore core;
    std::deque<SimMessage> inbox;  // that has arrived and is not read
    std::deque<int64_t> unread;    // bytes of each message that the peer has not read
    int64_t unread_bytes = 0;
    uint32_t sent = 0;  // frames
    uint32_t term = 0;
    bool opening = true;
    bool on_card = false;  // the message that is being written
    bool writing = false;
    bool reading = false;
    bool dead = false;  // nothing comes through any more
    bool is_closed = false;
    bool is_held = false;
    bool is_gone = false;
    bool handles = false;  // a message that has been read
  };

  std::shared_ptr<Stream> Find(ConnectionId stream) const;
  std::shared_ptr<Stream> Add(ConnectionId stream);
  void Queue(ConnectionId stream, SimMessage&& message);
  void Arrive(ConnectionId stream, SimMessage&& message);
  void ReleaseHeld();
  // Does what the core says, and ends what can end, until nothing can.
  void Proceed(Stream* stream);
  // Likewise of one that has ended.
  void ProceedToTheEnd(Stream* stream);
  // Begins the step.
  void Begin(StreamCore::Step step, Stream* stream);
  void Write(Stream* stream);
  // Whether an operation that is under way has ended.
  bool EndOperation(Stream* stream);
  void Read(Stream* stream);

  VirtualNetwork& network_;
  const StreamCore::Side side_;
  const std::optional<StreamLimits> limits_;
  StreamJudge* const judge_;
  Owner& owner_;
  ProcessId self_ = 0;
  absl::flat_hash_map<ConnectionId, std::shared_ptr<Stream>> streams_;
  int batches_ = 0;
  std::vector<ConnectionId> held_;
};

}  // namespace rubato

#endif  // RUBATO_TOOLS_SIMULATOR_VIRTUAL_STREAMS_H_
