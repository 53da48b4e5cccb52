#include "server/coordinator/work_ledger.h"

#include <algorithm>
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
  leases_[worker].push_back({unit, computed_before});
  ++counts_.given;
  return unit;
}

bool WorkLedger::OnComputed(const WorkerId& worker, int64_t unit, int64_t clock, bool left_out) {
  std::vector<Lease>& leases = leases_[worker];
  const auto lease = std::find_if(leases.begin(), leases.end(),
                                  [unit](const Lease& other) { return other.unit == unit; });
  if (lease == leases.end()) return false;
  const bool is_first = !lease->computed_before;
  if (left_out) {
    ++counts_.left_out;
    leases.erase(lease);
  } else {
    lease->clock = clock;
  }
  return is_first;
}

void WorkLedger::OnApplied(const WorkerId& worker, int64_t clock) {
  std::vector<Lease>& leases = leases_[worker];
  const auto applied = std::remove_if(leases.begin(), leases.end(), [clock](const Lease& lease) {
    return lease.clock >= 0 && lease.clock < clock;
  });
  counts_.applied += leases.end() - applied;
  leases.erase(applied, leases.end());
}

void WorkLedger::OnLost(const WorkerId& worker, const std::vector<UnitSet>& whole,
                        const std::set<int64_t>& partial) {
  for (const Lease& lease : leases_[worker]) {
    const int64_t unit = lease.unit;
    const int64_t holders = std::count_if(
        whole.begin(), whole.end(), [unit](const UnitSet& units) { return units.Contains(unit); });
    if (holders == static_cast<int64_t>(whole.size())) {
      ++counts_.applied;
    } else {
      ++(holders > 0 || partial.count(unit) != 0 ? counts_.partial : counts_.lost);
      redo_[unit] = lease.computed_before || lease.clock >= 0;
    }
  }
  leases_.erase(worker);
}

void WorkLedger::OnLeaving(const WorkerId& worker) {
  std::vector<Lease>& leases = leases_[worker];
  for (auto lease = leases.begin(); lease != leases.end();) {
    if (lease->clock >= 0) {
      ++lease;
      continue;
    }
    redo_[lease->unit] = lease->computed_before;
    --counts_.given;
    lease = leases.erase(lease);
  }
}

std::vector<int64_t> WorkLedger::redo_units() const {
  std::vector<int64_t> units;
  for (const auto& [unit, computed_before] : redo_) units.push_back(unit);
  return units;
}

int64_t WorkLedger::under_way() const {
  int64_t leases = 0;
  for (const auto& [worker, own] : leases_) leases += static_cast<int64_t>(own.size());
  return leases;
}

int64_t WorkLedger::first_open() const {
  int64_t first = redo_.empty() ? next_ : std::min(next_, redo_.begin()->first);
  for (const auto& [worker, own] : leases_) {
    for (const Lease& lease : own) first = std::min(first, lease.unit);
  }
  return first;
}

bool WorkLedger::Holds(const WorkerId& worker, int64_t unit) const {
  const auto leases = leases_.find(worker);
  return leases != leases_.end() &&
         std::any_of(leases->second.begin(), leases->second.end(),
                     [unit](const Lease& lease) { return lease.unit == unit; });
}

int64_t WorkLedger::Waiting(const WorkerId& worker) const {
  const auto leases = leases_.find(worker);
  if (leases == leases_.end()) return 0;
  return std::count_if(leases->second.begin(), leases->second.end(),
                       [](const Lease& lease) { return lease.clock < 0; });
}

}  // namespace rubato
