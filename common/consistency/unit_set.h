// Which contributions a block holds: all below a mark, and a few above it. Contributions are given
// out in order, so those above the mark are at most as many as are in progress.
#ifndef RUBATO_COMMON_CONSISTENCY_UNIT_SET_H_
#define RUBATO_COMMON_CONSISTENCY_UNIT_SET_H_

#include <cstdint>
#include <set>

namespace rubato {

class UnitSet {
 public:
  UnitSet() = default;
  // All below `below`, and those of `above`.
  template <typename Units>
  UnitSet(int64_t below, const Units& above) : below_(below) {
    for (int64_t unit : above) Insert(unit);
  }

  bool Contains(int64_t unit) const { return unit < below_ || above_.count(unit) != 0; }

  void Insert(int64_t unit) {
    if (unit < below_) return;
    above_.insert(unit);
    while (!above_.empty() && *above_.begin() == below_) {
      above_.erase(above_.begin());
      ++below_;
    }
  }

  // All units below this one are in the set, this one is not.
  int64_t below() const { return below_; }
  const std::set<int64_t>& above() const { return above_; }

 private:
  int64_t below_ = 0;
  std::set<int64_t> above_;
};

}  // namespace rubato

#endif  // RUBATO_COMMON_CONSISTENCY_UNIT_SET_H_
