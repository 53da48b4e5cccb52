// The ledger of a worker's pull: which blocks have arrived, at which versions, and what that
// allows. No clock, thread or float. It is not part of the session (worker_session.h), because
// streams bring blocks while the worker computes. Its owner locks it if necessary
// (pulled_parameters.h).
#ifndef RUBATO_WORKER_SESSION_PULLED_BLOCKS_H_
#define RUBATO_WORKER_SESSION_PULLED_BLOCKS_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "common/frames/frame.h"
#include "common/space/placement.h"

namespace rubato {

class PulledBlocks {
 public:
  struct Pull {
    uint64_t number = 0;
    int64_t clock = 0;
    bool exact = false;     // the version must be the clock, or the step is done everywhere
    bool observer = false;  // to look, not to compute
  };
  // What has come of a pull.
  struct Arrived {
    uint64_t number = 0;
    bool passed = false;   // a block was at a later version than the exact one
    double staleness = 0;  // mean over blocks
    int64_t version = 0;   // likewise, rounded down
  };
  // Whether a computation that has begun may read values.
  enum class Readable { kNotYet, kYes, kNever };

  // `first`: the values that a computation needs first.
  PulledBlocks(const Placement& placement, Range first);

  // From now on blocks count for this pull only.
  void Begin(const Pull& pull);
  // Whether the frame brings a block that is still missing; false for a second copy and for an
  // answer to an earlier pull. Internal if a correct shard would not send it.
  absl::StatusOr<bool> Wants(int shard, const Frame& frame) const;
  // The block of a wanted frame has been stored.
  void Add(const Frame& frame, int64_t payload_bytes);

  bool IsHere(Range values) const;
  // Never, once a block has shown that the step is done everywhere.
  Readable ReadableNow(Range values) const;
  // Whether a computation may begin before all is here.
  bool MayBegin() const;

  const Pull& pull() const { return pull_; }
  int64_t missing() const { return missing_; }
  bool is_missing(int64_t block) const { return !here_[block]; }
  bool passed() const { return passed_; }
  // Of the last frame that brought the block.
  int64_t version(int64_t block) const { return versions_[block]; }
  Arrived arrived() const;
  // Of the payloads that have been added since the last call.
  int64_t TakeBytes();

 private:
  Placement placement_;
  Range first_;
  Pull pull_;
  std::vector<int64_t> versions_;  // by block
  std::vector<bool> here_;         // by block
  int64_t missing_ = 0;            // blocks
  bool passed_ = false;
  int64_t version_sum_ = 0, staleness_sum_ = 0;
  int64_t bytes_ = 0;
};

}  // namespace rubato

#endif  // RUBATO_WORKER_SESSION_PULLED_BLOCKS_H_
