#include "server/process/data_service.h"

#include <grpcpp/alarm.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/wire/channel.h"
#include "common/wire/event_queue.h"
#include "common/wire/shared_link.h"
#include "common/wire/shared_segment.h"

namespace rubato {
namespace {

// Bytes of answers to one peer that may wait; above, it is not heard.
constexpr size_t kMostWaiting = 4 << 20;

}  // namespace

// One call. All of it runs while the service's mutex is held. It waits for a peer, then has one
// read outstanding and writes its outbox in order; it ends when the peer is gone or has sent
// nonsense, and is removed when no operation is left. With shared memory the frames go through
// that, and the read only tells whether the peer lives.
class DataService::Stream {
 public:
  Stream(uint64_t id, DataService* service) : id_(id), service_(service), call_(&context_) {
    accepted_ = [this](bool ok) { OnAccepted(ok); };
    greeted_ = [this](bool ok) {
      greeting_ = false;
      OnWritten(ok);
    };
    read_ = [this](bool ok) { OnRead(ok); };
    written_ = [this](bool ok) { OnWritten(ok); };
    finished_ = [this](bool) {
      service_->mutex_.AssertHeld();
      finished_call_ = true;
      MaybeRemove();
    };
    service_->service_.RequestCall(&context_, &call_, service_->queue_.get(),
                                   service_->queue_.get(), &accepted_);
  }

  void Send(const Frame& frame, const Payload& payload) {
    if (ended_) return;
    if (link_ != nullptr) {
      link_->Send(frame, payload);
      return;
    }
    service_->mutex_.AssertHeld();
    if (outbox_.empty()) service_->to_write_.push_back(id_);
    outbox_.Push(frame, payload);
  }

  void WriteNext() {
    if (ended_ || writing_ || outbox_.empty()) return;
    writing_ = true;
    call_.Write(TakeMessage(&outbox_), &written_);
  }

 private:
  void OnAccepted(bool ok) {
    service_->mutex_.AssertHeld();
    if (!ok) {  // the server is shutting down
      service_->Remove(id_);
      return;
    }
    service_->Accept();
    if (context_.method() != kDataMethod) {
      End(grpc::Status(grpc::StatusCode::UNIMPLEMENTED,
                       absl::StrCat("no method ", context_.method())));
      return;
    }
    const auto& metadata = context_.client_metadata();
    const auto digest = metadata.find(kJobDigestKey);
    if (digest == metadata.end() ||
        absl::string_view(digest->second.data(), digest->second.size()) != service_->job_digest_) {
      End(grpc::Status(grpc::StatusCode::FAILED_PRECONDITION,
                       "this server runs another job: the digests of the job differ"));
      return;
    }
    const auto offer = metadata.find(kSharedMemoryKey);
    if (offer != metadata.end()) {
      Link(absl::string_view(offer->second.data(), offer->second.size()));
    }
    ReadNext();
  }

  // Takes the offer of shared memory, or says why not.
  void Link(absl::string_view offer) {
    absl::StatusOr<std::unique_ptr<SharedSegment>> segment =
        absl::UnavailableError("wire.shared_memory is off at the server");
    if (service_->share_memory_) segment = SharedSegment::Open(offer);
    if (segment.ok()) {
      SharedLink::Callbacks callbacks;
      callbacks.on_frame = [this](const Frame& frame, const ReceivedValues& values) {
        absl::MutexLock lock(&service_->mutex_);
        absl::Status status = ended_ ? absl::OkStatus() : OnFrame(frame, values);
        service_->WriteOutboxes();
        return status;
      };
      callbacks.on_end = [service = service_, id = id_](const absl::Status& status) {
        service->Post([service, id, status] {
          service->mutex_.AssertHeld();
          service->streams_.at(id)->OnLinkEnded(status);
        });
      };
      if (service_->arena_ != nullptr) (*segment)->Lend(*service_->arena_);
      linked_ = was_linked_ = true;
      link_ = std::make_unique<SharedLink>(*std::move(segment), service_->arena_, kMostWaiting,
                                           std::move(callbacks));
      if (!link_->borrowing().ok()) {
        service_->log_->Warning("copies the gradients of a worker of this host",
                                {{"reason", link_->borrowing().message()}});
      }
    }
    context_.AddInitialMetadata(kSharedMemoryKey, segment.ok()
                                                      ? std::string(kSharedMemoryTaken)
                                                      : std::string(segment.status().message()));
    writing_ = greeting_ = true;
    call_.SendInitialMetadata(&greeted_);
  }

  void OnLinkEnded(const absl::Status& status) {
    linked_ = false;
    status.ok() ? MaybeFinish() : Fail(status);
    link_ = nullptr;  // and its memory: its thread is returning
  }

  absl::Status OnFrame(const Frame& frame, const ReceivedValues& values) {
    return service_->handle_(shard_event::Arrival{id_, frame, values});
  }

  // The peer is to blame.
  void Fail(const absl::Status& status) {
    service_->log_->Warning("a data stream ends: its peer sent what no worker sends",
                            {{"peer", context_.peer()}, {"reason", status.message()}});
    End(ToGrpc(status));
  }

  void OnRead(bool ok) {
    service_->mutex_.AssertHeld();
    reading_ = false;
    if (finishing_) {
      MaybeRemove();
      return;
    }
    if (!ok) {
      End(grpc::Status::OK);
      return;
    }
    const absl::Status status =
        ReadMessage(incoming_, [this](const Frame& frame, const ReceivedValues& values) {
          return OnFrame(frame, values);
        });
    incoming_.Clear();
    if (!status.ok()) {
      Fail(status);
      return;
    }
    // Before the next read: so HTTP/2's window update goes with the answers instead of ahead of
    // them, in a packet of its own.
    service_->WriteOutboxes();
    ReadNext();
  }

