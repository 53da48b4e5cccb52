#include "common/wire/shard_streams.h"

#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "common/wire/channel.h"
#include "common/wire/event_queue.h"
#include "common/wire/shared_link.h"
#include "common/wire/shared_segment.h"

namespace rubato {

// One call. Its operations end on the completion-queue thread, each with a tag that points to what
// runs then.
class ShardStreams::Stream {
 public:
  using Tag = std::function<void(bool ok)>;

  Stream(int shard, const std::string& address, const std::string& job_digest,
         const Callbacks* callbacks, grpc::CompletionQueue* queue, bool share_memory,
         std::shared_ptr<const SharedArena> arena)
      : shard_(shard),
        address_(address),
        callbacks_(callbacks),
        stub_(MakeChannel(address)),
        arena_(std::move(arena)) {
    started_ = [this](bool ok) { OnStarted(ok); };
    answered_ = [this](bool ok) { OnAnswered(ok); };
    read_ = [this](bool ok) { OnRead(ok); };
    written_ = [this](bool ok) { OnWritten(ok); };
    finished_ = [this](bool) { OnFinished(); };
    context_.AddMetadata(kJobDigestKey, job_digest);
    if (share_memory) {
      absl::StatusOr<std::unique_ptr<SharedSegment>> segment = SharedSegment::Create();
      if (segment.ok()) {
        segment_ = *std::move(segment);
        if (arena_ != nullptr) segment_->Lend(*arena_);
        context_.AddMetadata(kSharedMemoryKey, segment_->Offer());
      } else if (callbacks_->on_shared) {
        callbacks_->on_shared(shard_, segment.status());
      }
    }
    call_ = stub_.PrepareCall(&context_, kDataMethod, queue);
    call_->StartCall(&started_);
  }

  void Send(const Frame& frame, const Payload& payload) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    if (linked_ && !broken_) {
      link_->Send(frame, payload);
    } else {
      outbox_.Push(frame, payload);
      WriteNext();
    }
  }

