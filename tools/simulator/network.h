// A virtual network: machines with their network cards, processes on them, and connections between
// processes. Bytes take time on both cards and on the way between them. Does not interpret
// messages.
//
// A message leaves when its sender's card has sent all earlier messages. Its first bit arrives one
// latency later. It is delivered when the receiver's card, which receives one message after the
// other, has received all of it. So many senders to one receiver share the receiver's bandwidth, as
// in a parameter server. A slow sender does not block others: its message occupies the receiver's
// card only as late as its last bit requires. A connection keeps the order of its messages.
#ifndef RUBATO_TOOLS_SIMULATOR_NETWORK_H_
#define RUBATO_TOOLS_SIMULATOR_NETWORK_H_

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tools/simulator/event_queue.h"
#include "tools/simulator/fault.h"
#include "tools/simulator/message.h"

namespace rubato {

using ProcessId = int32_t;
using ConnectionId = int32_t;

// What runs in a process. Called in virtual time, one call after the other.
class Process {
 public:
  virtual ~Process() = default;
  virtual void OnMessage(ConnectionId connection, SimMessage&& message) = 0;
  // The other end is gone.
  virtual void OnBroken(ConnectionId connection) = 0;
  virtual void OnTimer(uint64_t argument) = 0;
  // The results of HasSent and Acknowledge.
  virtual void OnSent(ConnectionId) {}
  virtual void OnAcknowledged(ConnectionId) {}
};

class VirtualNetwork : private EventQueue::Handler {
 public:
  struct Card {
    SimTime latency = 0;  // of the way between two cards the larger one holds
    double bytes_per_second = std::numeric_limits<double>::infinity();  // in each direction
  };
  // A link between two machines that differs from the settings of their cards.
  struct Link {
    SimTime latency = 0;
    double bytes_per_second = std::numeric_limits<double>::infinity();  // in each direction
  };

  struct Traffic {
    int64_t messages = 0;
    int64_t bytes = 0;
  };

  // `queue` must outlive it.
  explicit VirtualNetwork(EventQueue* queue) : queue_(queue) {}

  // Delays each message by a random time, exponential with this mean and at most kMostJitter times
  // as long: messages of different connections then overtake one another.
  static constexpr int kMostJitter = 10;
  void SetJitter(SimTime mean, uint64_t seed);
  // How long a connection tolerates silence before it breaks: 20 s by default (in a job almost the
  // lease: KeepAlive, common/base/lease.h).
  void SetKeepAlive(SimTime keep_alive) { keep_alive_ = keep_alive; }
  // For how long a server may be frozen or cut off (and not again within a lease): the tolerated
  // silence, less the interval of heartbeats and the time that one takes.
  void SetServersBear(SimTime bear, SimTime lease) {
    servers_bear_ = bear;
    server_lease_ = lease;
  }
  // Each fault strikes the first message, from its own message on, that it applies to.
  void SetFaults(std::vector<Fault> faults);
  // Marks a server: no fault that a job survives ends this process or its connections. Control
  // messages from and to a shard may be duplicated.
  void SetVital(ProcessId process, bool is_shard) {
    processes_[process].vital = true;
    processes_[process].is_shard = is_shard;
  }
  // Called for each fault that has struck, with the process that it struck.
  using OnFault = std::function<void(const Fault&, SimMessage::Kind, ProcessId)>;
  void SetOnFault(OnFault on_fault) { on_fault_ = std::move(on_fault); }

  int AddCard(const Card& card);
  // For connections that are made from now on.
  void SetLink(int card, int other_card, const Link& link);
  const Card& card(int card) const { return cards_[card].card; }
  SimTime LatencyBetween(ProcessId a, ProcessId b) {
    const int32_t way = WayBetween(processes_[a].card, processes_[b].card);
    return way == kLocal ? 0 : ways_[way].latency;
  }
  // `process` must outlive it.
  ProcessId AddProcess(int card, Process* process);
  // Nothing is sent for it. Processes of one card reach each other at once.
  ConnectionId Connect(ProcessId a, ProcessId b);
  // To the other end. What is sent on a broken connection is lost.
  void Send(ConnectionId connection, ProcessId from, SimMessage&& message);
  // Whether the sender's card has sent all that was given to it; calls OnSent when it has, if not.
  bool HasSent(ConnectionId connection, ProcessId from);
  // The other end hears OnAcknowledged: how a stream says that it has taken a message. No message
  // itself, so that no fault strikes it.
  void Acknowledge(ConnectionId connection, ProcessId from);
  // The other end hears of it.
  void Close(ConnectionId connection, ProcessId by);
  // Calls OnTimer(argument).
  void SetTimer(ProcessId process, SimTime at, uint64_t argument,
                EventQueue::Kind kind = EventQueue::Kind::kWork);

