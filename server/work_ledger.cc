#include "server/work_ledger.h"

#include <algorithm>
#include <iterator>
#include <tuple>

namespace rubato {

std::optional<int64_t> WorkLedger::Give(const WorkerId& worker, int64_t end) {
  int64_t unit;
  bool computed_before = false;
  if (!redo_.empty()) {
    std::tie(unit, computed_before) = *redo_.begin();
    redo_.erase(redo_.begin());
  } else if (next_ < end) {
    unit = next_++;
  } else {
    return std::nullopt;
  }
  leases_[unit] = {worker, computed_before};
  ++counts_.given;
  return unit;
}

bool WorkLedger::OnComputed(const WorkerId& worker, int64_t unit, int64_t clock, bool left_out) {
  const auto lease = leases_.find(unit);
  if (lease == leases_.end() || !(lease->second.worker == worker)) return false;
  const bool is_first = !lease->second.computed_before;
  if (left_out) {
    ++counts_.left_out;
    leases_.erase(lease);
  } else {
    lease->second.clock = clock;
  }
  return is_first;
}

void WorkLedger::OnApplied(const WorkerId& worker, int64_t clock) {
  for (auto lease = leases_.begin(); lease != leases_.end();) {
    const bool is_applied =
        lease->second.worker == worker && lease->second.clock >= 0 && lease->second.clock < clock;
    if (is_applied) ++counts_.applied;
    lease = is_applied ? leases_.erase(lease) : std::next(lease);
  }
}

void WorkLedger::OnLost(const WorkerId& worker, const std::vector<UnitSet>& whole,
                        const std::set<int64_t>& partial) {
  for (auto lease = leases_.begin(); lease != leases_.end();) {
    if (!(lease->second.worker == worker)) {
      ++lease;
      continue;
    }
    const int64_t unit = lease->first;
    const int64_t holders = std::count_if(
        whole.begin(), whole.end(), [unit](const UnitSet& units) { return units.Contains(unit); });
    if (holders == static_cast<int64_t>(whole.size())) {
      ++counts_.applied;
    } else {
      ++(holders > 0 || partial.count(unit) != 0 ? counts_.partial : counts_.lost);
      redo_[unit] = lease->second.computed_before || lease->second.clock >= 0;
    }
    lease = leases_.erase(lease);
  }
}

void WorkLedger::OnLeaving(const WorkerId& worker) {
  for (auto lease = leases_.begin(); lease != leases_.end();) {
    const bool returns = lease->second.worker == worker && lease->second.clock < 0;
    if (returns) {
      redo_[lease->first] = lease->second.computed_before;
      --counts_.given;
    }
    lease = returns ? leases_.erase(lease) : std::next(lease);
  }
}

int64_t WorkLedger::Waiting(const WorkerId& worker) const {
  return std::count_if(leases_.begin(), leases_.end(), [&worker](const auto& entry) {
    return entry.second.worker == worker && entry.second.clock < 0;
  });
}

}  // namespace rubato
