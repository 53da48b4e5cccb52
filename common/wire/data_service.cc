#include "common/wire/data_service.h"

#include <grpcpp/alarm.h>
#include <pthread.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/monotonic.h"
#include "common/base/status.h"
#include "common/wire/channel.h"
#include "common/wire/data_stream.h"
#include "common/wire/event_queue.h"
#include "common/wire/shared_segment.h"
#include "common/wire/stream_opening.h"

namespace rubato {
namespace {

// Bytes of answers to one peer that may wait; above, it is not read.
constexpr size_t kMaxWaiting = 4 << 20;

// Of a full message 64 KiB are sent before it is read. gRPC announces room for the rest at once.
static_assert(kFullMessageBytes - (64 << 10) > kWindowBytes / 2);

}  // namespace

// One call: waits for a peer, and is removed when no operation of it is left.
class DataService::Stream : public DataStream {
 public:
  Stream(uint64_t id, DataService* service)
      : DataStream(StreamCore::Side::kServer, kMaxWaiting, service->arena_),
        id_(id),
        service_(service),
        call_(&context_),
        limit_(service->limit_) {
    accepted_ = [this](bool ok) { OnAccepted(ok); };
    greeted_ = [this](bool) { Opened(); };  // if not `ok`, the first read ends the stream
    service_->service_.RequestCall(&context_, &call_, service_->queue_.get(),
                                   service_->queue_.get(), &accepted_);
  }

  // Guarded by the service's mutex: something has been sent in the event at hand.
  bool is_held = false;

 private:
  void OnAccepted(bool ok) {
    if (!ok) {  // the server is shutting down
      service_->Remove(id_);
      return;
    }
    service_->Accept();
    if (const absl::Status status = Check(); !status.ok()) {
      service_->refusals_->Add(context_.peer(), status, MonotonicNow());
      OpenFailed(status);
      return;
    }
    has_peer_ = true;
    if (service_->connections_ != nullptr) {
      has_read_ = service_->connections_->OnKnown(context_.peer());
    }
    if (const auto offer = Find(kSharedMemoryKey); offer.has_value()) {
      context_.AddInitialMetadata(kSharedMemoryKey, AnswerToOffer(Take(*offer)));
    }
    call_.SendInitialMetadata(&greeted_);  // the peer waits for it
  }

  // Who calls, before what for.
  absl::Status Check() const {
    RUBATO_ASSIGN_OR_RETURN(const Role role,
                            service_->credentials_.CheckCaller(context_, context_.method()));
    if (role != Role::kWorker && role != Role::kServer) {
      return absl::PermissionDeniedError(
          absl::StrCat("the caller is the job's ", RoleName(role), ": it opens no stream of data"));
    }
    return CheckOpening(context_.method(), Find(kJobDigestKey), Find(kTermKey),
                        StreamScope{service_->job_digest_, service_->term_});
  }

  std::optional<absl::string_view> Find(const char* key) const {
    const auto found = context_.client_metadata().find(key);
    if (found == context_.client_metadata().end()) return std::nullopt;
    return absl::string_view(found->second.data(), found->second.size());
  }

  // The offer of shared memory.
  absl::Status Take(absl::string_view offer) {
    if (!service_->share_memory_) {
      return absl::UnavailableError("wire.shared_memory is off at the server");
    }
    RUBATO_ASSIGN_OR_RETURN(std::unique_ptr<SharedSegment> segment, SharedSegment::Open(offer));
    if (arena_ != nullptr) segment->Lend(*arena_);
    if (const absl::Status borrowing = Link(std::move(segment)); !borrowing.ok()) {
      service_->log_->Warning("copies the gradients of a worker of this host",
                              {{"reason", borrowing.message()}});
    }
    return absl::OkStatus();
  }

  void StartRead(grpc::ByteBuffer* message, Tag* tag) override {
    const absl::Duration wait = limit_.Wait(MonotonicNow());
    if (wait == absl::ZeroDuration()) {
      call_.Read(message, tag);
      return;
    }
    may_read_ = [this, message, tag](bool) {
      if (ended()) {
        (*tag)(false);
      } else {
        call_.Read(message, tag);
      }
    };
    until_read_.Set(service_->queue_.get(), DeadlineIn(wait), &may_read_);
  }
  void StartWrite(const grpc::ByteBuffer& message, Tag* tag) override { call_.Write(message, tag); }
  void StartFinish(const absl::Status& status, Tag* tag) override {
    if (has_peer_ && !status.ok()) {
      service_->refusals_->Add(context_.peer(), status, MonotonicNow());
    }
    until_read_.Cancel();
    call_.Finish(ToGrpc(status), tag);
  }
  void Cancel() override {
    context_.TryCancel();
    until_read_.Cancel();
  }