  void Crash(ProcessId process);
  // All of the process: if it takes too long, its connections break.
  void Freeze(ProcessId process, SimTime duration);
  // One thread of it: connections are kept alive.
  void Stall(ProcessId process, SimTime duration);
  void Cut(int card, SimTime duration);
  // When all processes that are frozen or cut off so far continue.
  SimTime disturbed_until() const { return disturbed_until_; }
  // Whether something sent now would come through.
  bool Reaches(ProcessId a, ProcessId b) const {
    return cards_[processes_[a].card].cut_until <= now() &&
           cards_[processes_[b].card].cut_until <= now();
  }

  SimTime now() const { return queue_->now(); }
  bool alive(ProcessId process) const { return processes_[process].alive; }
  // Alive and not frozen.
  bool Runs(ProcessId process) const {
    const ProcessState& state = processes_[process];
    return state.alive && state.frozen_until <= now() && !state.holds;
  }
  // For how long an event has waited for a frozen process.
  SimTime Holds(ProcessId process) const {
    const ProcessState& state = processes_[process];
    return state.holds ? now() - state.held_since : 0;
  }
  int64_t sent() const { return sent_; }
  const Traffic& traffic(SimMessage::Kind kind) const {
    return traffic_[static_cast<size_t>(kind)];
  }
  // Bytes that the card has sent and received.
  int64_t bytes_out(int card) const { return cards_[card].bytes_out; }
  int64_t bytes_in(int card) const { return cards_[card].bytes_in; }

 private:
  // A queue of parcels in the order of their times. Only the first of them is in the event queue,
  // which therefore stays small.
  struct Line {
    int32_t first = -1;
    int32_t last = -1;
  };
  struct CardState {
    Card card;
    double nanoseconds_per_byte = 0;
    SimTime out_free = 0;  // when it has sent all that was given to it
    SimTime in_free = 0;
    SimTime cut_until = 0;
    int64_t bytes_out = 0;
    int64_t bytes_in = 0;
    Line out, in;
    bool holds = false;  // something in cut_off_
  };
  enum class EventKind : uint64_t {
    kArrival,
    kDelivery,
    kTimer,
    kThaw,
    kBreak,
    kCutEnds,
    kSent,
    kAcknowledged
  };
  struct ProcessState {
    Process* process = nullptr;
    SimTime frozen_until = 0;
    int card = 0;
    bool alive = true;
    bool holds = false;      // something in held_
    SimTime held_since = 0;  // the first of it
    bool vital = false;
    bool is_shard = false;
  };
  // From one card to another, or all pairs of cards that are equal in this.
  struct Way {
    SimTime latency = 0;
    double nanoseconds_per_byte = 0;  // of a link of its own
    SimTime free = 0;                 // when that has sent what was given to it
  };
  // One direction of a connection, number 2 * connection + direction. Of thousands of workers and
  // their shards there are hundreds of thousands: both directions share a line of the cache.
  struct alignas(32) Channel {
    ProcessId from, to;
    SimTime last_arrival = 0;
    // A small message travels with the one before it if that has been sent at the same instant and
    // is still on its way.
    int32_t last_parcel = -1;
    uint32_t last_use = 0;
    int32_t way = 0;  // kLocal: they are on one machine
  };
  static constexpr int32_t kLocal = -1;
  // The state of a message in flight, separate from the message itself, so that moving it touches
  // little memory.
  struct alignas(64) Parcel {
    int32_t channel = 0;
    ProcessId to = 0;
    int32_t from_card = 0;
    int32_t with = -1;   // the next that travels with it
    int32_t after = -1;  // the next of the card's queue
    uint32_t use = 0;    // counts what the parcel has been used for
    bool live = false;
    int64_t bytes = 0;
    SimTime sent = 0;
    SimTime arrival = 0;   // when the receiver's card may begin to take it
    SimTime last_bit = 0;  // when it is there as sent; then when it is delivered
  };
  struct Timer {
    ProcessId process = 0;
    uint64_t argument = 0;
    int32_t next_free = -1;
  };

