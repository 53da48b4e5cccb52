#include "server/process/part_files.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/base/boot_id.h"
#include "common/base/exit_code.h"
#include "common/base/monotonic.h"
#include "common/base/status.h"
#include "common/files/checkpoint.h"
#include "common/files/checkpoint_part.h"
#include "common/files/checkpoint_reader.h"
#include "common/job/job.h"
#include "common/space/placement.h"
#include "server/optimizers/optimizer.h"
#include "server/process/left_over_thread.h"
#include "server/process/pace.h"
#include "server/run/collect.h"

namespace rubato {
namespace {

// How often it is said that a part is still being written.
constexpr absl::Duration kBetweenWords = absl::Seconds(5);

// After so long it is looked at again what the processors do.
constexpr absl::Duration kLongestRest = absl::Milliseconds(500);

proto::PeerMessage PartMessage(uint32_t snapshot, proto::PartWritten::State state) {
  proto::PeerMessage message;
  message.mutable_part_written()->set_id(snapshot);
  message.mutable_part_written()->set_state(state);
  return message;
}

proto::PeerMessage FailedMessage(uint32_t snapshot, const absl::Status& why) {
  // Else it is this server's way to the folder that fails: shard 0 may have a better one.
  if (!absl::IsDataLoss(why) && !absl::IsResourceExhausted(why)) {
    return PartMessage(snapshot, proto::PartWritten::STATE_UNSEEN);
  }
  proto::PeerMessage message = PartMessage(snapshot, proto::PartWritten::STATE_FAILED);
  message.mutable_part_written()->set_reason(std::string(why.message()));
  return message;
}

// Of this thread alone, as nice values. What is not ready when the first snapshot comes is touched
// by training itself, for three times the time of a step: so where processors are never idle, that
// has a quarter of the time of one, once. Writing has the least that there is, from then on, where
// it is not done in left over time.
constexpr int kMakesReadyAt = 5;
constexpr int kWritesAt = 19;

// Bytes of a part, with slots, that left over time is tried for: a few milliseconds' work.
constexpr int64_t kQuicklyWritten = 4 << 20;

// After the shard has made its state. A snapshot that comes earlier does without, and a job that
// ends before then needs no memory for one.
absl::Duration TimeToPrepare(const proto::Job& job) {
  const proto::Point& every = job.checkpoint().every();
  return every.has_time() ? absl::Seconds(every.time() / 2) : absl::ZeroDuration();
}

}  // namespace

// Belongs to the thread as well, which may outlive the rest: it may wait for a disk.
class PartFiles::Worker : public std::enable_shared_from_this<Worker> {
 public:
  Worker(const proto::Job& job, int shard, Outlets outlets)
      : job_(job), shard_(shard), outlets_(std::move(outlets)) {}

  void Start() {
    std::thread([self = shared_from_this()] { self->Run(); }).detach();
  }
  void Close() {
    MonotonicLock lock(&mutex_);
    is_closed_ = true;
    wanted_ = 0;
    write_.reset();
    read_.reset();
  }
  void SetView(const proto::View& view) {
    auto copy = std::make_shared<const proto::View>(view);
    MonotonicLock lock(&mutex_);
    view_ = std::move(copy);
  }
  void Prepare() {
    MonotonicLock lock(&mutex_);
    prepare_at_ = MonotonicNow() + TimeToPrepare(job_);
  }
  void Write(const shard_outcome::WritePart& part) {
    MonotonicLock lock(&mutex_);
    if (is_closed_) return;
    write_ = {part.snapshot, part.folder, part.blocks};
    wanted_ = part.snapshot;
  }
  void Forget(uint32_t snapshot) {
    MonotonicLock lock(&mutex_);
    if (write_.has_value() && write_->snapshot == snapshot) write_.reset();
    if (wanted_ == snapshot) wanted_ = 0;
  }
  void Read(const shard_outcome::ReadPart& part) {
    MonotonicLock lock(&mutex_);
    if (is_closed_) return;
    read_ = {part.path, part.digest, part.blocks, part.slots, part.restore_key};
  }

 private:
  struct WriteTask {
    uint32_t snapshot;
    std::string folder;
    BlockCopies blocks;
  };
  struct Plan {
    std::shared_ptr<const proto::View> view;
    Placement placement;
    std::vector<std::string> slots;
  };
  struct ReadTask {
    std::string path;
    std::string digest;
    Range blocks;
    int slots;
    uint64_t restore_key;
  };

  void Run() {
    pthread_setname_np(pthread_self(), "checkpoints");
    SetPriority(kMakesReadyAt);
    while (true) {
      std::optional<WriteTask> write;
      std::optional<ReadTask> read;
      bool prepares = false;
      {
        MonotonicLock lock(&mutex_);
        const absl::Time prepare_at = prepare_at_;
        const auto wakes = [this, prepare_at]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
          return HasTask() || prepare_at_ != prepare_at;
        };
        prepares = !mutex_.AwaitUntil(absl::Condition(&wakes), prepare_at);
        if (prepares) prepare_at_ = absl::InfiniteFuture();
        if (is_closed_) break;
        write.swap(write_);
        read.swap(read_);
      }
      if (prepares) MakeReady();
      if (read.has_value()) DoRead(*read);
      if (write.has_value()) DoWrite(*std::move(write));
    }
    thread_.End();  // here, where nobody waits for that
  }

