#include "common/consistency/unit_set.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

namespace rubato {

bool UnitSet::Contains(int64_t unit) const {
  if (unit < below_) return true;
  const auto after = runs_.upper_bound(unit);
  return after != runs_.begin() && unit < std::prev(after)->second;
}

void UnitSet::Insert(int64_t begin, int64_t end) {
  begin = std::max(begin, below_);
  if (begin >= end) return;
  // Runs that touch it become one with it.
  auto run = runs_.upper_bound(begin);
  if (run != runs_.begin() && std::prev(run)->second >= begin) --run;
  while (run != runs_.end() && run->first <= end) {
    begin = std::min(begin, run->first);
    end = std::max(end, run->second);
    run = runs_.erase(run);
  }
  if (begin == below_) {
    below_ = end;
  } else {
    runs_.emplace_hint(run, begin, end);
  }
}

std::vector<int64_t> UnitsHeld::Partial() const {
  std::vector<int64_t> units;
  const auto add_of = [&](int64_t begin, int64_t end) {
    for (int64_t unit = begin; unit < end; ++unit) {
      if (by_some.Contains(unit)) units.push_back(unit);
    }
  };
  // Between the runs is little.
  int64_t from = by_all.below();
  for (const auto& [begin, end] : by_all.runs()) {
    add_of(from, begin);
    from = end;
  }
  add_of(from, by_some.end());
  return units;
}

UnitsHeld HeldBy(const std::vector<const UnitSet*>& sets) {
  // Where one set more, or less, holds what follows; far below, all hold everything.
  std::vector<std::pair<int64_t, int64_t>> changes;
  for (const UnitSet* set : sets) {
    changes.emplace_back(set->below(), -1);
    for (const auto& [begin, end] : set->runs()) {
      changes.emplace_back(begin, 1);
      changes.emplace_back(end, -1);
    }
  }
  std::sort(changes.begin(), changes.end());
  const auto all = static_cast<int64_t>(sets.size());
  constexpr int64_t kFarBelow = std::numeric_limits<int64_t>::min();
  UnitsHeld held{UnitSet(kFarBelow), UnitSet(kFarBelow)};
  int64_t holders = all, from = kFarBelow;
  for (const auto& [unit, change] : changes) {
    if (holders == all) held.by_all.Insert(from, unit);
    if (holders > 0) held.by_some.Insert(from, unit);
    holders += change;
    from = unit;
  }
  return held;
}

}  // namespace rubato
