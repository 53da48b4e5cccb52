// The worker's side of `rubato bench wire`: requests over the streams that workers use.
#ifndef RUBATO_TOOLS_BENCH_WIRE_LOAD_H_
#define RUBATO_TOOLS_BENCH_WIRE_LOAD_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/space/flat_space.h"
#include "common/wire/connection_options.h"
#include "common/wire/shard_streams.h"
#include "common/wire/shared_arena.h"
#include "tools/bench/wire_shard.h"
#include "worker/step/push_encoder.h"

namespace rubato {

enum class WireOp { kPush, kPull, kPushPull };

class WireLoad {
 public:
  // Of worker `rank` on the shard that ServeBenchShard(shard) serves at `address`, through shared
  // memory if that is its path.
  WireLoad(const std::string& address, const BenchShard& shard, int rank,
           const ConnectionOptions& connection);

  // Makes `count` requests of all parameters, which are pushed in `codec`, and pulled in it if it
  // is for parameters, else in float32. As many requests are in flight as make up 4 MiB, at least
  // 2; one in sync. Pushes are not answered, except for one small block at every quarter of those
  // in flight. Pulls are sent with the pushes of the request and are answered block by block.
  absl::Status Run(WireOp op, Codec codec, int64_t count);
  // Call it when all workers have made the same number of requests. Internal if any resulting float
  // is wrong.
  absl::Status Check(WireOp op, Codec codec);

  // Seconds of each of `count` round trips, one at a time: a push of all parameters, which come
  // back as they are after it.
  absl::StatusOr<std::vector<double>> RoundTrips(int64_t count);

 private:
  // Of one codec: what is pushed, and the same again to check the server by.
  struct Coding {
    explicit Coding(Codec codec, const FlatSpace& space);
    Codec codec, pull_codec;
    PushEncoder encoder, expected;
  };

  absl::Status Exchange(WireOp op, Codec codec, int64_t count, int64_t window,
                        std::vector<double>* seconds) ABSL_LOCKS_EXCLUDED(mutex_);
  void Issue() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SendPull(Range blocks, uint64_t number, int64_t clock);
  void SendPushes();
  absl::Span<const float> GradientOf(Range values) const {
    return {gradient_.get() + values.begin, static_cast<size_t>(values.size())};
  }
  void OnFrame(const Frame& frame, const ReceivedValues& values) ABSL_LOCKS_EXCLUDED(mutex_);
  // Internal unless all values that were pulled are those after `clock_` contributions.
  absl::Status Verify();

  const BenchShard shard_;
  const int rank_;
  const FlatSpace space_;
  const Range blocks_;                        // without the receipt's
  const std::shared_ptr<SharedArena> arena_;  // of the gradient, as a worker's; or null
  std::shared_ptr<float> gradient_;
  std::vector<float> parameters_;
  std::vector<float> expected_;  // at the server, after `verified_` contributions of each
  int64_t verified_ = 0;
  std::map<Codec, Coding> codings_;
  Coding* coding_ = nullptr;  // at hand
  int64_t clock_ = 0;         // contributions of this worker so far
  uint64_t number_ = 0;       // of requests so far

  absl::Mutex mutex_;
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
  WireOp op_ ABSL_GUARDED_BY(mutex_) = WireOp::kPush;
  int64_t window_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t to_issue_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t under_way_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t unanswered_ ABSL_GUARDED_BY(mutex_) = 0;  // pushes since the last receipt was asked for
  int64_t missing_ ABSL_GUARDED_BY(mutex_) = 0;     // blocks of the pull that is being answered
  int64_t began_ ABSL_GUARDED_BY(mutex_) = 0;       // nanoseconds
  std::vector<double>* seconds_ ABSL_GUARDED_BY(mutex_) = nullptr;

  std::unique_ptr<ShardStreams> streams_;  // last: its thread uses all of the above
};

}  // namespace rubato

#endif  // RUBATO_TOOLS_BENCH_WIRE_LOAD_H_
