#include "common/job/mixed_order.h"

#include "absl/strings/str_cat.h"
#include "common/job/is_script.h"

namespace rubato {

std::string MixedOrder(const proto::Manifest& checkpoint, const proto::Job& job) {
  const int64_t epoch = checkpoint.samples_per_epoch();
  const bool is_within = epoch > 0 && checkpoint.samples() % epoch != 0;
  if (!is_within || checkpoint.seed() == job.seed()) return "";
  return absl::StrCat(
      "the checkpoint is in the midst of an epoch whose order of samples was drawn from seed ",
      checkpoint.seed(), ", and the rest of it is drawn from seed ", job.seed(),
      IsScript(job) ? ", unless the script orders them itself" : "",
      ": of this epoch some samples come twice and others not at all; with the seed as it was, or "
      "from a checkpoint at an epoch's end, each comes once");
}

}  // namespace rubato
