// The wire settings of a job: the codecs that wire.push and wire.pull name, and shared memory.
#ifndef RUBATO_COMMON_SPACE_JOB_CODEC_H_
#define RUBATO_COMMON_SPACE_JOB_CODEC_H_

#include <cstddef>
#include <cstdint>

#include "common/frames/codec.h"
#include "common/space/flat_space.h"
#include "proto/job.pb.h"

namespace rubato {

static_assert(static_cast<int>(Codec::kBf16) == proto::Push::CODEC_BF16 &&
                  static_cast<int>(Codec::kFp16) == proto::Push::CODEC_FP16 &&
                  static_cast<int>(Codec::kInt8) == proto::Push::CODEC_INT8 &&
                  static_cast<int>(Codec::kTopK) == proto::Push::CODEC_TOPK &&
                  static_cast<int>(Codec::kBf16) == proto::Wire::PULL_BF16 &&
                  static_cast<int>(Codec::kFp16) == proto::Wire::PULL_FP16,
              "a codec has one number");

inline Codec PushCodec(const proto::Job& job) {
  return static_cast<Codec>(job.wire().push().codec());
}
inline Codec PullCodec(const proto::Job& job) { return static_cast<Codec>(job.wire().pull()); }

inline bool SharesMemory(const proto::Job& job) {
  return job.wire().shared_memory() == proto::Wire::SHARED_MEMORY_AUTO;
}

// A block that holds averages of statistics is sent as float32, both ways, because rounding errors
// would accumulate in them. `trainable` values lie before those (TrainableCount).
inline bool HoldsStatistics(Range block_values, int64_t trainable) {
  return block_values.end > trainable;
}

// The payload size of a block's values when a worker pushes them (topk: after the warm-up), and
// when it pulls them.
size_t PushedBytes(const proto::Job& job, Range block_values, int64_t trainable);
size_t PulledBytes(const proto::Job& job, Range block_values, int64_t trainable);

}  // namespace rubato

#endif  // RUBATO_COMMON_SPACE_JOB_CODEC_H_
