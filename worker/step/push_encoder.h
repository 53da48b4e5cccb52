// Writes a worker's gradient sums in the job's codec, as they become whole.
#ifndef RUBATO_WORKER_STEP_PUSH_ENCODER_H_
#define RUBATO_WORKER_STEP_PUSH_ENCODER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "common/consistency/policy.h"
#include "common/frames/payload.h"
#include "common/space/flat_space.h"
#include "common/space/sample_schedule.h"
#include "proto/job.pb.h"
#include "worker/step/residuals.h"

namespace rubato {

// Of one member, from view to view: with top-k it holds what has not been sent yet, which is lost
// with it. For one thread.
class PushEncoder {
 public:
  // Of `space`, whose first `trainable` values are parameters (TrainableCount).
  PushEncoder(const proto::Job& job, const FlatSpace& space, int64_t trainable);

  // The sums that follow are those of `node` of `unit`.
  void Begin(const SampleSchedule& schedule, int64_t unit, Range node, const Policy& policy);

  // The gradient sum of a block, to be sent: in float32 itself, else in a buffer that is used again
  // when nobody holds it any more.
  Payload Encode(int64_t block, const Payload& gradient);

 private:
  using Buffer = std::shared_ptr<std::vector<char>>;

  // Of `bytes`, one that nobody reads.
  Buffer TakeBuffer(int64_t block, size_t bytes);
  Payload EncodeLargest(int64_t block, Range values, const Payload& gradient);

  const proto::Job job_;
  const FlatSpace space_;
  const int64_t trainable_;
  const Codec codec_;
  std::vector<std::vector<Buffer>> buffers_;  // by block
  std::optional<Residuals> residuals_;

  // Of the sums at hand.
  int64_t unit_ = -1;
  Range node_;
  Residuals::Step step_;
  double density_ = 1;
};

}  // namespace rubato

#endif  // RUBATO_WORKER_STEP_PUSH_ENCODER_H_
