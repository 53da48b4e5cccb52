#include "tools/simulator/shard_process.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/exit_code.h"
#include "common/base/status.h"
#include "common/wire/stream_opening.h"
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

// How often it calls a coordinator that does not answer, or that still has who it was before.
constexpr SimTime kBetweenCalls = 100 * kMillisecond;
constexpr SimTime kBetweenTries = 200 * kMillisecond;

// How long it takes to write or read a part.
constexpr SimTime kPartTime = 5 * kMillisecond;

// How long a disk stands still, at least: longer than anybody waits for it.
constexpr SimTime kStandsStill = 600 * kSecond;

// Instead of a connection: the simulation itself.
constexpr uint64_t kReader = ~uint64_t{0};

ReceivedValues Received(const Content& content) {
  if (content.floats != nullptr) return *content.floats;
  return AsFloats(content.symbol);
}

}  // namespace

ShardProcess::Term::Term(ShardProcess* process, uint64_t number)
    : number(number),
      ends(process->setting_.network, StreamCore::Side::kServer, process->setting_.streams,
           process->setting_.judge, process) {
  ends.SetSelf(process->self_);
}

absl::StatusOr<std::unique_ptr<ShardProcess>> ShardProcess::Create(const ShardSetting* setting,
                                                                   int shard, MakeValues make) {
  std::unique_ptr<ShardProcess> process(new ShardProcess(setting, shard, std::move(make)));
  RUBATO_RETURN_IF_ERROR(process->MakeTerm());
  return process;
}

absl::Status ShardProcess::MakeTerm() {
  std::function<bool(int64_t)> defer;
  if (setting_.change_bytes_per_second > 0) {
    defer = [this](int64_t block) { return Defer(block); };
  }
  RUBATO_ASSIGN_OR_RETURN(std::unique_ptr<ShardValues> values, make_(std::move(defer)));
  const auto sink = [this](const ShardOutcome& outcome) {
    std::visit([this](const auto& what) { Do(what); }, outcome);
  };
  std::optional<KeptShard> kept;
  if (term_ != nullptr) {
    if (term_->control >= 0) setting_.network->Close(term_->control, self_);
    term_->ends.CloseAll();
    kept = term_->protocol->TakeKept();
  }
  term_ = std::make_unique<Term>(this, ++terms_);
  term_->protocol.emplace(std::move(values), sink, setting_.policies, std::move(kept));
  return absl::OkStatus();
}

void ShardProcess::Start(ProcessId self) {
  self_ = self;
  term_->ends.SetSelf(self);
  gives_up_at_ = setting_.network->now() + setting_.start_timeout;
  Register();
}

void ShardProcess::Register() {
  VirtualNetwork& network = *setting_.network;
  const ProcessId coordinator = setting_.coordinator;
  if (is_apart() && (!network.Reaches(self_, coordinator) || !network.Runs(coordinator))) {
    if (network.now() >= gives_up_at_) {
      end_ = absl::DeadlineExceededError("the coordinator (shard 0) does not answer");
    } else {
      SetTimer(network.now() + kBetweenCalls, kRegister);
    }
    return;
  }
  term_->control = network.Connect(self_, coordinator);
  proto::PeerMessage message;
  proto::Registration* registration = message.mutable_registration();
  registration->set_version(setting_.version);
  registration->set_job_digest(setting_.job_digest);
  registration->set_address(absl::StrCat("shard-", shard_));
  registration->set_shard(shard_);
  registration->set_attempt(attempt());
  if (last_term_ > 0) registration->set_last_term(last_term_);
  registration->set_process(absl::StrCat("simulated shard ", shard_));
  const std::optional<KeptShard>& kept = term_->protocol->kept();
  offered_ = kept.has_value() ? values_of_ : 0;
  if (kept.has_value()) {
    *registration->mutable_kept() = kept->state;
    Unfold(*setting_.blocks, registration->mutable_kept()->mutable_blocks());
  }
  Do(shard_outcome::Said{std::move(message)});
}

void ShardProcess::BeginTerm() {
  if (end_.has_value()) return;
  if (const absl::Status status = MakeTerm(); !status.ok()) return setting_.on_failure(status);
  Register();
}

// As server/process/server.cc.
void ShardProcess::GoBack(const absl::Status& why) {
  const SimTime now = setting_.network->now();
  const bool took_part = core() != nullptr || lost_.ok();
  if (took_part) {
    lost_ = why;
    gives_up_at_ = now + setting_.start_timeout;
  } else if (now >= gives_up_at_) {
    end_ = why;
    return;
  }
  if (const absl::Status status = MakeTerm(); !status.ok()) return setting_.on_failure(status);
  if (is_apart()) SetTimer(now + (took_part ? 0 : kBetweenTries), kRegister);
}

absl::Status ShardProcess::CheckTerm(uint32_t term) const {
  return CheckOpening(kDataMethod, setting_.job_digest, absl::StrCat(term),
                      {setting_.job_digest, term_->term});
}

void ShardProcess::OnMessage(ConnectionId connection, SimMessage&& message) {
  if (end_.has_value()) return;
  if (message.kind != SimMessage::Kind::kFromCoordinator) {
    term_->ends.OnMessage(connection, std::move(message));
    return;
  }
  if (connection != term_->control) return;
  const proto::CoordinatorMessage& said = *message.from_coordinator();
  if (said.has_stop()) {
    const proto::Stop& stop = said.stop();
    const absl::Status status = ToldToStop(stop.exit_code(), stop.reason(), stop.refused());
    // Its place may be held by what it was before; who starts it then does so again.
    const bool is_early = setting_.come_back && stop.refused() && stop.exit_code() == kExitFailure;
    if (stop.goes_back() || is_early) {
      GoBack(status);
    } else {
      end_ = status;
    }
    return;
  }
  if (said.has_view()) {
    const proto::View& view = said.view();
    term_->term = last_term_ = view.term();
    if (view.number() == 1 && !view.has_kept_term()) values_of_ = view.term();
  }
  VirtualStreams::Batch batch(&term_->ends);
  term_->protocol->Handle(shard_event::Message{said}).IgnoreError();
}

