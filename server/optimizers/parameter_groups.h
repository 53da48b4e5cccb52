// Parameter groups: which of a job's optimizer settings hold for which values of the flat vector.
#ifndef RUBATO_SERVER_OPTIMIZERS_PARAMETER_GROUPS_H_
#define RUBATO_SERVER_OPTIMIZERS_PARAMETER_GROUPS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "common/space/flat_space.h"
#include "proto/job.pb.h"
#include "proto/layout.pb.h"
#include "server/optimizers/optimizer.h"

namespace rubato {

constexpr int kNoGroup = -1;

// For each parameter of `layout` the index in settings.groups of the first group that matches its
// name, or kNoGroup. Averages of statistics are in no group.
std::vector<int> GroupsOf(const proto::Optimizer& settings, const proto::Layout& layout);

// `settings` as group number `group` of them changes them; the same without groups for kNoGroup.
proto::Optimizer GroupSettings(const proto::Optimizer& settings, int group);

// A sentence for each group that matches no parameter, which is likely a mistake.
std::vector<std::string> UnusedGroups(const proto::Optimizer& settings,
                                      const proto::Layout& layout);

// What differs from update to update.
struct GroupUpdate {
  // The rate of this update for a learning_rate of the settings.
  absl::FunctionRef<float(double)> rate_of;
  float scale = 1;    // the gradient is gradient_sum · scale
  int64_t count = 0;  // updates that these parameters have had before this one
  // For averages of statistics: a statistic is gradient_sum · mean_scale. Its weight is the weight
  // of the average times `share`, the update's share of a global batch.
  float mean_scale = 1;
  float share = 1;
};

// The optimizer of a whole layout. Immutable.
class ParameterGroups {
 public:
  // InvalidArgument if the settings are wrong (see Optimizer::Create).
  static absl::StatusOr<ParameterGroups> Create(const proto::Optimizer& settings,
                                                const proto::Layout& layout);

  // Updates the values `values` of the flat vector, to which `spans` belong, as Optimizer::Apply
  // does, each by its group's settings. Frozen parameters are copied to `out` and their slots stay
  // as they are, whatever the gradient. Averages of statistics move: out = w + average · share ·
  // (statistic − w). Any cut of the vector gives the same bits.
  void Apply(Range values, const GroupUpdate& update, const OptimizerSpans& spans) const;

 private:
  struct Group {
    double learning_rate;
    Optimizer optimizer;
  };
  // Values with the same settings.
  struct Run {
    Range values;
    size_t group;   // in groups_
    float average;  // not 0: of statistics, in no group
  };

  ParameterGroups() = default;

  std::vector<Group> groups_;  // the last is of the parameters in no group
  std::vector<Run> runs_;      // the whole vector, in order; neighbours differ
};

}  // namespace rubato

#endif  // RUBATO_SERVER_OPTIMIZERS_PARAMETER_GROUPS_H_
