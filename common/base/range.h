#ifndef RUBATO_COMMON_BASE_RANGE_H_
#define RUBATO_COMMON_BASE_RANGE_H_

#include <cstdint>

namespace rubato {

// Half-open range of indices.
struct Range {
  int64_t begin = 0;
  int64_t end = 0;

  int64_t size() const { return end - begin; }
  bool empty() const { return begin >= end; }
  bool Contains(int64_t index) const { return begin <= index && index < end; }
  friend bool operator==(const Range& a, const Range& b) {
    return a.begin == b.begin && a.end == b.end;
  }
};

}  // namespace rubato

#endif  // RUBATO_COMMON_BASE_RANGE_H_
