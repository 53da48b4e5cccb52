#include "server/process/shard_host.h"

#include <grpcpp/grpcpp.h>

#include <cstdlib>
#include <thread>
#include <utility>
#include <variant>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "common/base/exit_code.h"
#include "common/base/status.h"
#include "common/base/version.h"
#include "common/space/job_codec.h"
#include "common/wire/control_client.h"
#include "common/wire/stream_memory.h"
#include "server/shard/float_values.h"
#include "server/shard/shard_record.h"

namespace rubato {
namespace {

constexpr uint64_t kNoStream = 0;  // of what comes from within the process

std::shared_ptr<SharedArena> ArenaFor(const proto::Job& job, const Log* log) {
  if (!IsLent(SharesMemory(job), PullCodec(job), job.wire().chunk())) return nullptr;
  absl::StatusOr<std::shared_ptr<SharedArena>> arena = SharedArena::Create();
  if (arena.ok()) return *std::move(arena);
  log->Warning("lends no parameters to workers of this host",
               {{"reason", arena.status().message()}});
  return nullptr;
}

}  // namespace

ShardHost::ShardHost(const proto::Job& job, const std::string& job_digest,
                     const ConnectionOptions& connection, const Log* log, Reporter report,
                     std::unique_ptr<RecordingWriter> recording, Remains remains)
    : job_(job),
      connection_(connection),
      log_(*log),
      report_(std::move(report)),
      recording_(std::move(recording)),
      kept_(std::move(remains.kept)),
      memory_(remains.memory.has_value() ? *remains.memory : BlockMemory(ArenaFor(job, log))),
      data_(job_digest, SharesMemory(job), log, memory_.arena, connection) {}

void ShardHost::StopParts() {
  if (parts_ != nullptr) parts_->Close();
}

void ShardHost::Stop() {
  StopParts();
  if (listener_.has_value()) listener_->Shutdown();
  data_.Stop();    // waits for the engine
  watch_.reset();  // which is watched until then
}

ShardHost::Remains ShardHost::TakeRemains() {
  return {shard_.has_value() ? shard_->TakeKept() : std::move(kept_), memory_};
}

absl::Status ShardHost::Start(int shard, const std::string& listen, const AddServices& add_cluster,
                              Ask ask_cluster) {
  RUBATO_ASSIGN_OR_RETURN(std::unique_ptr<ShardValues> values,
                          FloatValues::Create(job_, shard, memory_));
  shard_.emplace(
      std::move(values),
      RecordingSink([this](const ShardOutcome& outcome) { Do(outcome); }, recording_.get()),
      BuiltInPolicy, std::exchange(kept_, std::nullopt));
  PartFiles::Outlets outlets;
  // Not at once: whoever hears it may be about to give the parts something.
  outlets.say = [this](const proto::PeerMessage& message) {
    data_.Post([this, message] { report_(message); });
  };
  outlets.give = [this](const Frame& frame, const Payload& payload) {
    data_.Post([this, frame, payload] {
      const absl::Status status = Handle(shard_event::Arrival{kNoStream, frame, payload.values()});
      if (status.ok()) return;
      proto::PeerMessage message;
      message.mutable_failure()->set_exit_code(kExitFailure);
      message.mutable_failure()->set_reason(std::string(status.message()));
      report_(message);
    });
  };
  outlets.prepare = [memory = memory_](absl::FunctionRef<bool()> stops) {
    memory.slots->Fill(stops);
    memory.parameters->Fill(stops);
  };
  RUBATO_ASSIGN_OR_RETURN(parts_, PartFiles::Create(job_, shard, std::move(outlets)));
  RUBATO_ASSIGN_OR_RETURN(
      listener_, Listener::Listen(
                     listen, connection_, [this](const std::string& text) { log_.Warning(text); },
                     [&](grpc::ServerBuilder* builder) {
                       data_.Register(builder);
                       if (add_cluster) add_cluster(builder);
                     },
                     add_cluster ? Accepting::kLater : Accepting::kAtOnce));
  DataService::Callbacks callbacks;
  callbacks.on_frame = [this](uint64_t stream, const Frame& frame, const ReceivedValues& values) {
    return Handle(shard_event::Arrival{stream, frame, values});
  };
  callbacks.on_gone = [this](uint64_t stream) {
    Handle(shard_event::StreamGone{stream}).IgnoreError();
  };
  data_.Start(std::move(callbacks));
  watch_.emplace(
      connection_.lease,
      [this, ask_cluster = std::move(ask_cluster)](std::function<void()> answer) {
        // The last of those who are asked lets it go.
        const std::shared_ptr<void> asked(nullptr, [answer](void*) { answer(); });
        if (!has_opened_) return;  // to make a shard's state may take longer than a lease
        data_.Ask(asked);
        if (ask_cluster) ask_cluster(asked);
      },
      [this] { OnStuck(); });
  return absl::OkStatus();
}

absl::Status ShardHost::Handle(const ShardEvent& event) {
  return HandleAndRecord(event, &*shard_, recording_.get());
}

void ShardHost::Do(const ShardOutcome& outcome) {
  if (const auto* sent = std::get_if<shard_outcome::Sent>(&outcome)) {
    data_.Send(sent->stream, sent->frame, sent->payload);
  } else if (const auto* said = std::get_if<shard_outcome::Said>(&outcome)) {
    // Before that it is not planned what snapshots need.
    if (said->message.has_shard_opened() && !has_opened_.exchange(true)) parts_->Prepare();
    report_(said->message);
  } else if (const auto* write = std::get_if<shard_outcome::WritePart>(&outcome)) {
    parts_->Write(*write);
  } else if (const auto* forget = std::get_if<shard_outcome::ForgetPart>(&outcome)) {
    parts_->Forget(forget->snapshot);
  } else if (const auto* read = std::get_if<shard_outcome::ReadPart>(&outcome)) {
    parts_->Read(*read);
  }
}

void ShardHost::OnStuck() {
  const absl::Status why = absl::DeadlineExceededError(absl::StrFormat(
      "this server is stuck: its engine has done nothing for most of cluster.lease (%s)",
      absl::FormatDuration(connection_.lease)));
  proto::PeerMessage message;
  message.mutable_failure()->set_exit_code(kExitFailure);
  message.mutable_failure()->set_reason(std::string(why.message()));
  // On another thread: what is stuck may be what it is reported to.
  std::thread([this, message] { report_(message); }).detach();
  absl::SleepFor(absl::Milliseconds(300));  // for messages to leave
  log_.Fatal(why);
  std::_Exit(kExitFailure);
}

void ShardHost::OnMessage(const proto::CoordinatorMessage& message) {
  if (message.has_view()) {
    data_.SetTerm(message.view().term());
    parts_->SetView(message.view());
  }
  data_.Post([this, message] { Handle(shard_event::Message{message}).IgnoreError(); });
}

proto::Registration ShardRegistration(const std::string& job_digest, int shard,
                                      const std::optional<KeptShard>& kept) {
  proto::Registration registration;
  registration.set_version(kVersion);
  registration.set_job_digest(job_digest);
  registration.set_shard(shard);
  registration.set_process(ProcessDescription());
  if (kept.has_value()) *registration.mutable_kept() = kept->state;
  return registration;
}

proto::RecordHeader MakeRecordHeader(const proto::Job& job, const std::string& job_digest) {
  proto::RecordHeader header;
  header.set_version(kVersion);
  header.set_job_digest(job_digest);
  *header.mutable_job() = job;
  return header;
}

absl::StatusOr<std::unique_ptr<RecordingWriter>> RecordShard(const proto::Job& job,
                                                             const ServerOptions& options,
                                                             const std::string& job_digest,
                                                             const std::optional<KeptShard>& kept,
                                                             const Log& log) {
  if (options.record.empty()) return nullptr;
  proto::RecordHeader header = MakeRecordHeader(job, job_digest);
  header.set_shard(options.shard);
  if (kept.has_value()) *header.mutable_kept() = kept->state;
  return RecordingWriter::Create(NextRecording(ShardRecording(options.record, options.shard)),
                                 header, &log);
}

}  // namespace rubato
