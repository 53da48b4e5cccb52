// The difference between the layouts of two workers of one job.
#ifndef RUBATO_SERVER_COORDINATOR_LAYOUT_DIFFERENCE_H_
#define RUBATO_SERVER_COORDINATOR_LAYOUT_DIFFERENCE_H_

#include <string>

#include "proto/layout.pb.h"

namespace rubato {

// The first difference, for people: "1.weight: found shape (10, 4), expected (10, 5)",
// "optimizer.learning_rate: found 0.1, expected 0.5". Empty if the layouts are the same.
std::string LayoutDifference(const proto::Layout& found, const proto::Layout& expected);

// The same of the parameters that are not trained.
std::string ConstantsDifference(const proto::Layout& found, const proto::Layout& expected);

}  // namespace rubato

#endif  // RUBATO_SERVER_COORDINATOR_LAYOUT_DIFFERENCE_H_