  void BeginBatch() ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    ++batches_;
  }

  void EndBatch() ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    --batches_;
    WriteNext();
  }

  // Breaks the call; no failure is reported from here on.
  void Cancel() ABSL_LOCKS_EXCLUDED(mutex_) {
    {
      absl::MutexLock lock(&mutex_);
      closing_ = true;
      outbox_.Clear();
    }
    context_.TryCancel();
  }

  // Until no operation is outstanding and none will begin.
  void AwaitEnd() { ended_.WaitForNotification(); }

 private:
  void WriteNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (!ready_ || broken_ || writing_ || outbox_.empty()) return;
    if (batches_ > 0 && outbox_.bytes() < kMessageBytes) return;
    writing_ = true;
    call_->Write(TakeMessage(&outbox_), &written_);
  }

  void OnStarted(bool ok) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    if (!ok) {
      Break();
      return;
    }
    reading_ = true;
    if (segment_ != nullptr) {
      call_->ReadInitialMetadata(&answered_);
    } else {
      Begin();
    }
  }

  // To the offer of shared memory.
  void OnAnswered(bool ok) ABSL_LOCKS_EXCLUDED(mutex_) {
    std::string refusal;
    absl::Status borrowing;
    {
      absl::MutexLock lock(&mutex_);
      if (!ok || closing_) {
        reading_ = false;
        Break();
        return;
      }
      const auto& metadata = context_.GetServerInitialMetadata();
      const auto answer = metadata.find(kSharedMemoryKey);
      refusal = answer == metadata.end()
                    ? "the server has not answered"
                    : std::string(answer->second.data(), answer->second.size());
      if (refusal == kSharedMemoryTaken) {
        refusal.clear();
        Link();
        borrowing = link_->borrowing();
      }
      segment_ = nullptr;
      Begin();
    }
    if (callbacks_->on_copied && !borrowing.ok()) callbacks_->on_copied(shard_, borrowing);
    if (callbacks_->on_shared == nullptr) return;
    const absl::Status status =
        refusal.empty() ? absl::OkStatus() : absl::UnavailableError(refusal);
    if (!SharedSegment::IsFromAnotherHost(status)) callbacks_->on_shared(shard_, status);
  }

  // From here on the call itself only tells whether the shard lives.
  void Link() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    SharedLink::Callbacks callbacks;
    callbacks.on_frame = [this](const Frame& frame, const ReceivedValues& values) {
      callbacks_->on_frame(shard_, frame, values);
      return absl::OkStatus();
    };
    callbacks.on_end = [this](const absl::Status& status) {
      absl::MutexLock lock(&mutex_);
      linked_ = false;
      if (!status.ok()) {
        parse_error_ = status;
        context_.TryCancel();
      }
      Break();
    };
    linked_ = true;
    link_ = std::make_unique<SharedLink>(std::move(segment_), arena_,
                                         std::numeric_limits<size_t>::max(), std::move(callbacks));
    while (!outbox_.empty()) {
      const OutgoingFrame outgoing = outbox_.PopFront();
      link_->Send(outgoing.frame, outgoing.payload);
    }
  }

  void Begin() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    ready_ = true;
    call_->Read(&incoming_, &read_);
    WriteNext();
  }

  void OnRead(bool ok) ABSL_LOCKS_EXCLUDED(mutex_) {
    if (ok) {
      BeginBatch();
      const absl::Status status =
          ReadMessage(incoming_, [this](const Frame& frame, const ReceivedValues& values) {
            callbacks_->on_frame(shard_, frame, values);
            return absl::OkStatus();
          });
      incoming_.Clear();
      EndBatch();
      absl::MutexLock lock(&mutex_);
      if (status.ok()) {
        call_->Read(&incoming_, &read_);
        return;
      }
      parse_error_ = status;
      context_.TryCancel();
    }
    absl::MutexLock lock(&mutex_);
    reading_ = false;
    Break();
  }

  void OnWritten(bool ok) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    writing_ = false;
    if (!ok) broken_ = true;
    if (broken_) {
      Break();
    } else {
      WriteNext();
    }
  }

  // Finishes the call once no other operation is outstanding.
  void Break() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    broken_ = true;
    if (linked_) link_->Stop();
    if (reading_ || writing_ || finishing_ || linked_) return;
    finishing_ = true;
    call_->Finish(&status_, &finished_);
  }

  void OnFinished() ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::Status status;
    bool report;
    {
      absl::MutexLock lock(&mutex_);
      report = !closing_;
      status = parse_error_.ok() ? FromGrpc(status_) : parse_error_;
    }
    if (status.ok()) status = absl::UnavailableError("the stream was closed");
    if (report) {
      callbacks_->on_failure(
          shard_, absl::Status(status.code(), absl::StrCat("shard ", shard_, " at ", address_, ": ",
                                                           status.message())));
    }
    ended_.Notify();
  }

  const int shard_;
  const std::string address_;
  const Callbacks* const callbacks_;
  grpc::GenericStub stub_;
  const std::shared_ptr<const SharedArena> arena_;  // may be null
  grpc::ClientContext context_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call_;
  Tag started_, answered_, read_, written_, finished_;
  grpc::ByteBuffer incoming_;  // of the outstanding read
  grpc::Status status_;        // of the outstanding finish

  absl::Mutex mutex_;
  Outbox outbox_ ABSL_GUARDED_BY(mutex_);
  int batches_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status parse_error_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<SharedSegment> segment_ ABSL_GUARDED_BY(mutex_);  // on offer
  bool ready_ ABSL_GUARDED_BY(mutex_) = false;
  bool linked_ ABSL_GUARDED_BY(mutex_) = false;  // link_ has not ended
  bool reading_ ABSL_GUARDED_BY(mutex_) = false;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool broken_ ABSL_GUARDED_BY(mutex_) = false;
  bool finishing_ ABSL_GUARDED_BY(mutex_) = false;
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Notification ended_;
  std::unique_ptr<SharedLink> link_;  // last: its thread uses all of the above
};

ShardStreams::ShardStreams(const std::vector<std::string>& addresses, const std::string& job_digest,
                           Callbacks callbacks, bool share_memory,
                           std::shared_ptr<const SharedArena> arena)
    : callbacks_(std::move(callbacks)) {
  for (size_t shard = 0; shard < addresses.size(); ++shard) {
    streams_.push_back(std::make_unique<Stream>(static_cast<int>(shard), addresses[shard],
                                                job_digest, &callbacks_, &queue_, share_memory,
                                                arena));
  }
  thread_ = std::thread([this] { Run(); });
}

ShardStreams::~ShardStreams() {
  for (const auto& stream : streams_) stream->Cancel();
  for (const auto& stream : streams_)
    stream->AwaitEnd();  // a shut-down queue takes no new operation
  queue_.Shutdown();
  thread_.join();
}

void ShardStreams::Send(int shard, const Frame& frame, const Payload& payload) {
  streams_[shard]->Send(frame, payload);
}

ShardStreams::Batch::Batch(ShardStreams* streams) : streams_(streams) {
  if (streams_ == nullptr) return;
  for (const auto& stream : streams_->streams_) stream->BeginBatch();
}

ShardStreams::Batch::~Batch() {
  if (streams_ == nullptr) return;
  for (const auto& stream : streams_->streams_) stream->EndBatch();
}

void ShardStreams::Run() {
  void* tag;
  bool ok;
  LookRule rule;
  while (NextEvent(&queue_, &rule, &tag, &ok)) (*static_cast<Stream::Tag*>(tag))(ok);
}

}  // namespace rubato
