#include "tools/bench/wire_memory.h"

#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
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

// Of two workers, what has come.
struct Arrivals {
  absl::Mutex mutex;
  int64_t missing = 0;  // blocks
  float expected = 0;
  absl::Status failure;
};

}  // namespace

absl::StatusOr<double> MeasureServerMemory(int64_t bytes, bool shared) {
  RUBATO_ASSIGN_OR_RETURN(const std::unique_ptr<Peer> shard,
                          Peer::Start({"bench", "wire", "--serve", absl::StrCat("sync:", bytes)}));
  const FlatSpace space = BenchSpace(bytes);
  const auto gradient = std::make_shared<std::vector<float>>(space.block_values(), 1.0f);
  Arrivals arrivals;
  std::vector<std::unique_ptr<ShardStreams>> workers;
  for (int worker = 0; worker < kWorkers; ++worker) {
    ShardStreams::Callbacks callbacks;
    callbacks.on_frame = [&](int, const Frame& frame, const ReceivedValues& values) {
      absl::MutexLock lock(&arrivals.mutex);
      values.ForEachRun([&](size_t, absl::Span<const float> run) {
        for (const float value : run) {
          if (value == arrivals.expected) continue;
          arrivals.failure.Update(absl::InternalError(absl::StrFormat(
              "block %d has the value %g; expected %g", frame.block, value, arrivals.expected)));
          break;
        }
      });
      --arrivals.missing;
    };
    callbacks.on_failure = [&](int, const absl::Status& status) {
      absl::MutexLock lock(&arrivals.mutex);
      arrivals.failure.Update(status);
    };
    workers.push_back(std::make_unique<ShardStreams>(std::vector<std::string>{shard->address()},
                                                     kBenchDigest, ConnectionOptions(),
                                                     std::move(callbacks), shared));
  }
  float velocity = 0;
  for (int step = 0; step < kSteps; ++step) {
    velocity = kMomentum * velocity + 1;
    {
      absl::MutexLock lock(&arrivals.mutex);
      arrivals.missing = kWorkers * space.blocks();
      arrivals.expected -= velocity;
    }
    for (int worker = 0; worker < kWorkers; ++worker) {
      Frame push;
      push.kind = FrameKind::kPush;
      push.view = 1;
      push.worker = static_cast<uint32_t>(worker);
      push.incarnation = 1;
      push.clock = push.unit = static_cast<uint64_t>(step);
      push.samples = 1;
      push.first_leaf = static_cast<uint32_t>(worker);
      push.end_leaf = push.first_leaf + 1;
      for (int64_t block = space.blocks() - 1; block >= 0; --block) {
        push.block = static_cast<uint64_t>(block);
        workers[worker]->Send(
            0, push,
            {gradient, absl::MakeConstSpan(*gradient).first(space.BlockValues(block).size())});
      }
      Frame pull;
      pull.kind = FrameKind::kPull;
      pull.view = 1;
      pull.worker = static_cast<uint32_t>(worker);
      pull.set_blocks({0, space.blocks()});
      pull.clock = static_cast<uint64_t>(step) + 1;
      pull.unit = pull.clock;
      workers[worker]->Send(0, pull, {});
    }
    const auto done = [&] { return arrivals.missing == 0 || !arrivals.failure.ok(); };
    absl::MutexLock lock(&arrivals.mutex);
    if (!arrivals.mutex.AwaitWithTimeout(absl::Condition(&done), kPatience)) {
      return absl::DeadlineExceededError("the shard does not answer");
    }
    RUBATO_RETURN_IF_ERROR(arrivals.failure);
  }
  const double needed = 3.0 * static_cast<double>(space.values()) * sizeof(float);
  const double resident = static_cast<double>(shard->ResidentBytes());
  workers.clear();
  return resident / needed;
}

}  // namespace rubato
