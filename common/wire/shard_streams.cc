#include "common/wire/shard_streams.h"

#include <grpcpp/generic/generic_stub.h>

#include <atomic>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "common/wire/channel.h"
#include "common/wire/data_stream.h"
#include "common/wire/event_queue.h"
#include "common/wire/shared_segment.h"
#include "common/wire/stream_opening.h"

namespace rubato {

class ShardStreams::Stream : public DataStream {
 public:
  Stream(int shard, const std::string& address, const StreamScope& scope,
         const Callbacks* callbacks, grpc::CompletionQueue* queue, bool share_memory,
         std::shared_ptr<const SharedArena> arena, const ConnectionOptions& connection)
      // A worker waits for all parameters before it pushes on, so what waits here is bounded.
      : DataStream(StreamCore::Side::kWorker, std::numeric_limits<size_t>::max(), std::move(arena)),
        shard_(shard),
        address_(address),
        callbacks_(callbacks),
        stub_(MakeChannel(address, connection)) {
    started_ = [this](bool ok) { OnStarted(ok); };
    answered_ = [this](bool ok) { OnAnswered(ok); };
    context_.AddMetadata(kJobDigestKey, scope.job_digest);
    if (scope.term > 0) context_.AddMetadata(kTermKey, absl::StrCat(scope.term));
    if (share_memory) Offer();
    call_ = stub_.PrepareCall(&context_, kDataMethod, queue);
    call_->StartCall(&started_);
  }

  // Breaks the call; no failure is reported from here on.
  void Close() {
    closing_ = true;
    End(absl::OkStatus());
  }

  // Until no operation is outstanding and none will begin.
  void AwaitEnd() { gone_.WaitForNotification(); }

 private:
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
    } else if (offered_ != nullptr) {
      call_->ReadInitialMetadata(&answered_);
    } else {
      Opened();
    }
  }

  void OnAnswered(bool ok) {
    if (!ok || ended()) {
      OpenFailed(absl::OkStatus());
      return;
    }
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
  void StartFinish(const absl::Status&, Tag* tag) override { call_->Finish(&status_, tag); }
  void Cancel() override { context_.TryCancel(); }

  absl::Status OnFrame(const Frame& frame, const ReceivedValues& values) override {
    callbacks_->on_frame(shard_, frame, values);
    return absl::OkStatus();
  }

  void OnGone(const absl::Status& own) override {
    absl::Status status = own.ok() ? FromGrpc(status_) : own;
    if (status.ok()) status = absl::UnavailableError("the stream was closed");
    if (!closing_) {
      callbacks_->on_failure(
          shard_, absl::Status(status.code(), absl::StrCat("shard ", shard_, " at ", address_, ": ",
                                                           status.message())));
    }
    gone_.Notify();
  }

  const int shard_;
  const std::string address_;
  const Callbacks* const callbacks_;
  grpc::GenericStub stub_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call_;
  Tag started_, answered_;
  grpc::Status status_;                     // of the outstanding finish
  std::unique_ptr<SharedSegment> offered_;  // until it is answered
  std::atomic<bool> closing_{false};
  absl::Notification gone_;
};

ShardStreams::ShardStreams(const std::vector<std::string>& addresses, const StreamScope& scope,
                           const ConnectionOptions& connection, Callbacks callbacks,
                           bool share_memory, std::shared_ptr<const SharedArena> arena,
                           int first_shard)
    : callbacks_(std::move(callbacks)), first_shard_(first_shard) {
  for (const std::string& address : addresses) {
    const int shard = first_shard + static_cast<int>(streams_.size());
    streams_.push_back(std::make_unique<Stream>(shard, address, scope, &callbacks_, &queue_,
                                                share_memory, arena, connection));
  }
  thread_ = std::thread([this] { Run(); });
}

ShardStreams::~ShardStreams() {
  for (const auto& stream : streams_) stream->Close();
  for (const auto& stream : streams_)
    stream->AwaitEnd();  // a shut-down queue takes no new operation
  queue_.Shutdown();
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
  while (NextEvent(&queue_, &rule, &tag, &ok)) (*static_cast<DataStream::Tag*>(tag))(ok);
}

}  // namespace rubato
