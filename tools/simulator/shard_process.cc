#include "tools/simulator/shard_process.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/exit_code.h"
#include "common/base/status.h"
#include "tools/simulator/symbolic_values.h"

namespace rubato {
namespace {

// Tells of each block of the job what is so of the one that stands for it.
template <typename States>
void Unfold(const Blocks& blocks, States* states) {
  if (blocks.real.empty()) return;
  States all;
  for (const auto& state : *states) {
    const Range real = blocks.real[state.block()];
    for (int64_t block = real.begin; block < real.end; ++block) {
      *all.Add() = state;
      all.Mutable(all.size() - 1)->set_block(block);
    }
  }
  states->Swap(&all);
}

// Instead of a connection: the simulation itself.
constexpr uint64_t kReader = ~uint64_t{0};

ReceivedValues Received(const Content& content) {
  if (content.floats != nullptr) return *content.floats;
  return AsFloats(content.symbol);
}

}  // namespace

absl::StatusOr<std::unique_ptr<ShardProcess>> ShardProcess::Create(const ShardSetting* setting,
                                                                   int shard,
                                                                   const MakeValues& make) {
  std::unique_ptr<ShardProcess> process(new ShardProcess(setting, shard));
  ShardProcess* self = process.get();
  std::function<bool(int64_t)> defer;
  if (setting->change_bytes_per_second > 0) {
    defer = [self](int64_t block) { return self->Defer(block); };
  }
  RUBATO_ASSIGN_OR_RETURN(std::unique_ptr<ShardValues> values, make(std::move(defer)));
  const auto sink = [self](const ShardOutcome& outcome) {
    std::visit([self](const auto& what) { self->Do(what); }, outcome);
  };
  process->protocol_.emplace(std::move(values), sink, setting->policies);
  return process;
}

void ShardProcess::Start(ProcessId self) {
  self_ = self;
  ends_.SetSelf(self);
  control_ = setting_.network->Connect(self_, setting_.coordinator);
  proto::PeerMessage message;
  proto::Registration* registration = message.mutable_registration();
  registration->set_version(setting_.version);
  registration->set_job_digest(setting_.job_digest);
  registration->set_address(absl::StrCat("shard-", shard_));
  registration->set_shard(shard_);
  registration->set_process(absl::StrCat("simulated shard ", shard_));
  Do(shard_outcome::Said{std::move(message)});
}

void ShardProcess::OnMessage(ConnectionId connection, SimMessage&& message) {
  if (end_.has_value()) return;
  if (message.kind == SimMessage::Kind::kFromCoordinator) {
    const proto::CoordinatorMessage& said = *message.from_coordinator();
    if (said.has_stop()) {
      end_ = ToldToStop(said.stop().exit_code(), said.stop().reason(), said.stop().refused());
      return;
    }
    VirtualStreams::Batch batch(&ends_);
    protocol_->Handle(shard_event::Message{said}).IgnoreError();
  } else {
    ends_.OnMessage(connection, std::move(message));
  }
}

void ShardProcess::OnFrame(ConnectionId stream, SimMessage&& message) {
  const absl::Status status = protocol_->Handle(shard_event::Arrival{
      static_cast<uint64_t>(stream), message.frame, Received(message.content)});
  if (!status.ok()) {
    setting_.on_failure(absl::InternalError(
        absl::StrFormat("refused: shard %d refused a %s of worker %d: %s", shard_,
                        KindName(message.kind), message.frame.worker, status.message())));
  }
}

void ShardProcess::OnBroken(ConnectionId connection) {
  if (end_.has_value()) return;
  if (connection == control_) {
    end_ = StoppedByOthers(absl::UnavailableError("the coordinator (shard 0) is gone"));
    return;
  }
  ends_.OnBroken(connection);
}

void ShardProcess::OnGone(ConnectionId stream) {
  if (end_.has_value()) return;
  VirtualStreams::Batch batch(&ends_);
  protocol_->Handle(shard_event::StreamGone{static_cast<uint64_t>(stream)}).IgnoreError();
}

void ShardProcess::OnTimer(uint64_t block) {
  if (end_.has_value()) return;
  VirtualStreams::Batch batch(&ends_);
  protocol_->Handle(shard_event::ChangeDue{static_cast<int64_t>(block)}).IgnoreError();
}

void ShardProcess::SayStuck() {
  const absl::Status why = absl::DeadlineExceededError("this server is stuck");
  proto::PeerMessage message;
  message.mutable_failure()->set_exit_code(kExitFailure);
  message.mutable_failure()->set_reason(std::string(why.message()));
  Do(shard_outcome::Said{std::move(message)});
  end_ = why;
}

std::string ShardProcess::State() const {
  if (!setting_.network->alive(self_)) return "is dead";
  if (end_.has_value()) return "has ended";
  if (core() == nullptr) return "waits for its first view";
  const Range blocks = core()->blocks();
  std::string state = absl::StrFormat("is in view %d", core()->view());
  if (!setting_.network->Runs(self_)) absl::StrAppend(&state, ", stands still");
  for (int64_t block = blocks.begin; block < blocks.end; ++block) {
    const BlockLedger& ledger = core()->ledger(block);
    absl::StrAppend(&state, ", block ", block, " is at version ", ledger.version);
    if (!ledger.nodes.empty()) absl::StrAppend(&state, " with parts of the next");
    if (!ledger.queue.empty()) absl::StrAppend(&state, " and holds ", ledger.queue.size());
    if (ledger.measured) absl::StrAppend(&state, " and waits for a decision");
  }
  return state;
}

absl::Status ShardProcess::Read(const Frame& pull, const Take& take) {
  take_ = &take;
  const absl::Status status = protocol_->Handle(shard_event::Arrival{kReader, pull, {}});
  take_ = nullptr;
  return status;
}

absl::Status ShardProcess::Restore(const Frame& frame, const Content& content) {
  return protocol_->Handle(shard_event::Arrival{kReader, frame, Received(content)});
}

void ShardProcess::Do(const shard_outcome::Sent& sent) {
  Content content;
  if (setting_.has_symbols) {
    content.symbol = AsSymbol(sent.payload.values());
  } else {
    content.floats = std::make_shared<const Payload>(sent.payload);
  }
  if (sent.stream == kReader) {
    if (take_ != nullptr) (*take_)(sent.frame, content);
    return;
  }
  SimMessage message;
  message.kind = SimMessage::Kind::kParameters;
  message.bytes = BytesOf(content, setting_.blocks->pull_bytes[sent.frame.block]);
  message.frame = sent.frame;
  message.content = std::move(content);
  ends_.Send(static_cast<ConnectionId>(sent.stream), std::move(message));
}

void ShardProcess::Do(const shard_outcome::Said& said) {
  proto::PeerMessage message = said.message;
  if (message.has_snapshot_copied()) {
    Unfold(*setting_.blocks, message.mutable_snapshot_copied()->mutable_blocks());
  } else if (message.has_shard_report()) {
    proto::ShardReport& report = *message.mutable_shard_report();
    const int before = report.blocks_size();
    Unfold(*setting_.blocks, report.mutable_blocks());
    for (int64_t& count : *report.mutable_staleness_counts()) {
      count = count * report.blocks_size() / before;
    }
  }
  setting_.network->Send(control_, self_, SimMessage::ToCoordinator(std::move(message)));
}

bool ShardProcess::Defer(int64_t block) {
  const double seconds =
      static_cast<double>(setting_.blocks->bytes[block]) / setting_.change_bytes_per_second;
  busy_until_ =
      std::max(busy_until_, setting_.network->now()) + static_cast<SimTime>(seconds * 1e9);
  setting_.network->SetTimer(self_, busy_until_, static_cast<uint64_t>(block));
  return true;
}

}  // namespace rubato
