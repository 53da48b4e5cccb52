// The conservation law of updates on arrival, for one block: whatever the speeds and whoever joins
// or leaves,
//
//   sum of applied staleness + sum of (pulled version - version after own last push or pull)
//     + lags of members now + lags of leavers when they left
//   = sum over updates of (members then - 1)
//
// an equality of integers. A lag counts the updates since the member's own last push or pull; for a
// joining worker it is 0.
#ifndef RUBATO_TOOLS_SIMULATOR_CONSERVATION_H_
#define RUBATO_TOOLS_SIMULATOR_CONSERVATION_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/strings/str_format.h"
#include "server/coordinator/assignments.h"

namespace rubato {

class Conservation {
 public:
  // Of a block that is at `version`.
  explicit Conservation(int64_t version = 0) : version_(version) {}

  bool IsMember(const WorkerId& worker) const { return seen_.count(worker) != 0; }
  // When the block was at `version`, from which on it counts.
  void OnJoin(const WorkerId& worker, int64_t version) {
    others_ += version_ - version;
    seen_[worker] = version;
  }
  void OnLeave(const WorkerId& worker) {
    const auto seen = seen_.find(worker);
    if (seen == seen_.end()) return;
    lags_of_leavers_ += version_ - seen->second;
    seen_.erase(seen);
  }
  // A contribution of `worker` has made `version`.
  void OnApplied(const WorkerId& worker, int64_t version) {
    version_ = version;
    others_ += static_cast<int64_t>(seen_.size()) - 1;
    seen_[worker] = version;
  }
  void OnPulled(const WorkerId& worker, int64_t version) {
    const auto seen = seen_.find(worker);
    if (seen == seen_.end()) return;
    pulled_ += version - seen->second;
    seen->second = version;
  }

  const std::map<WorkerId, int64_t>& members() const { return seen_; }

  // `staleness_sum` is what the shard has counted.
  bool Holds(int64_t staleness_sum) const { return Left(staleness_sum) == others_; }
  std::string ToString(int64_t staleness_sum) const {
    return absl::StrFormat("%d (staleness) + %d (pulled) + %d (lags) + %d (left) = %d, expected %d",
                           staleness_sum, pulled_, Lags(), lags_of_leavers_, Left(staleness_sum),
                           others_);
  }

 private:
  int64_t Lags() const {
    int64_t lags = 0;
    for (const auto& [worker, version] : seen_) lags += version_ - version;
    return lags;
  }
  int64_t Left(int64_t staleness_sum) const {
    return staleness_sum + pulled_ + Lags() + lags_of_leavers_;
  }

  std::map<WorkerId, int64_t> seen_;  // by member: the version after its last own push or pull
  int64_t version_;
  int64_t pulled_ = 0;
  int64_t lags_of_leavers_ = 0;
  int64_t others_ = 0;
};

}  // namespace rubato

#endif  // RUBATO_TOOLS_SIMULATOR_CONSERVATION_H_
