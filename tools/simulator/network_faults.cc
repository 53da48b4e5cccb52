// What faults do to the virtual network.
#include <algorithm>
#include <utility>

#include "tools/simulator/network.h"

namespace rubato {

void VirtualNetwork::SetFaults(std::vector<Fault> faults) {
  std::stable_sort(faults.begin(), faults.end(),
                   [](const Fault& a, const Fault& b) { return a.at < b.at; });
  faults_ = std::move(faults);
  pending_.clear();
  next_fault_ = 0;
}

ProcessId VirtualNetwork::Victim(const Fault& fault, int32_t channel, SimMessage::Kind kind) const {
  if (fault.message >= 0 && fault.message != static_cast<int>(kind)) return -1;
  if (broken_[channel / 2]) return -1;
  const ProcessId ends[] = {channels_[channel].from, channels_[channel].to};
  const ProcessId wanted = ends[fault.sender ? 0 : 1], other = ends[fault.sender ? 1 : 0];
  switch (fault.kind) {
    case Fault::Kind::kDuplicate:
      // A control call does not repeat itself; shards and the coordinator do.
      return IsData(kind) || processes_[ends[0]].is_shard || processes_[ends[1]].is_shard ? wanted
                                                                                          : -1;
    case Fault::Kind::kLateEngine:
    case Fault::Kind::kStickEngine:
      return processes_[wanted].is_shard ? wanted : processes_[other].is_shard ? other : -1;
    case Fault::Kind::kBreakControl:
      if (IsData(kind) || channels_[channel].way == kLocal) return -1;
      return processes_[wanted].is_shard ? wanted : processes_[other].is_shard ? other : -1;
    case Fault::Kind::kKillServer:
    case Fault::Kind::kFreezeServer:
    case Fault::Kind::kCutServer:
      return processes_[wanted].vital ? wanted : processes_[other].vital ? other : -1;
    case Fault::Kind::kDelay:
    case Fault::Kind::kMisfit:
    case Fault::Kind::kLateTicks:
      return wanted;
    case Fault::Kind::kFreeze:
    case Fault::Kind::kCut:
      if (fault.duration < servers_bear_ && now() >= servers_spared_until_) return wanted;
      break;
    default:
      break;
  }
  if (!processes_[wanted].vital) return wanted;
  return processes_[other].vital ? -1 : other;
}

bool VirtualNetwork::Strike(Fault fault, int32_t channel, ProcessId struck, SimMessage* message,
                            SimTime* extra) {
  const SimMessage::Kind kind = message->kind;
  bool lost = false;
  if (processes_[struck].vital &&
      (fault.kind == Fault::Kind::kFreeze || fault.kind == Fault::Kind::kCut)) {
    servers_spared_until_ = now() + fault.duration + server_lease_;
  }
  switch (fault.kind) {
    case Fault::Kind::kDelay:
      *extra += fault.duration;
      fault.duration = *extra;  // with what delayed it before
      break;
    case Fault::Kind::kDuplicate:
      Transmit(channel, SimMessage(*message), *extra);
      break;
    case Fault::Kind::kDrop:
    case Fault::Kind::kBreakControl:
      Break(channel / 2, -1);
      lost = true;
      break;
    case Fault::Kind::kCut:
    case Fault::Kind::kCutServer:
      Cut(processes_[struck].card, fault.duration);
      break;
    case Fault::Kind::kFreeze:
    case Fault::Kind::kFreezeServer:
      Freeze(struck, fault.duration);
      break;
    case Fault::Kind::kHang:
    case Fault::Kind::kLateEngine:
    case Fault::Kind::kStickEngine:
      Stall(struck, fault.duration);
      break;
    case Fault::Kind::kCrash:
    case Fault::Kind::kRestart:
    case Fault::Kind::kKillServer:
      Crash(struck);
      lost = true;
      break;
    case Fault::Kind::kLeave:
    case Fault::Kind::kJoin:
    case Fault::Kind::kMisfit:
    case Fault::Kind::kLateTicks:
      break;
  }
  if (on_fault_) on_fault_(fault, kind, struck);
  return lost;
}

// Both ends hear of it but `silent`, if that is one of them.
void VirtualNetwork::Break(ConnectionId id, ProcessId silent) {
  if (broken_[id]) return;
  broken_[id] = true;
  for (const int32_t index : {2 * id, 2 * id + 1}) {
    const Channel& channel = channels_[index];
    if (channel.from != silent) Push(now() + Latency(channel), EventKind::kBreak, index);
  }
}

void VirtualNetwork::Close(ConnectionId connection, ProcessId by) { Break(connection, by); }

void VirtualNetwork::Crash(ProcessId process) {
  ProcessState& state = processes_[process];
  if (!state.alive) return;
  state.alive = false;
  state.holds = false;
  held_[process].clear();
  for (size_t index = 0; index < channels_.size(); ++index) {
    if (channels_[index].from == process) Break(static_cast<ConnectionId>(index / 2), process);
  }
}

void VirtualNetwork::Stall(ProcessId process, SimTime duration) {
  ProcessState& state = processes_[process];
  state.frozen_until = std::max(state.frozen_until, now() + duration);
  disturbed_until_ = std::max(disturbed_until_, state.frozen_until);
  Push(state.frozen_until, EventKind::kThaw, process);
}

void VirtualNetwork::Freeze(ProcessId process, SimTime duration) {
  Stall(process, duration);
  if (duration < keep_alive_) return;
  for (size_t index = 0; index < channels_.size(); ++index) {
    if (channels_[index].from == process) LoseSilently(index);
  }
}

void VirtualNetwork::Cut(int card, SimTime duration) {
  cards_[card].cut_until = std::max(cards_[card].cut_until, now() + duration);
  disturbed_until_ = std::max(disturbed_until_, cards_[card].cut_until);
  Push(cards_[card].cut_until, EventKind::kCutEnds, card);
  if (duration < keep_alive_) return;
  for (size_t index = 0; index < channels_.size(); ++index) {
    if (processes_[channels_[index].from].card == card) LoseSilently(index);
  }
}

void VirtualNetwork::LoseSilently(size_t index) {
  if (channels_[index].way == kLocal || broken_[index / 2]) return;
  broken_[index / 2] = true;
  for (const size_t end : {index, index ^ 1}) {
    Push(now() + keep_alive_, EventKind::kBreak, end);
  }
}

}  // namespace rubato
