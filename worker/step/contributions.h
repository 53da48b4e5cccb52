// What a worker sends for its micro-batches: gradient sums, judged as the job wants. On arrival a
// contribution is an update of its own, so its worker clips it and leaves it out; in sync the
// shards judge a whole step (server/coordinator/decisions.h).
#ifndef RUBATO_WORKER_STEP_CONTRIBUTIONS_H_
#define RUBATO_WORKER_STEP_CONTRIBUTIONS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/consistency/policy.h"
#include "common/frames/payload.h"
#include "common/space/flat_space.h"
#include "common/space/sample_schedule.h"
#include "proto/cluster.pb.h"
#include "proto/job.pb.h"
#include "proto/layout.pb.h"
#include "worker/step/gradient_sums.h"
#include "worker/step/push_encoder.h"

namespace rubato {

class Contributions {
 public:
  using Push = GradientSums::Push;

  // `layout`, `space`, `sums` and `encoder` must outlive it.
  Contributions(const proto::Job& job, const proto::Layout* layout, const FlatSpace* space,
                GradientSums* sums, PushEncoder* encoder)
      : job_(job), layout_(*layout), space_(*space), sums_(*sums), encoder_(*encoder) {}

  // The gradient sum of `node` of `unit`, in the job's codec, last blocks first; appends its
  // micro-batches' results. If it is to be left out, says so in `progress`, and nothing has been
  // pushed. Aborted, saying what is not finite, if the job cannot go on. `await` and
  // Cancelled as in MicroBatches::Compute.
  absl::Status Compute(const SampleSchedule& schedule, int64_t unit, Range node,
                       const Policy& policy, absl::Span<const float> parameters, Push push,
                       proto::Progress* progress, AwaitParameters await = AllHaveArrived);
  // See GradientSums.
  std::optional<int64_t> weight() const { return sums_.weight(); }

 private:
  using Blocks = std::vector<std::pair<int64_t, Payload>>;

  // Appends the micro-batches' results to `progress`. Aborted if a loss is not finite, which says
  // `what` it is of, from leaf `first` on, and of the gradient what `gradient` says.
  absl::Status AddResults(absl::Span<const BatchResult> results, const std::string& what,
                          int64_t first, const std::string& gradient,
                          proto::Progress* progress) const;
  // Scales the gradient down to optimizer.clip_grad_norm; `weight`: by which it is divided.
  void Clip(const Blocks& blocks, int64_t weight) const;

  // train.on_non_finite: what is not finite is left out.
  bool skips() const { return job_.train().on_non_finite() == proto::Train::ON_NON_FINITE_SKIP; }

  const proto::Job job_;
  const proto::Layout& layout_;
  const FlatSpace& space_;
  GradientSums& sums_;
  PushEncoder& encoder_;
};

}  // namespace rubato

#endif  // RUBATO_WORKER_STEP_CONTRIBUTIONS_H_
