// Counts the peers that this process refuses: callers without a key, and peers that violate the
// protocol.
#ifndef RUBATO_COMMON_WIRE_REFUSALS_H_
#define RUBATO_COMMON_WIRE_REFUSALS_H_

#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/log.h"
#include "common/base/seldom.h"

namespace rubato {

// Any thread.
class Refusals {
 public:
  // `log` must outlive it; null: tells nobody.
  explicit Refusals(const Log* log = nullptr) : log_(log) {}

  // Counts a call or stream of `peer` that was refused because of `why`. Logs one refusal a second.
  void Add(absl::string_view peer, const absl::Status& why, absl::Time now)
      ABSL_LOCKS_EXCLUDED(mutex_);
  int64_t count() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  const Log* const log_;
  mutable absl::Mutex mutex_;
  int64_t count_ ABSL_GUARDED_BY(mutex_) = 0;
  Seldom seldom_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace rubato

#endif  // RUBATO_COMMON_WIRE_REFUSALS_H_
