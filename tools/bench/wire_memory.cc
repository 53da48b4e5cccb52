#include "tools/bench/wire_memory.h"

#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/status.h"
#include "common/space/flat_space.h"
#include "common/wire/shard_streams.h"
#include "tools/bench/peer.h"
#include "tools/bench/wire_shard.h"

namespace rubato {
namespace {

constexpr int kWorkers = 2;
constexpr int kSteps = 6;
// SGD with this momentum and a learning rate of 1 on gradients of 1.
constexpr float kMomentum = 0.5f;

constexpr absl::Duration kPatience = absl::Seconds(100);

// What has come of the pulls of all workers in a step: blocks with one value everywhere.
class Arrivals {
 public:
  void Expect(int64_t blocks, float value) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    missing_ = blocks;
    expected_ = value;
  }

  void OnFrame(const Frame& frame, const ReceivedValues& values) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    const float expected = expected_;
    absl::Status failure;
    values.ForEachRun([&](size_t, absl::Span<const float> run) {
      for (const float value : run) {
        if (value == expected) continue;
        failure.Update(absl::InternalError(absl::StrFormat("block %d has the value %g; expected %g",
                                                           frame.block, value, expected)));
        break;
      }
    });
    failure_.Update(failure);
    --missing_;
  }

  void OnFailure(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    failure_.Update(status);
  }

  absl::Status Await() ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    if (!mutex_.AwaitWithTimeout(absl::Condition(this, &Arrivals::IsDone), kPatience)) {
      return absl::DeadlineExceededError("the shard does not answer");
    }
    return failure_;
  }

 private:
  bool IsDone() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return missing_ == 0 || !failure_.ok();
  }

  absl::Mutex mutex_;
  int64_t missing_ ABSL_GUARDED_BY(mutex_) = 0;
  float expected_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
};

// A worker's part of a step: pushes a gradient of ones, and pulls what comes of all workers'.
void PushAndPull(int worker, int step, const FlatSpace& space,
                 const std::shared_ptr<const std::vector<float>>& ones, ShardStreams* streams) {
  Frame push;
  push.kind = FrameKind::kPush;
  push.view = 1;
  push.worker = static_cast<uint32_t>(worker);
  push.incarnation = 1;
  push.clock = push.unit = static_cast<uint64_t>(step);
  push.samples = push.weight = 1;
  push.first_leaf = static_cast<uint32_t>(worker);
  push.end_leaf = push.first_leaf + 1;
  for (int64_t block = space.blocks() - 1; block >= 0; --block) {
    push.block = static_cast<uint64_t>(block);
    streams->Send(0, push,
                  {ones, absl::MakeConstSpan(*ones).first(space.BlockValues(block).size())});
  }
  Frame pull;
  pull.kind = FrameKind::kPull;
  pull.view = 1;
  pull.worker = static_cast<uint32_t>(worker);
  pull.set_blocks({0, space.blocks()});
  pull.clock = static_cast<uint64_t>(step) + 1;
  pull.unit = pull.clock;
  streams->Send(0, pull, {});
}

}  // namespace

absl::StatusOr<double> MeasureServerMemory(int64_t bytes, bool shared) {
  BenchShard bench;
  bench.bytes = bytes;
  bench.workers = kWorkers;
  bench.sync = true;
  bench.momentum = kMomentum;
  RUBATO_ASSIGN_OR_RETURN(const std::unique_ptr<Peer> shard,
                          Peer::Start({"bench", "wire", "--serve", bench.Role()}));
  const FlatSpace space = BenchSpace(bytes);
  const auto ones = std::make_shared<const std::vector<float>>(space.block_values(), 1.0f);
  Arrivals arrivals;
  std::vector<std::unique_ptr<ShardStreams>> workers;
  for (int worker = 0; worker < kWorkers; ++worker) {
    ShardStreams::Callbacks callbacks;
    callbacks.on_frame = [&](int, const Frame& frame, const ReceivedValues& values) {
      arrivals.OnFrame(frame, values);
    };
    callbacks.on_failure = [&](int, const absl::Status& status) { arrivals.OnFailure(status); };
    workers.push_back(std::make_unique<ShardStreams>(std::vector<std::string>{shard->address()},
                                                     StreamScope{kBenchDigest}, ConnectionOptions(),
                                                     std::move(callbacks), shared));
  }
  float velocity = 0, parameter = 0;
  for (int step = 0; step < kSteps; ++step) {
    velocity = kMomentum * velocity + 1;
    parameter -= velocity;
    arrivals.Expect(kWorkers * space.blocks(), parameter);
    for (int worker = 0; worker < kWorkers; ++worker) {
      PushAndPull(worker, step, space, ones, workers[worker].get());
    }
    RUBATO_RETURN_IF_ERROR(arrivals.Await());
  }
  const double needed = 3.0 * static_cast<double>(space.values()) * sizeof(float);
  const double resident = static_cast<double>(shard->ResidentBytes());
  workers.clear();
  return resident / needed;
}

}  // namespace rubato
