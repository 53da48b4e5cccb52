// Which contributions a block holds: all below a mark, and some above it. Contributions are given
// out in order, so those above are all but the ones in progress: they are kept as runs, of which
// there are no more than that, however long one takes.
#ifndef RUBATO_COMMON_CONSISTENCY_UNIT_SET_H_
#define RUBATO_COMMON_CONSISTENCY_UNIT_SET_H_

#include <cstdint>
#include <map>
#include <vector>

namespace rubato {

class UnitSet {
 public:
  UnitSet() = default;
  // All below `below`.
  explicit UnitSet(int64_t below) : below_(below) {}

  bool Contains(int64_t unit) const;
  void Insert(int64_t unit) { Insert(unit, unit + 1); }
  // All of [begin, end).
  void Insert(int64_t begin, int64_t end);

  // All units below this one are in the set, this one is not.
  int64_t below() const { return below_; }
  // The runs above: their ends by their beginnings. Between two, and below the first, a unit lacks.
  const std::map<int64_t, int64_t>& runs() const { return runs_; }
  // No unit from here on is in the set.
  int64_t end() const { return runs_.empty() ? below_ : runs_.rbegin()->second; }

 private:
  int64_t below_ = 0;
  std::map<int64_t, int64_t> runs_;
};

// Of several sets, at least one.
struct UnitsHeld {
  UnitSet by_all, by_some;
  // By some, and not by all.
  std::vector<int64_t> Partial() const;
};
UnitsHeld HeldBy(const std::vector<const UnitSet*>& sets);

}  // namespace rubato

#endif  // RUBATO_COMMON_CONSISTENCY_UNIT_SET_H_
