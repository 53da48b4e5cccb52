#include "common/wire/shard_streams.h"

#include <grpcpp/alarm.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <atomic>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "common/wire/channel.h"
#include "common/wire/data_stream.h"
#include "common/wire/event_queue.h"
#include "common/wire/hello.h"
#include "common/wire/shared_segment.h"
#include "common/wire/stream_opening.h"

namespace rubato {

class ShardStreams::Stream : public DataStream {
 public:
  Stream(int shard, const std::string& address, const StreamScope& scope,
         const Callbacks* callbacks, grpc::CompletionQueue* queue, bool share_memory,
         std::shared_ptr<const SharedArena> arena, bool hands_over,
         const ConnectionOptions& connection)
      // A worker waits for all parameters before it pushes on, so what waits here is bounded.
      : DataStream(StreamCore::Side::kWorker, std::numeric_limits<size_t>::max(), std::move(arena),
                   hands_over),
        shard_(shard),
        address_(address),
        callbacks_(callbacks),
        channel_(MakeChannel(address, connection)),
        stub_(channel_),
        queue_(queue),
        scope_(scope),
        share_memory_(share_memory),
        caller_(connection.credentials.NewCaller()) {
    welcomed_ = [this](bool) { OnWelcomed(); };
    started_ = [this](bool ok) { OnStarted(ok); };
    answered_ = [this](bool ok) { OnAnswered(ok); };
    if (caller_.has_value()) {
      SayHello();
    } else {
      Call();
    }
  }

  // Breaks the call; no failure is reported from here on.
  void Close() {
    closing_ = true;
    End(absl::OkStatus());
  }

  // Until no operation is outstanding and none will begin.
  void AwaitEnd() { gone_.WaitForNotification(); }

 private:
  void SayHello() {
    proto::HelloRequest request;
    request.set_hello(caller_->Hello());
    hello_ = proto::Authentication::NewStub(channel_)->AsyncHello(&hello_context_, request, queue_);
    hello_->Finish(&welcome_, &status_, &welcomed_);
  }

  // Before the server has shown that it holds the key, it is told nothing.
  void OnWelcomed() {
    absl::Status status = OnHelloAnswered(status_, welcome_, &*caller_);
    if (ended() && status.ok()) status = absl::CancelledError("the stream was closed");
    if (status.ok()) {
      context_.AddMetadata(kCallerKey, caller_->Show(kDataMethod));
      Call();
    } else {
      status_ =
          grpc::Status(static_cast<grpc::StatusCode>(status.code()), std::string(status.message()));
      OpenFailed(absl::OkStatus());
    }
  }

  void Call() {
    context_.AddMetadata(kJobDigestKey, scope_.job_digest);
    if (scope_.term > 0) context_.AddMetadata(kTermKey, absl::StrCat(scope_.term));
    if (share_memory_) Offer();
    call_ = stub_.PrepareCall(&context_, kDataMethod, queue_);
    call_->StartCall(&started_);
  }

  void Offer() {
    absl::StatusOr<std::unique_ptr<SharedSegment>> segment = SharedSegment::Create();
    if (segment.ok()) {
      offered_ = *std::move(segment);
      if (arena_ != nullptr) offered_->Lend(*arena_);
      context_.AddMetadata(kSharedMemoryKey, offered_->Offer());
    } else if (callbacks_->on_shared) {
      callbacks_->on_shared(shard_, segment.status());
    }
  }

  void OnStarted(bool ok) {
    if (!ok) {
      OpenFailed(absl::OkStatus());  // the call's own status tells
    } else {  // to a server that does not know yet who calls nothing long is sent (connections.h)
      call_->ReadInitialMetadata(&answered_);
    }
  }

  void OnAnswered(bool ok) {
    if (!ok || ended()) {
      OpenFailed(absl::OkStatus());
    } else if (offered_ == nullptr) {
      Opened();
    } else {
      OnOfferAnswered();
    }
  }

  void OnOfferAnswered() {
    const auto& metadata = context_.GetServerInitialMetadata();
    const auto answer = metadata.find(kSharedMemoryKey);
    const absl::Status shared = ReadAnswer(
        answer == metadata.end()
            ? std::nullopt
            : std::make_optional(absl::string_view(answer->second.data(), answer->second.size())));
    absl::Status borrowing;
    if (shared.ok()) borrowing = Link(std::move(offered_));
    offered_ = nullptr;
    Opened();
    if (callbacks_->on_copied && !borrowing.ok()) callbacks_->on_copied(shard_, borrowing);
    if (callbacks_->on_shared && !SharedSegment::IsFromAnotherHost(shared)) {
      callbacks_->on_shared(shard_, shared);
    }
  }

