// The flat parameter space: all trainable numbers of a model, followed by averages of statistics,
// in one vector of float32. It is cut into blocks of equal size (the last may be shorter).
// common/space/placement.h says which shard holds which blocks. Knows no layers.
#ifndef RUBATO_COMMON_SPACE_FLAT_SPACE_H_
#define RUBATO_COMMON_SPACE_FLAT_SPACE_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "common/base/range.h"
#include "proto/layout.pb.h"

namespace rubato {

// Number of values of one parameter / of all of them.
int64_t ValueCount(const proto::Parameter& parameter);
int64_t ValueCount(const proto::Layout& layout);
// Number of values of the parameters alone, without the averages of statistics behind them
// (proto::Parameter.average).
int64_t TrainableCount(const proto::Layout& layout);

// Checks a layout from another process. InvalidArgument, naming the parameter, if it has extents
// below 0, more than 2^40 values, numbers that are not finite, or parameters behind averages.
absl::Status CheckLayout(const proto::Layout& layout);

// The name of the parameter that the value `index` of the flat vector belongs to.
std::string ParameterAt(const proto::Layout& layout, int64_t index);

class FlatSpace {
 public:
  // `values` >= 0 numbers in blocks of `block_values` > 0.
  FlatSpace(int64_t values, int64_t block_values);

  int64_t values() const { return values_; }
  int64_t block_values() const { return block_values_; }
  int64_t blocks() const { return blocks_; }

  Range BlockValues(int64_t block) const;  // the values of a block

 private:
  int64_t values_;
  int64_t block_values_;
  int64_t blocks_;
};

}  // namespace rubato

#endif  // RUBATO_COMMON_SPACE_FLAT_SPACE_H_
