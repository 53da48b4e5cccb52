// The policy of fresh contributions (fresh_contributions.proto). How stale a contribution is
// differs from shard to shard, so no shard may say: each asks when it comes, and once all have
// asked the coordinator decides for all. Asking when its turn has come would be too late: two
// shards may have two contributions in either order, and each would wait for the other.
#ifndef RUBATO_TESTS_FRESH_CONTRIBUTIONS_FRESH_POLICY_H_
#define RUBATO_TESTS_FRESH_CONTRIBUTIONS_FRESH_POLICY_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>

#include "common/consistency/policy.h"

namespace rubato {

class FreshPolicy : public Arrivals {
 public:
  explicit FreshPolicy(const proto::View& view);

  NextChange Next(const ShardTerms& terms, BlockLedger* ledger) const override;
  void Ask(const BlockLedger& ledger, proto::Question* question) const override;
  std::optional<proto::Decision> Decide(
      const std::map<int, proto::Question>& by_shard) const override;

 private:
  const int64_t max_staleness_;
  const int64_t shards_;  // that hold blocks
};

// That of fresh contributions, or a built-in one.
std::unique_ptr<const Policy> PolicyWithFreshness(const proto::View& view);

}  // namespace rubato

#endif  // RUBATO_TESTS_FRESH_CONTRIBUTIONS_FRESH_POLICY_H_
