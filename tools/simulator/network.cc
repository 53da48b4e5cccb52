#include "tools/simulator/network.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "common/base/check.h"
#include "common/base/random.h"

namespace rubato {
namespace {

// What is smaller travels in the packet of what was sent just before it.
constexpr int64_t kPacket = 1400;  // bytes

// Of a hundred thousand messages on their way the next one is not in the cache.
void PrefetchMessage(const SimMessage& message) {
  const char* bytes = reinterpret_cast<const char*>(&message);
  for (size_t at = 0; at < sizeof(message); at += 64) __builtin_prefetch(bytes + at);
}

}  // namespace

void VirtualNetwork::SetJitter(SimTime mean, uint64_t seed) {
  jitter_ = mean;
  jitter_key_ = Key(seed, "network");
}

int VirtualNetwork::AddCard(const Card& card) {
  CardState state;
  state.card = card;
  state.nanoseconds_per_byte = 1e9 / card.bytes_per_second;
  cards_.push_back(state);
  cut_off_.emplace_back();
  return static_cast<int>(cards_.size()) - 1;
}

ProcessId VirtualNetwork::AddProcess(int card, Process* process) {
  ProcessState state;
  state.process = process;
  state.card = card;
  processes_.push_back(state);
  held_.emplace_back();
  return static_cast<ProcessId>(processes_.size()) - 1;
}

void VirtualNetwork::SetLink(int card, int other_card, const Link& link) {
  for (const std::pair<int, int>& cards :
       {std::pair(card, other_card), std::pair(other_card, card)}) {
    links_[cards] = static_cast<int32_t>(ways_.size());
    ways_.push_back({link.latency, 1e9 / link.bytes_per_second});
  }
}

int32_t VirtualNetwork::WayBetween(int card, int other_card) {
  if (card == other_card) return kLocal;
  if (const auto link = links_.find({card, other_card}); link != links_.end()) return link->second;
  const SimTime latency = std::max(cards_[card].card.latency, cards_[other_card].card.latency);
  const auto [way, is_new] = plain_ways_.try_emplace(latency, static_cast<int32_t>(ways_.size()));
  if (is_new) ways_.push_back({latency});
  return way->second;
}

ConnectionId VirtualNetwork::Connect(ProcessId a, ProcessId b) {
  const ConnectionId id = static_cast<ConnectionId>(broken_.size());
  const int card_a = processes_[a].card, card_b = processes_[b].card;
  channels_.push_back({a, b});
  channels_.back().way = WayBetween(card_a, card_b);
  channels_.push_back({b, a});
  channels_.back().way = WayBetween(card_b, card_a);
  broken_.push_back(!processes_[a].alive || !processes_[b].alive);
  // Who calls a process that is dead hears so.
  if (broken_.back()) Push(now() + Latency(channels_.back()), EventKind::kBreak, 2 * id);
  return id;
}

// In turn, so that what is sent in a row lies in a row: the processor then fetches ahead.
int32_t VirtualNetwork::TakeParcel() {
  if (2 * ++live_parcels_ > parcels_.size()) {
    next_parcel_ = parcels_.size();
    parcels_.resize(std::max<size_t>(64, 2 * parcels_.size()));
    messages_.resize(parcels_.size());
  }
  while (true) {
    if (next_parcel_ == parcels_.size()) next_parcel_ = 0;
    if (!parcels_[next_parcel_].live) break;
    ++next_parcel_;
  }
  parcels_[next_parcel_].live = true;
  return static_cast<int32_t>(next_parcel_++);
}

void VirtualNetwork::FreeParcel(int32_t parcel) {
  ++parcels_[parcel].use;
  parcels_[parcel].live = false;
  --live_parcels_;
}

void VirtualNetwork::Push(SimTime time, EventKind kind, uint64_t index,
                          EventQueue::Kind importance) {
  queue_->Schedule(time, this, index << 3 | static_cast<uint64_t>(kind), importance);
}

void VirtualNetwork::Send(ConnectionId connection, ProcessId from, SimMessage&& message) {
  const int32_t channel = ChannelOf(connection, from);
  SimTime extra = 0;
  if (jitter_ > 0) {
    const double u = (RandomBits(jitter_key_, static_cast<uint64_t>(sent_)) + 0.5) * 0x1p-32;
    extra = static_cast<SimTime>(std::min<double>(-std::log(u), kMostJitter) *
                                 static_cast<double>(jitter_));
  }
  const int64_t number = sent_++;
  while (next_fault_ < faults_.size() && faults_[next_fault_].at <= number) {
    pending_.push_back(faults_[next_fault_++]);
  }
  bool lost = false;
  for (size_t i = 0; i < pending_.size() && !lost;) {
    const ProcessId victim = Victim(pending_[i], channel, message.kind);
    if (victim < 0) {
      ++i;
      continue;
    }
    const Fault fault = pending_[i];
    pending_.erase(pending_.begin() + static_cast<int64_t>(i));
    lost = Strike(fault, channel, victim, &message, &extra);
  }
  if (!lost) Transmit(channel, std::move(message), extra);
}

bool VirtualNetwork::HasSent(ConnectionId connection, ProcessId from) {
  const int32_t channel = ChannelOf(connection, from);
  const SimTime sent = cards_[processes_[from].card].out_free;
  if (channels_[channel].way == kLocal || sent <= now()) return true;
  Push(sent, EventKind::kSent, channel);
  return false;
}

void VirtualNetwork::Acknowledge(ConnectionId connection, ProcessId from) {
  const int32_t back = ChannelOf(connection, from) ^ 1;
  const Channel& channel = channels_[back];
  SimTime at = now();
  if (channel.way != kLocal) {
    at = std::max({at, cards_[processes_[channel.from].card].cut_until,
                   cards_[processes_[channel.to].card].cut_until});
  }
  Push(at + Latency(channel), EventKind::kAcknowledged, back);
}

void VirtualNetwork::Transmit(int32_t channel_index, SimMessage&& message, SimTime extra) {
  if (broken_[channel_index / 2]) return;
  Channel& channel = channels_[channel_index];
  Traffic& traffic = traffic_[static_cast<size_t>(message.kind)];
  const int64_t bytes = message.bytes;
  ++traffic.messages;
  traffic.bytes += bytes;
  const int32_t index = TakeParcel();
  messages_[index] = std::move(message);
  Parcel& parcel = parcels_[index];
  parcel.channel = channel_index;
  parcel.to = channel.to;
  parcel.with = -1;
  parcel.bytes = bytes;
  if (channel.way == kLocal) {
    channel.last_arrival = std::max(channel.last_arrival, now() + extra);
    Push(channel.last_arrival, EventKind::kDelivery, index);
    return;
  }
  parcel.from_card = processes_[channel.from].card;
  CardState& card = cards_[parcel.from_card];
  Way& way = ways_[channel.way];
  card.bytes_out += bytes;
  const SimTime wire_time = WireTime(card.nanoseconds_per_byte, bytes);
  const SimTime link_time = WireTime(way.nanoseconds_per_byte, bytes);
  if (bytes <= kPacket && extra == 0 && channel.last_parcel >= 0 &&
      parcels_[channel.last_parcel].use == channel.last_use &&
      parcels_[channel.last_parcel].sent == now()) {
    card.out_free += wire_time;
    way.free += link_time;
    Parcel& before = parcels_[channel.last_parcel];
    int32_t last = channel.last_parcel;
    while (parcels_[last].with >= 0) last = parcels_[last].with;
    parcels_[last].with = index;
    if (before.arrival > now()) before.last_bit += std::max(wire_time, link_time);
    return;
  }
  const SimTime start = std::max({now(), card.out_free, card.cut_until});
  card.out_free = start + wire_time;
  SimTime first_bit = start + way.latency + extra;
  if (link_time > 0) {
    const SimTime link_start = std::max(start, way.free);
    way.free = link_start + link_time;
    first_bit += link_start - start;
  }
  Depart(index, first_bit, first_bit + std::max(wire_time, link_time));
}

void VirtualNetwork::Depart(int32_t index, SimTime first_bit, SimTime last_bit) {
  Parcel& parcel = parcels_[index];
  Channel& channel = channels_[parcel.channel];
  CardState& card = cards_[parcel.from_card];
  const CardState& to = cards_[processes_[parcel.to].card];
  SimTime arrival = std::max(first_bit, last_bit - WireTime(to.nanoseconds_per_byte, parcel.bytes));
  const SimTime last = card.out.first < 0 ? 0 : parcels_[card.out.last].arrival;
  if (arrival <= channel.last_arrival) {
    // Behind its channel's last one, which may stand in the line and become an event later.
    const SimTime behind = channel.last_arrival + (last <= arrival ? 0 : 1);
    last_bit += behind - arrival;
    arrival = behind;
  }
  channel.last_arrival = parcel.arrival = arrival;
  parcel.last_bit = last_bit;
  parcel.sent = now();
  channel.last_parcel = index;
  channel.last_use = parcel.use;
  Join(&card.out, index, EventKind::kArrival, arrival, last);
}

void VirtualNetwork::Join(Line* line, int32_t parcel, EventKind kind, SimTime time, SimTime last) {
  if (line->first >= 0 && last <= time) {
    parcels_[line->last].after = parcel;
    line->last = parcel;
    parcels_[parcel].after = -1;
    return;
  }
  if (line->first < 0) {
    line->first = line->last = parcel;
    parcels_[parcel].after = -1;
  }
  Push(time, kind, parcel);
}

void VirtualNetwork::OnArrival(int32_t index) {
  Parcel& parcel = parcels_[index];
  CardState& sender = cards_[parcel.from_card];
  if (sender.out.first == index) {
    sender.out.first = parcel.after;
    if (parcel.after >= 0) {
      Push(parcels_[parcel.after].arrival, EventKind::kArrival, parcel.after);
    }
  }
  CardState& card = cards_[processes_[parcel.to].card];
  if (card.cut_until > now() || card.holds) {  // it is sent again until it comes through
    card.holds = true;
    cut_off_[processes_[parcel.to].card].push_back(index);
  } else {
    Receive(index);
  }
}

void VirtualNetwork::Receive(int32_t index) {
  Parcel& parcel = parcels_[index];
  CardState& card = cards_[processes_[parcel.to].card];
  int64_t bytes = 0;
  for (int32_t i = index; i >= 0; i = parcels_[i].with) bytes += parcels_[i].bytes;
  card.bytes_in += bytes;
  const SimTime begin = std::max(now(), card.in_free);
  const SimTime end = std::max(begin + WireTime(card.nanoseconds_per_byte, bytes), parcel.last_bit);
  card.in_free = end;
  if (end == now() && card.in.first < 0) {
    OnDelivery(index);
    return;
  }
  const SimTime last = card.in.first < 0 ? 0 : parcels_[card.in.last].last_bit;
  parcel.last_bit = end;
  Join(&card.in, index, EventKind::kDelivery, end, last);
}

void VirtualNetwork::OnDelivery(int32_t index) {
  const ProcessId to = parcels_[index].to;
  CardState& card = cards_[processes_[to].card];
  if (card.in.first == index) {
    const int32_t after = parcels_[index].after;
    card.in.first = after;
    if (after >= 0) {
      Push(parcels_[after].last_bit, EventKind::kDelivery, after);
      for (int32_t i = after; i >= 0; i = parcels_[i].with) PrefetchMessage(messages_[i]);
    }
  }
  if (!Hold(to, static_cast<uint64_t>(index) << 3 | static_cast<uint64_t>(EventKind::kDelivery))) {
    Deliver(index);
  }
}

void VirtualNetwork::Deliver(int32_t index) {
  while (index >= 0) {
    const Parcel& parcel = parcels_[index];
    const ConnectionId connection = parcel.channel / 2;
    const int32_t next = parcel.with;
    const ProcessState& to = processes_[parcel.to];
    SimMessage message = std::move(messages_[index]);
    FreeParcel(index);
    index = next;
    if (broken_[connection] || !to.alive) continue;
    to.process->OnMessage(connection, std::move(message));
  }
}

bool VirtualNetwork::Hold(ProcessId process, uint64_t event) {
  ProcessState& state = processes_[process];
  if (state.frozen_until <= now() && !state.holds) return false;
  if (!std::exchange(state.holds, true)) state.held_since = now();
  held_[process].push_back(event);
  return true;
}

void VirtualNetwork::SetTimer(ProcessId process, SimTime at, uint64_t argument,
                              EventQueue::Kind kind) {
  int32_t timer = free_timer_;
  if (timer < 0) {
    timers_.emplace_back();
    timer = static_cast<int32_t>(timers_.size()) - 1;
  } else {
    free_timer_ = timers_[timer].next_free;
  }
  timers_[timer] = {process, argument};
  Push(at, EventKind::kTimer, timer, kind);
}

void VirtualNetwork::OnEvent(uint64_t event) {
  const uint64_t index = event >> 3;
  switch (static_cast<EventKind>(event & 7)) {
    case EventKind::kArrival:
      OnArrival(static_cast<int32_t>(index));
      break;
    case EventKind::kDelivery:
      OnDelivery(static_cast<int32_t>(index));
      break;
    case EventKind::kTimer: {
      const Timer timer = timers_[index];
      const ProcessState& state = processes_[timer.process];
      if (state.alive && Hold(timer.process, event)) break;
      timers_[index].next_free = free_timer_;
      free_timer_ = static_cast<int32_t>(index);
      if (state.alive) state.process->OnTimer(timer.argument);
      break;
    }
    case EventKind::kThaw: {
      ProcessState& state = processes_[index];
      if (state.frozen_until > now()) break;  // frozen once more meanwhile
      const std::deque<uint64_t> held = std::move(held_[index]);
      held_[index].clear();
      state.holds = false;
      state.frozen_until = 0;
      for (const uint64_t kept : held) OnEvent(kept);
      break;
    }
    case EventKind::kCutEnds: {
      CardState& card = cards_[index];
      if (card.cut_until > now()) break;  // cut off once more meanwhile
      card.holds = false;
      const std::deque<int32_t> parcels = std::exchange(cut_off_[index], {});
      for (const int32_t parcel : parcels) Receive(parcel);
      break;
    }
    case EventKind::kBreak:
    case EventKind::kSent:
    case EventKind::kAcknowledged:
      OnChannelEvent(event);
      break;
  }
}

// Of the process that sends on the channel.
void VirtualNetwork::OnChannelEvent(uint64_t event) {
  const uint64_t index = event >> 3;
  const ConnectionId connection = static_cast<ConnectionId>(index / 2);
  const ProcessId ear = channels_[index].from;
  if (!processes_[ear].alive || Hold(ear, event)) return;
  Process* const process = processes_[ear].process;
  switch (static_cast<EventKind>(event & 7)) {
    case EventKind::kBreak:
      process->OnBroken(connection);
      break;
    case EventKind::kSent:
      process->OnSent(connection);
      break;
    default:
      process->OnAcknowledged(connection);
  }
}

}  // namespace rubato
