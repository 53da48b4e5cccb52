// The policy of backup workers (backup_workers.proto). Which contribution to a step is the last is
// another on each shard, so no shard may say: the first that has all but one asks, and the
// coordinator names, for all shards, the ones that this one has.
#ifndef RUBATO_TESTS_BACKUP_WORKERS_BACKUP_POLICY_H_
#define RUBATO_TESTS_BACKUP_WORKERS_BACKUP_POLICY_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "common/consistency/policy.h"

namespace rubato {

// The parts into which the view divides the step.
std::vector<Range> PartsOf(const proto::View& view, int64_t step);

class BackupPolicy : public Steps {
 public:
  explicit BackupPolicy(const proto::View& view) : Steps(view), view_(view) {}

  absl::StatusOr<bool> Admit(const BlockLedger& ledger, const Contribution& contribution,
                             const ShardTerms& terms) const override;
  NextChange Next(const ShardTerms& terms, BlockLedger* ledger) const override;
  void Ask(const BlockLedger& ledger, proto::Question* question) const override;
  std::optional<proto::Decision> Decide(
      const std::map<int, proto::Question>& by_shard) const override;

 private:
  const proto::View view_;
};

// That of backup workers, or a built-in one.
std::unique_ptr<const Policy> PolicyWithBackup(const proto::View& view);

}  // namespace rubato

#endif  // RUBATO_TESTS_BACKUP_WORKERS_BACKUP_POLICY_H_
