#include "common/space/resumed_units.h"

#include "absl/strings/str_format.h"
#include "common/space/modes.h"
#include "common/space/placement.h"

namespace rubato {

absl::Status CheckResumedUnits(const proto::Job& job, const proto::Manifest& checkpoint) {
  if (checkpoint.mode() == proto::Manifest::MODE_SYNC) return absl::OkStatus();
  const int64_t unit_samples =
      job.train().batch_size() / job.train().micro_batches() * LeavesOf(job, AsyncMode());
  if (checkpoint.unit_samples() != unit_samples) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "the checkpoint counts in contributions of %d samples, this job in contributions of %d: "
        "train.batch_size, train.micro_batches and cluster.workers.start must stay as they were "
        "(cluster.workers.max alone lets more workers join); a checkpoint of sync (`rubato switch "
        "--mode sync` before the stop) goes on with any",
        checkpoint.unit_samples(), unit_samples));
  }
  if (checkpoint.block_values() != ValuesPerBlock(job)) {
    return absl::FailedPreconditionError(
        "wire.chunk must stay as it was: on arrival each block has its own history");
  }
  return absl::OkStatus();
}

}  // namespace rubato
