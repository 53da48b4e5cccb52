#include "tools/simulator/shard_process.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status.h"

namespace rubato {
namespace {

// Instead of a connection: the simulation itself.
constexpr uint64_t kReader = ~uint64_t{0};

}  // namespace

absl::StatusOr<std::unique_ptr<ShardProcess>> ShardProcess::Create(const ShardSetting* setting,
                                                                   int shard,
                                                                   const MakeModel& make) {
  std::unique_ptr<ShardProcess> process(new ShardProcess(setting, shard));
  ShardProcess* self = process.get();
  RUBATO_ASSIGN_OR_RETURN(
      process->model_,
      make(
          [self](uint64_t stream, const Frame& frame, Content content) {
            if (stream != kReader) {
              self->Send(static_cast<ConnectionId>(stream), frame, std::move(content));
            } else if (self->take_ != nullptr) {
              (*self->take_)(frame, content);
            }
          },
          [self](const proto::PeerMessage& message) { self->Tell(message); },
          setting->change_bytes_per_second > 0
              ? std::function<bool(int64_t)>([self](int64_t block) { return self->Defer(block); })
              : nullptr));
  return process;
}

void ShardProcess::Start(ProcessId self) {
  self_ = self;
  control_ = setting_.network->Connect(self_, setting_.coordinator);
  proto::PeerMessage message;
  proto::Registration* registration = message.mutable_registration();
  registration->set_version(setting_.version);
  registration->set_job_digest(setting_.job_digest);
  registration->set_address(absl::StrCat("shard-", shard_));
  registration->set_shard(shard_);
  registration->set_process(absl::StrCat("simulated shard ", shard_));
  Tell(std::move(message));
}

void ShardProcess::OnMessage(ConnectionId connection, SimMessage&& message) {
  if (message.kind == SimMessage::Kind::kFromCoordinator) {
    model_->OnMessage(*message.from_coordinator());
    return;
  }
  const absl::Status status =
      model_->OnFrame(static_cast<uint64_t>(connection), message.frame, std::move(message.content));
  if (!status.ok()) {
    setting_.on_failure(absl::InternalError(
        absl::StrFormat("shard %d refused a %s of worker %d: %s", shard_, KindName(message.kind),
                        message.frame.worker, status.message())));
  }
}

void ShardProcess::OnBroken(ConnectionId connection) {
  if (connection != control_) model_->OnStreamGone(static_cast<uint64_t>(connection));
}

absl::Status ShardProcess::Read(const Frame& pull, const Take& take) {
  take_ = &take;
  const absl::Status status = model_->OnFrame(kReader, pull, {});
  take_ = nullptr;
  return status;
}

absl::Status ShardProcess::Restore(const Frame& frame, Content content) {
  return model_->OnFrame(kReader, frame, std::move(content));
}

void ShardProcess::Send(ConnectionId stream, const Frame& frame, Content content) {
  SimMessage message;
  message.kind = SimMessage::Kind::kParameters;
  message.bytes = BytesOf(content, setting_.blocks->pull_bytes[frame.block]);
  message.frame = frame;
  message.content = std::move(content);
  setting_.network->Send(stream, self_, std::move(message));
}

void ShardProcess::Tell(proto::PeerMessage message) {
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