  void StartRead(grpc::ByteBuffer* message, Tag* tag) override { call_->Read(message, tag); }
  void StartWrite(const grpc::ByteBuffer& message, Tag* tag) override {
    call_->Write(message, tag);
  }
  void StartFinish(const absl::Status&, Tag* tag) override {
    if (call_ != nullptr) {
      call_->Finish(&status_, tag);
    } else {  // it was never made
      never_called_.Set(queue_, gpr_inf_past(GPR_CLOCK_MONOTONIC), tag);
    }
  }
  void Cancel() override {
    hello_context_.TryCancel();
    context_.TryCancel();
  }

  absl::Status OnFrame(const Frame& frame, const ReceivedValues& values) override {
    callbacks_->on_frame(shard_, frame, values);
    return absl::OkStatus();
  }

  void OnGone(const absl::Status& own) override {
    absl::Status status = own.ok() ? FromGrpc(status_) : own;
    if (status.ok()) status = absl::UnavailableError("the stream was closed");
    if (!closing_) {
      // Of a server that is gone: nobody else knows another address of it.
      const bool is_reached = channel_->GetState(false) != GRPC_CHANNEL_TRANSIENT_FAILURE;
      callbacks_->on_failure(
          shard_,
          absl::Status(
              status.code(),
              absl::StrCat("shard ", shard_, is_reached ? " at " : " says that it is reached at ",
                           address_,
                           is_reached ? ": " : ", and from here it is not: ", status.message())));
    }
    gone_.Notify();
  }

  const int shard_;
  const std::string address_;
  const Callbacks* const callbacks_;
  const std::shared_ptr<grpc::Channel> channel_;
  grpc::GenericStub stub_;
  grpc::CompletionQueue* const queue_;
  const StreamScope scope_;
  const bool share_memory_;
  std::optional<Caller> caller_;  // none: nobody is shown a key
  grpc::ClientContext hello_context_;
  std::unique_ptr<grpc::ClientAsyncResponseReader<proto::HelloReply>> hello_;
  proto::HelloReply welcome_;
  grpc::Alarm never_called_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call_;
  Tag welcomed_, started_, answered_;
  grpc::Status status_;                     // of the hello, then of the outstanding finish
  std::unique_ptr<SharedSegment> offered_;  // until it is answered
  std::atomic<bool> closing_{false};
  absl::Notification gone_;
};

ShardStreams::ShardStreams(const std::vector<std::string>& addresses, const StreamScope& scope,
                           const ConnectionOptions& connection, Callbacks callbacks,
                           bool share_memory, std::shared_ptr<const SharedArena> arena,
                           int first_shard, bool hands_over)
    : callbacks_(std::move(callbacks)),
      first_shard_(first_shard),
      queue_(std::make_unique<grpc::CompletionQueue>()) {
  for (const std::string& address : addresses) {
    const int shard = first_shard + static_cast<int>(streams_.size());
    streams_.push_back(std::make_unique<Stream>(shard, address, scope, &callbacks_, queue_.get(),
                                                share_memory, arena, hands_over, connection));
  }
  thread_ = std::thread([this] { Run(); });
}

ShardStreams::~ShardStreams() {
  for (const auto& stream : streams_) stream->Close();
  for (const auto& stream : streams_)
    stream->AwaitEnd();  // a shut-down queue takes no new operation
  queue_->Shutdown();
  thread_.join();
}

void ShardStreams::Send(int shard, const Frame& frame, const Payload& payload) {
  streams_[shard - first_shard_]->Send(frame, payload);
}

ShardStreams::Batch::Batch(ShardStreams* streams) : streams_(streams) {
  if (streams_ == nullptr) return;
  for (const auto& stream : streams_->streams_) stream->Hold();
}

ShardStreams::Batch::~Batch() {
  if (streams_ == nullptr) return;
  for (const auto& stream : streams_->streams_) stream->Release();
}

void ShardStreams::Run() {
  void* tag;
  bool ok;
  SpinRule rule;
  while (NextEvent(queue_.get(), &rule, &tag, &ok)) (*static_cast<DataStream::Tag*>(tag))(ok);
}

}  // namespace rubato
