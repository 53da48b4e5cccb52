#include "worker/step/worker_values.h"

#include "common/base/status.h"
#include "common/space/job_codec.h"
#include "common/space/placement.h"
#include "common/wire/stream_memory.h"

namespace rubato {

WorkerValues::WorkerValues(const proto::Job& job, const proto::Layout& layout)
    : job_(job), layout_(layout), space_(SpaceOf(job, layout)) {}

absl::Status WorkerValues::OnJoin() {
  contributions_.reset();
  encoder_.reset();
  // A server may still read what it was lent before: that is not written again.
  DropSums();
  arena_ = nullptr;
  if (!IsLent(SharesMemory(job_), PushCodec(job_), job_.wire().chunk())) return absl::OkStatus();
  RUBATO_ASSIGN_OR_RETURN(arena_, SharedArena::Create());
  return absl::OkStatus();
}

void WorkerValues::UseSums(GradientSums* sums) {
  encoder_.emplace(job_, space_, TrainableCount(layout_));
  contributions_.emplace(job_, &layout_, &space_, sums, &*encoder_);
}

}  // namespace rubato
