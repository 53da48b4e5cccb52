// How long a host waits for a GPU that does not move.
#ifndef RUBATO_TENSOR_CUDA_PATIENCE_H_
#define RUBATO_TENSOR_CUDA_PATIENCE_H_

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"

namespace rubato {

// Far beyond any step, whose parts come every few milliseconds: a GPU that hung (a fault of its
// bus, a driver that waits for it) answers "not ready" for ever.
constexpr absl::Duration kGpuPatience = absl::Minutes(10);

// A wait that began at `begin`, or last saw something move then.
class Patience {
 public:
  Patience(absl::Duration most, absl::Time begin) : most_(most), begin_(begin) {}

  void OnMoved(absl::Time now) { begin_ = now; }

  // DeadlineExceeded, saying what was waited for, when it is at an end.
  absl::Status Check(absl::Time now, const char* what) const {
    if (now - begin_ < most_) return absl::OkStatus();
    return absl::DeadlineExceededError(
        absl::StrCat(what, " has not moved for ", absl::FormatDuration(now - begin_),
                     "; the GPU or its driver hangs (nvidia-smi and the kernel's log say more)"));
  }

 private:
  const absl::Duration most_;
  absl::Time begin_;
};

}  // namespace rubato

#endif  // RUBATO_TENSOR_CUDA_PATIENCE_H_