  void OnEvent(uint64_t argument) override;
  void Push(SimTime time, EventKind kind, uint64_t index,
            EventQueue::Kind importance = EventQueue::Kind::kWork);
  void Transmit(int32_t channel, SimMessage&& message, SimTime extra);
  // The parcel is on its way: these bits are there then, unless its channel's last one is later.
  void Depart(int32_t parcel, SimTime first_bit, SimTime last_bit);
  void OnArrival(int32_t parcel);
  // The receiver's card takes the parcel.
  void Receive(int32_t parcel);
  void OnDelivery(int32_t parcel);
  void OnChannelEvent(uint64_t event);
  int32_t ChannelOf(ConnectionId connection, ProcessId from) const {
    return 2 * connection + (channels_[2 * connection].from == from ? 0 : 1);
  }
  // Gives the parcel's messages to its receiver.
  void Deliver(int32_t parcel);
  // Puts the parcel behind the line, whose last time is `last`, or makes it an event of its own if
  // it is earlier.
  void Join(Line* line, int32_t parcel, EventKind kind, SimTime time, SimTime last);
  // Keeps the event for later if the process is frozen.
  bool Hold(ProcessId process, uint64_t event);
  void Break(ConnectionId connection, ProcessId silent);
  // Nothing gets through any more, which both ends notice only later.
  void LoseSilently(size_t channel);
  int32_t TakeParcel();
  void FreeParcel(int32_t parcel);
  // The process that the fault strikes at this message; below 0: it does not apply.
  ProcessId Victim(const Fault& fault, int32_t channel, SimMessage::Kind kind) const;
  // Whether the message is lost.
  bool Strike(Fault fault, int32_t channel, ProcessId struck, SimMessage* message, SimTime* extra);
  static SimTime WireTime(double nanoseconds_per_byte, int64_t bytes) {
    return static_cast<SimTime>(static_cast<double>(bytes) * nanoseconds_per_byte);
  }
  SimTime Latency(const Channel& channel) const {
    return channel.way == kLocal ? 0 : ways_[channel.way].latency;
  }
  int32_t WayBetween(int card, int other_card);

  EventQueue* const queue_;
  std::vector<CardState> cards_;
  std::vector<std::deque<int32_t>> cut_off_;  // by card: what came while it was cut off, in order
  std::vector<ProcessState> processes_;
  std::vector<std::deque<uint64_t>> held_;  // by process: what came while it was frozen, in order
  std::vector<Channel> channels_;
  std::vector<Way> ways_;
  std::map<SimTime, int32_t> plain_ways_;         // by latency
  std::map<std::pair<int, int>, int32_t> links_;  // by cards: ways of their own
  std::vector<uint8_t> broken_;                   // by connection
  std::vector<Parcel> parcels_;
  std::vector<SimMessage> messages_;  // by parcel
  size_t live_parcels_ = 0;
  size_t next_parcel_ = 0;  // to look at for a free one
  std::vector<Timer> timers_;
  int32_t free_timer_ = -1;

  int64_t sent_ = 0;
  std::array<Traffic, SimMessage::kKindNames.size()> traffic_{};
  SimTime jitter_ = 0;
  uint64_t jitter_key_ = 0;
  SimTime keep_alive_ = 20 * kSecond;
  SimTime servers_bear_ = kNever;
  SimTime server_lease_ = 0;
  SimTime servers_spared_until_ = 0;
  SimTime disturbed_until_ = 0;
  std::vector<Fault> faults_;   // in the order of their messages
  std::vector<Fault> pending_;  // whose messages have been sent, without one that they fit
  size_t next_fault_ = 0;
  OnFault on_fault_;
};

}  // namespace rubato

#endif  // RUBATO_TOOLS_SIMULATOR_NETWORK_H_
