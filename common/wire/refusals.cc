#include "common/wire/refusals.h"

namespace rubato {

void Refusals::Add(absl::string_view peer, const absl::Status& why, absl::Time now) {
  int64_t count;
  {
    absl::MutexLock lock(&mutex_);
    count = ++count_;
    if (log_ == nullptr || !seldom_.May(now)) return;
  }
  log_->Warning("refuses a caller",
                {{"peer", peer}, {"reason", why.message()}, {"refused_in_all", count}});
}

int64_t Refusals::count() const {
  absl::MutexLock lock(&mutex_);
  return count_;
}

}  // namespace rubato