  bool HasTask() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return is_closed_ || write_.has_value() || read_.has_value();
  }
  void MakeReady() ABSL_LOCKS_EXCLUDED(mutex_) {
    if (!outlets_.prepare) return;
    outlets_.prepare([this] {
      MonotonicLock lock(&mutex_);
      return HasTask();
    });
    // What is left of it comes after the task.
    MonotonicLock lock(&mutex_);
    if (HasTask()) prepare_at_ = MonotonicNow();
  }
  void Say(const proto::PeerMessage& message) ABSL_LOCKS_EXCLUDED(mutex_) {
    MonotonicLock lock(&mutex_);
    if (!is_closed_) outlets_.say(message);
  }
  std::shared_ptr<const proto::View> view() ABSL_LOCKS_EXCLUDED(mutex_) {
    MonotonicLock lock(&mutex_);
    return view_;
  }
  bool is_closed() ABSL_LOCKS_EXCLUDED(mutex_) {
    MonotonicLock lock(&mutex_);
    return is_closed_;
  }
  bool IsWanted(uint32_t snapshot) const { return wanted_ == snapshot; }

  void RestWhileWanted(uint32_t snapshot, absl::Duration rest) ABSL_LOCKS_EXCLUDED(mutex_) {
    const auto is_over = [this, snapshot]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return is_closed_ || wanted_ != snapshot;
    };
    MonotonicLock lock(&mutex_);
    mutex_.AwaitFor(absl::Condition(&is_over), std::min(rest, kLongestRest));
  }

  void DoWrite(WriteTask task) {
    std::vector<uint32_t> checksums;
    const absl::Status status = WriteBesideTraining(task, &checksums);
    // Before the engine lets go of them. To free its memory at this thread's priority would hold it
    // up: a lock may be kept for as long as others have work.
    task.blocks.clear();
    if (absl::IsCancelled(status)) return;
    if (!status.ok()) return Say(FailedMessage(task.snapshot, status));
    proto::PeerMessage message = PartMessage(task.snapshot, proto::PartWritten::STATE_WRITTEN);
    for (const uint32_t checksum : checksums)
      message.mutable_part_written()->add_checksums(checksum);
    Say(message);
  }

  absl::Status WriteBesideTraining(const WriteTask& task, std::vector<uint32_t>* checksums) {
    RUBATO_ASSIGN_OR_RETURN(const Plan* const plan, PlanOfView());
    const int64_t bytes = plan->placement.Values(shard_).size() * (1 + plan->slots.size()) *
                          static_cast<int64_t>(sizeof(float));
    const absl::Time begin = MonotonicNow();
    if (bytes <= kQuicklyWritten && !Flushes(task) && time_.Suffices(begin)) {
      absl::Status status;
      thread_.Do(
          [&] { status = WriteFiles(task, *plan, begin + LeftOverTime::kPatience, checksums); });
      time_.OnDone(MonotonicNow(), MonotonicNow() - begin);
      if (!absl::IsDeadlineExceeded(status)) return status;
    }
    if (!std::exchange(is_nice_, true)) SetPriority(kWritesAt);
    return WriteFiles(task, *plan, absl::InfiniteFuture(), checksums);
  }

  // Whoever publishes the checkpoint flushes what this machine has in its memory. To do so here may
  // take long, and each file tells.
  bool Flushes(const WriteTask& task) const {
    return boot_id_.empty() || !absl::EndsWith(task.folder, boot_id_);
  }

  // What parts are of the view at hand. Made once for a view: for a small part it takes as long as
  // some of its files.
  absl::StatusOr<const Plan*> PlanOfView() {
    std::shared_ptr<const proto::View> view = this->view();
    if (plan_.has_value() && plan_->view == view) return &*plan_;
    RUBATO_ASSIGN_OR_RETURN(const Placement placement, Placement::Of(job_, *view));
    RUBATO_ASSIGN_OR_RETURN(
        const Optimizer optimizer,
        Optimizer::Create(ServerOptimizer(WithOptimizerOf(view->layout(), job_))));
    plan_ = {std::move(view), placement, optimizer.slots()};
    return &*plan_;
  }

  // DeadlineExceeded, without a word to anybody, if it is not done by then.
  absl::Status WriteFiles(const WriteTask& task, const Plan& plan, absl::Time deadline,
                          std::vector<uint32_t>* checksums) {
    const Placement& placement = plan.placement;
    if (!IsWanted(task.snapshot)) return absl::CancelledError("it has come too late");
    RUBATO_ASSIGN_OR_RETURN(const std::string folder, BeginParts(task.folder, task.snapshot));
    RUBATO_ASSIGN_OR_RETURN(
        CheckpointPart part,
        CheckpointPart::Create(folder, plan.view->layout(), placement.space(), plan.slots,
                               {shard_, placement.shards(), placement.Blocks(shard_)}));
    absl::Time next_word = MonotonicNow() + kBetweenWords;
    std::optional<Pace> pace;
    absl::Duration time_before;
    if (part.is_large()) {
      time_before = ThreadTime();
      pace.emplace(MonotonicNow(), ReadProcessors());
    }
    for (const auto& [block, copy] : task.blocks) {
      if (!IsWanted(task.snapshot)) return absl::CancelledError("another one is wanted");
      for (size_t vector = 0; vector < copy.values.size(); ++vector) {
        RUBATO_RETURN_IF_ERROR(part.Append(vector, copy.values[vector].values()));
      }
      if (MonotonicNow() >= deadline) return absl::DeadlineExceededError("nothing is left over");
      if (MonotonicNow() >= next_word) {
        next_word = MonotonicNow() + kBetweenWords;
        Say(PartMessage(task.snapshot, proto::PartWritten::STATE_WRITING));
      }
      if (!pace.has_value()) continue;
      const absl::Duration rest =
          pace->Rest(MonotonicNow(), ThreadTime() - time_before, [] { return ReadProcessors(); });
      if (rest > absl::ZeroDuration()) RestWhileWanted(task.snapshot, rest);
    }
    *checksums = part.checksums();
    if (!Flushes(task)) {
      return part.Finish(Flush::kNothing, [&] { return IsWanted(task.snapshot); });
    }
    return part.Finish(Flush::kContents, [&] {
      Say(PartMessage(task.snapshot, proto::PartWritten::STATE_WRITING));
      return IsWanted(task.snapshot);
    });
  }

  void DoRead(const ReadTask& task) {
    bool has_begun = false;
    const absl::Status status = ReadFiles(task, &has_begun);
    if (status.ok() || absl::IsCancelled(status)) return;
    proto::PeerMessage message;
    if (has_begun) {
      message.mutable_failure()->set_exit_code(kExitFailure);
      message.mutable_failure()->set_reason(std::string(status.message()));
    } else {
      message.mutable_shard_restored()->set_unseen(true);
    }
    Say(message);
  }

  absl::Status ReadFiles(const ReadTask& task, bool* has_begun) {
    RUBATO_ASSIGN_OR_RETURN(const proto::Manifest manifest, ReadManifest(task.path));
    if (manifest.digest() != task.digest || manifest.slots_size() < task.slots) {
      return absl::NotFoundError("another checkpoint");
    }
    const std::shared_ptr<const proto::View> view = this->view();
    RUBATO_ASSIGN_OR_RETURN(const CheckpointReader reader,
                            CheckpointReader::Open(task.path, manifest, view->layout()));
    RUBATO_ASSIGN_OR_RETURN(const Placement placement, Placement::Of(job_, *view));
    return GiveBlocks(
        placement.space(), task.blocks, 1 + task.slots, task.restore_key,
        [this] { return is_closed(); },
        [&](size_t vector, int64_t begin, absl::Span<float> out) {
          return reader.Read(vector, begin, out);
        },
        [&](const Frame& frame, const Payload& payload) {
          MonotonicLock lock(&mutex_);
          if (!is_closed_) outlets_.give(HeaderOf(frame, payload), payload);
          *has_begun = true;
        });
  }

  const proto::Job job_;
  const int shard_;
  const Outlets outlets_;
  const std::string boot_id_ = BootId();
  // Of its thread.
  std::optional<Plan> plan_;
  bool is_nice_ = false;
  LeftOverThread thread_;
  LeftOverTime time_;

  MonotonicMutex mutex_;
  bool is_closed_ ABSL_GUARDED_BY(mutex_) = false;
  std::shared_ptr<const proto::View> view_ ABSL_GUARDED_BY(mutex_) =
      std::make_shared<const proto::View>();
  absl::Time prepare_at_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();
  std::optional<WriteTask> write_ ABSL_GUARDED_BY(mutex_);
  std::optional<ReadTask> read_ ABSL_GUARDED_BY(mutex_);
  std::atomic<uint32_t> wanted_{0};  // snapshot; 0: none. Read without the lock
};

absl::StatusOr<std::unique_ptr<PartFiles>> PartFiles::Create(const proto::Job& job, int shard,
                                                             Outlets outlets) {
  RUBATO_RETURN_IF_ERROR(Optimizer::Create(ServerOptimizer(job)).status());
  auto worker = std::make_shared<Worker>(job, shard, std::move(outlets));
  worker->Start();
  return std::unique_ptr<PartFiles>(new PartFiles(std::move(worker)));
}

void PartFiles::Close() { worker_->Close(); }

void PartFiles::SetView(const proto::View& view) { worker_->SetView(view); }

void PartFiles::Prepare() { worker_->Prepare(); }

void PartFiles::Write(const shard_outcome::WritePart& part) { worker_->Write(part); }

void PartFiles::Forget(uint32_t snapshot) { worker_->Forget(snapshot); }

void PartFiles::Read(const shard_outcome::ReadPart& part) { worker_->Read(part); }

}  // namespace rubato