  void OnWritten(bool ok) {
    writing_ = false;
    if (!ok) ended_ = true;  // the read fails as well, and ends the stream
    if (!ok && !reading_) {
      End(grpc::Status::OK);
    } else if (ended_) {
      MaybeFinish();
    } else {
      WriteNext();
      ReadNext();
    }
  }

  // A peer that does not take its answers is not heard either: so what waits for it is bounded.
  void ReadNext() {
    if (ended_ || reading_ || outbox_.bytes() > kMostWaiting) return;
    reading_ = true;
    call_.Read(&incoming_, &read_);
  }

  void End(grpc::Status status) {
    if (!has_status_) status_ = std::move(status);
    has_status_ = true;
    ended_ = true;
    outbox_.Clear();
    // A stalled peer may never let a write of floats end.
    if (writing_ && !greeting_) context_.TryCancel();
    if (linked_) link_->Stop();
    MaybeFinish();
  }

  // A read that is outstanding ends with the call: the peer of a link says nothing there.
  void MaybeFinish() {
    if (!has_status_ || writing_ || (reading_ && !was_linked_) || linked_ || finishing_) return;
    finishing_ = true;
    service_->handle_(shard_event::StreamGone{id_}).IgnoreError();
    call_.Finish(status_, &finished_);
  }

  void MaybeRemove() {
    service_->mutex_.AssertHeld();
    if (finished_call_ && !reading_) service_->Remove(id_);
  }

  const uint64_t id_;
  DataService* const service_;
  grpc::GenericServerContext context_;
  grpc::GenericServerAsyncReaderWriter call_;
  Tag accepted_, greeted_, read_, written_, finished_;
  grpc::ByteBuffer incoming_;
  Outbox outbox_;
  grpc::Status status_;
  bool has_status_ = false;
  bool reading_ = false;
  bool writing_ = false;
  bool greeting_ = false;  // what is being written are the first words
  bool ended_ = false;
  bool finishing_ = false;
  bool finished_call_ = false;
  bool linked_ = false;  // link_ has not ended
  bool was_linked_ = false;
  std::unique_ptr<SharedLink> link_;  // last: its thread uses all of the above
};

struct DataService::TaskDue {
  Tag tag;
  grpc::Alarm alarm;
};

DataService::DataService(std::string job_digest, bool share_memory, const Log* log,
                         std::shared_ptr<const SharedArena> arena)
    : job_digest_(std::move(job_digest)),
      share_memory_(share_memory),
      log_(log),
      arena_(std::move(arena)) {}

DataService::~DataService() { Stop(); }

void DataService::Stop() {
  if (queue_ == nullptr || stopped_) return;
  stopped_ = true;
  if (thread_.joinable()) {
    // A queue that is shut down takes no new operation, so the streams must have ended before.
    absl::Notification empty;
    Post([this, &empty] {
      mutex_.AssertHeld();
      when_empty_ = &empty;
      if (streams_.empty()) empty.Notify();
    });
    empty.WaitForNotification();
    {
      absl::MutexLock lock(&post_mutex_);
      closed_ = true;
    }
    queue_->Shutdown();
    thread_.join();
  } else {
    {
      absl::MutexLock lock(&post_mutex_);
      closed_ = true;
    }
    queue_->Shutdown();
    void* tag;
    bool ok;
    while (queue_->Next(&tag, &ok)) {
    }
  }
}

void DataService::Register(grpc::ServerBuilder* builder) {
  builder->RegisterAsyncGenericService(&service_);
  queue_ = builder->AddCompletionQueue();
}

void DataService::Start(Handler handle) {
  handle_ = std::move(handle);
  {
    absl::MutexLock lock(&mutex_);
    Accept();
  }
  thread_ = std::thread([this] { Run(); });
}

void DataService::Accept() {
  const uint64_t id = ++last_stream_;
  streams_[id] = std::make_unique<Stream>(id, this);
}

// Alarms may end in another order than they were set in, even by one thread: each says only that
// the next task is due.
void DataService::Post(std::function<void()> task) {
  auto* due = new TaskDue;
  due->tag = [this, due](bool ok) {
    std::function<void()> next;
    {
      absl::MutexLock lock(&post_mutex_);  // until Set has returned in the other thread
      next = std::move(posted_.front());
      posted_.pop_front();
    }
    const std::unique_ptr<TaskDue> owner(due);  // and of this function
    if (ok) next();
  };
  absl::MutexLock lock(&post_mutex_);
  if (closed_) {
    delete due;
    return;
  }
  posted_.push_back(std::move(task));
  due->alarm.Set(queue_.get(), gpr_inf_past(GPR_CLOCK_MONOTONIC), &due->tag);
}

void DataService::Send(uint64_t stream, const Frame& frame, const Payload& payload) {
  mutex_.AssertHeld();
  const auto it = streams_.find(stream);
  if (it != streams_.end()) it->second->Send(frame, payload);
}

void DataService::WriteOutboxes() {
  for (const uint64_t stream : to_write_) {
    const auto it = streams_.find(stream);
    if (it != streams_.end()) it->second->WriteNext();
  }
  to_write_.clear();
}

void DataService::Remove(uint64_t stream) {
  const auto it = streams_.find(stream);
  removed_ = std::move(it->second);  // not destroyed here: one of its functions is running
  streams_.erase(it);
  if (when_empty_ != nullptr && streams_.empty()) when_empty_->Notify();
}

void DataService::Run() {
  void* tag;
  bool ok;
  LookRule rule;
  while (NextEvent(queue_.get(), &rule, &tag, &ok)) {
    absl::MutexLock lock(&mutex_);
    (*static_cast<Tag*>(tag))(ok);
    WriteOutboxes();
  }
}

}  // namespace rubato