  absl::Status OnFrame(const Frame& frame, const ReceivedValues& values) override {
    absl::MutexLock lock(&service_->mutex_);
    return service_->callbacks_.on_frame(id_, frame, values);
  }
  void OnMessageEnd() override {
    if (has_read_ != nullptr) *has_read_ = true;
    absl::MutexLock lock(&service_->mutex_);
    service_->ReleaseHeld();
  }
  void OnGone(const absl::Status&) override {
    if (has_peer_) {
      absl::MutexLock lock(&service_->mutex_);
      service_->callbacks_.on_gone(id_);
      service_->ReleaseHeld();
    }
    service_->Remove(id_);
  }

  const uint64_t id_;
  DataService* const service_;
  grpc::GenericServerContext context_;
  grpc::GenericServerAsyncReaderWriter call_;
  RateLimit limit_;
  grpc::Alarm until_read_;
  Tag accepted_, greeted_, may_read_;
  Connections::HasRead has_read_;  // null if nobody looks
  bool has_peer_ = false;          // of this job
};

struct DataService::TaskDue {
  Tag tag;
  grpc::Alarm alarm;
};

DataService::DataService(std::string job_digest, bool share_memory, const Log* log,
                         std::shared_ptr<const SharedArena> arena,
                         const ConnectionOptions& connection, const RateLimit& limit)
    : job_digest_(std::move(job_digest)),
      share_memory_(share_memory),
      log_(log),
      arena_(std::move(arena)),
      credentials_(connection.credentials),
      connections_(connection.connections),
      refusals_(connection.refusals),
      limit_(limit) {}

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
      NotifyIfEmpty();
    });
    empty.WaitForNotification();
    if (hellos_ != nullptr) hellos_->AwaitNone();
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
  if (const Gate* gate = credentials_.gate(); gate != nullptr) {
    hellos_ = std::make_unique<HelloService>(gate);
    builder->RegisterService(hellos_.get());
  }
  queue_ = builder->AddCompletionQueue();
}

void DataService::Start(Callbacks callbacks) {
  callbacks_ = std::move(callbacks);
  Accept();
  if (hellos_ != nullptr) hellos_->Start(queue_.get());
  thread_ = std::thread([this] { Run(); });
}

void DataService::Accept() {
  absl::MutexLock lock(&mutex_);
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
    if (!ok) return;
    absl::MutexLock lock(&mutex_);
    next();
    ReleaseHeld();
  };
  absl::MutexLock lock(&post_mutex_);
  if (closed_) {
    delete due;
    return;
  }
  posted_.push_back(std::move(task));
  due->alarm.Set(queue_.get(), gpr_inf_past(GPR_CLOCK_MONOTONIC), &due->tag);
}

void DataService::Ask(std::shared_ptr<void> asked) {
  Post([this, asked = std::move(asked)] {
    mutex_.AssertHeld();
    for (const auto& [id, stream] : streams_) stream->Ask(asked);
  });
}

void DataService::Send(uint64_t stream, const Frame& frame, const Payload& payload) {
  mutex_.AssertHeld();
  const auto it = streams_.find(stream);
  if (it == streams_.end()) return;
  if (!it->second->is_held) {
    it->second->is_held = true;
    it->second->Hold();
    held_.push_back(stream);
  }
  it->second->Send(frame, payload);
}

void DataService::ReleaseHeld() {
  for (const uint64_t stream : held_) {
    const auto it = streams_.find(stream);
    if (it == streams_.end()) continue;
    it->second->is_held = false;
    it->second->Release();
  }
  held_.clear();
}

void DataService::Remove(uint64_t stream) {
  absl::MutexLock lock(&mutex_);
  const auto it = streams_.find(stream);
  removed_ = std::move(it->second);  // not destroyed here: one of its functions is running
  streams_.erase(it);
  NotifyIfEmpty();
}

void DataService::NotifyIfEmpty() {
  if (when_empty_ == nullptr || !streams_.empty()) return;
  std::exchange(when_empty_, nullptr)->Notify();
}

void DataService::Run() {
  pthread_setname_np(pthread_self(), "engine");
  void* tag;
  bool ok;
  SpinRule rule;
  while (NextEvent(queue_.get(), &rule, &tag, &ok)) {
    (*static_cast<Tag*>(tag))(ok);
    const std::unique_ptr<Stream> removed = std::move(removed_);
  }
}

}  // namespace rubato