void ShardProcess::OnFrame(ConnectionId stream, SimMessage&& message) {
  const absl::Status status = term_->protocol->Handle(shard_event::Arrival{
      static_cast<uint64_t>(stream), message.frame, Received(message.content)});
  if (!status.ok()) {
    setting_.on_failure(absl::InternalError(
        absl::StrFormat("refused: shard %d refused a %s of worker %d: %s", shard_,
                        KindName(message.kind), message.frame.worker, status.message())));
  }
}

void ShardProcess::OnBroken(ConnectionId connection) {
  if (end_.has_value()) return;
  if (connection != term_->control) {
    term_->ends.OnBroken(connection);
    return;
  }
  const absl::Status why =
      StoppedByOthers(absl::UnavailableError("the coordinator (shard 0) is gone"));
  if (setting_.come_back) {
    GoBack(why);
  } else {
    end_ = why;
  }
}

void ShardProcess::OnGone(ConnectionId stream) {
  if (end_.has_value()) return;
  VirtualStreams::Batch batch(&term_->ends);
  term_->protocol->Handle(shard_event::StreamGone{static_cast<uint64_t>(stream)}).IgnoreError();
}

void ShardProcess::OnTimer(uint64_t argument) {
  if (end_.has_value() || argument >> 32 != term_->number) return;
  const uint64_t what = argument & 0xffffffff;
  if (what == kRegister) return Register();
  if (what == kNeverWritten) return;
  if (what == kWritten) return SayWritten();
  if (what == kRead) return ReadPart();
  VirtualStreams::Batch batch(&term_->ends);
  term_->protocol->Handle(shard_event::ChangeDue{static_cast<int64_t>(what)}).IgnoreError();
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
  const absl::Status status = term_->protocol->Handle(shard_event::Arrival{kReader, pull, {}});
  take_ = nullptr;
  return status;
}

absl::Status ShardProcess::Restore(uint32_t term, const Frame& frame, const Content& content) {
  RUBATO_RETURN_IF_ERROR(CheckTerm(term));
  return term_->protocol->Handle(shard_event::Arrival{kReader, frame, Received(content)});
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
  term_->ends.Send(static_cast<ConnectionId>(sent.stream), std::move(message));
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
  if (term_->control < 0) return;
  setting_.network->Send(term_->control, self_, SimMessage::ToCoordinator(std::move(message)));
}

void ShardProcess::Do(const shard_outcome::WritePart& part) {
  if (setting_.disk_stands_still && (part.snapshot + shard_) % 4 == 2) {
    return SetTimer(setting_.network->now() + kStandsStill, kNeverWritten);
  }
  proto::PartWritten& written = term_->parts.emplace_back();
  written.set_id(part.snapshot);
  for (const auto& [block, copy] : part.blocks) {
    written.add_checksums(PartChecksum(AsSymbol(copy.values[0].values())));
  }
  // Now and then as long as other shards need to miss this snapshot and to take another.
  const bool is_slow = (part.snapshot + 2 * shard_) % 4 == 1;
  SetTimer(setting_.network->now() + kPartTime * (is_slow ? 100 : 1 + shard_), kWritten);
}

void ShardProcess::SayWritten() {
  proto::PeerMessage message;
  proto::PartWritten* written = message.mutable_part_written();
  *written = std::move(term_->parts.front());
  term_->parts.pop_front();
  written->set_state(proto::PartWritten::STATE_WRITTEN);
  if ((written->id() + shard_) % 3 == 0) {
    written->set_state(proto::PartWritten::STATE_UNSEEN);
    written->clear_checksums();
  } else if (setting_.disk_is_full && (written->id() + 2 * shard_) % 5 == 0) {
    written->set_state(proto::PartWritten::STATE_FAILED);
    written->set_reason("the disk is full");
    term_->failed_part = written->id();
    written->clear_checksums();
  }
  Do(shard_outcome::Said{std::move(message)});
}

void ShardProcess::Do(const shard_outcome::ReadPart&) {
  // In every third term, so that the job gets on in the others.
  const bool stands_still =
      setting_.come_back && setting_.disk_stands_still && (term_->term + shard_) % 3 == 1;
  SetTimer(setting_.network->now() + (stands_still ? kStandsStill : kPartTime), kRead);
}

void ShardProcess::ReadPart() {
  if ((term_->term + shard_) % 2 == 0) {
    proto::PeerMessage message;
    message.mutable_shard_restored()->set_unseen(true);
    Do(shard_outcome::Said{std::move(message)});
  } else if (const absl::Status status = setting_.read_part(shard_);
             !status.ok() && !absl::IsUnavailable(status)) {  // else the job is in a later term
    setting_.on_failure(status);
  }
}

bool ShardProcess::Defer(int64_t block) {
  const double seconds =
      static_cast<double>(setting_.blocks->bytes[block]) / setting_.change_bytes_per_second;
  term_->busy_until =
      std::max(term_->busy_until, setting_.network->now()) + static_cast<SimTime>(seconds * 1e9);
  SetTimer(term_->busy_until, static_cast<uint64_t>(block));
  return true;
}

}  // namespace rubato
