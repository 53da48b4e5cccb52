#include "server/optimizers/parameter_groups.h"

#include <algorithm>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_format.h"
#include "common/base/check.h"
#include "common/base/isa.h"
#include "common/base/kernels.h"
#include "common/base/status.h"
#include "server/optimizers/glob.h"

namespace rubato {

namespace {

struct Average {
  static RUBATO_ALWAYS_INLINE void Run(float weight, float mean_scale, const float* w,
                                       const float* sum, float* out, size_t n) {
    RUBATO_ELEMENTWISE
    for (size_t i = 0; i < n; ++i) out[i] = w[i] + weight * (sum[i] * mean_scale - w[i]);
  }
};

}  // namespace

std::vector<int> GroupsOf(const proto::Optimizer& settings, const proto::Layout& layout) {
  std::vector<int> groups;
  for (const proto::Parameter& parameter : layout.parameters()) {
    if (parameter.average() > 0) {
      groups.push_back(kNoGroup);
      continue;
    }
    int group = 0;
    while (group < settings.groups_size() &&
           !MatchesGlob(settings.groups(group).match(), parameter.name())) {
      ++group;
    }
    groups.push_back(group < settings.groups_size() ? group : kNoGroup);
  }
  return groups;
}

proto::Optimizer GroupSettings(const proto::Optimizer& settings, int group) {
  proto::Optimizer result = settings;
  result.clear_groups();
  if (group == kNoGroup) return result;
  const proto::ParameterGroup& changes = settings.groups(group);
  if (changes.has_learning_rate()) result.set_learning_rate(changes.learning_rate());
  if (changes.has_weight_decay()) result.set_weight_decay(changes.weight_decay());
  return result;
}

std::vector<std::string> UnusedGroups(const proto::Optimizer& settings,
                                      const proto::Layout& layout) {
  const std::vector<int> groups = GroupsOf(settings, layout);
  std::vector<std::string> unused;
  for (int i = 0; i < settings.groups_size(); ++i) {
    if (std::count(groups.begin(), groups.end(), i) > 0) continue;
    const std::string& match = settings.groups(i).match();
    const bool taken =
        std::any_of(layout.parameters().begin(), layout.parameters().end(),
                    [&](const proto::Parameter& parameter) {
                      return parameter.average() == 0 && MatchesGlob(match, parameter.name());
                    });
    unused.push_back(absl::StrFormat(
        "optimizer.groups[%d] changes nothing: %s", i,
        taken ? absl::StrFormat("every parameter that matches \"%s\" is in a group before", match)
              : absl::StrFormat("no parameter matches \"%s\"", match)));
  }
  return unused;
}

absl::StatusOr<ParameterGroups> ParameterGroups::Create(const proto::Optimizer& settings,
                                                        const proto::Layout& layout) {
  ParameterGroups groups;
  for (int i = 0; i <= settings.groups_size(); ++i) {
    const proto::Optimizer own = GroupSettings(settings, i < settings.groups_size() ? i : kNoGroup);
    RUBATO_RETURN_IF_ERROR(CheckSetting("learning_rate", own.learning_rate(), 0));
    RUBATO_ASSIGN_OR_RETURN(Optimizer optimizer, Optimizer::Create(own));
    groups.groups_.push_back({own.learning_rate(), std::move(optimizer)});
  }
  const std::vector<int> group_of = GroupsOf(settings, layout);
  int64_t begin = 0;
  for (int i = 0; i < layout.parameters_size(); ++i) {
    const int64_t end = begin + ValueCount(layout.parameters(i));
    const size_t group = group_of[i] == kNoGroup ? groups.groups_.size() - 1 : group_of[i];
    const float average = static_cast<float>(layout.parameters(i).average());
    if (!groups.runs_.empty() && groups.runs_.back().group == group &&
        groups.runs_.back().average == average) {
      groups.runs_.back().values.end = end;
    } else if (begin < end) {
      groups.runs_.push_back({{begin, end}, group, average});
    }
    begin = end;
  }
  return groups;
}

void ParameterGroups::Apply(Range values, const GroupUpdate& update,
                            const OptimizerSpans& spans) const {
  RUBATO_CHECK(static_cast<int64_t>(spans.parameters.size()) == values.size());
  auto run = std::partition_point(runs_.begin(), runs_.end(),
                                  [&](const Run& r) { return r.values.end <= values.begin; });
  for (int64_t at = values.begin; at < values.end; ++run) {
    RUBATO_CHECK(run != runs_.end());
    const int64_t end = std::min(values.end, run->values.end);
    const size_t offset = at - values.begin, size = end - at;
    const absl::Span<const float> parameters = spans.parameters.subspan(offset, size);
    const absl::Span<float> out = spans.out.subspan(offset, size);
    const Group& group = groups_[run->group];
    absl::InlinedVector<absl::Span<float>, 4> slots;
    absl::InlinedVector<const float*, 4> before;
    for (size_t i = 0; i < spans.slots.size(); ++i) {
      slots.push_back(spans.slots[i].subspan(offset, size));
      before.push_back(spans.SlotBefore(i) + offset);
    }
    const bool is_trained = run->average == 0 && group.learning_rate != 0;
    for (size_t i = 0; i < slots.size() && !is_trained; ++i) {
      if (before[i] != slots[i].data()) std::copy_n(before[i], size, slots[i].begin());
    }
    if (run->average != 0) {
      Dispatch<Average>(run->average * update.share, update.mean_scale, parameters.data(),
                        spans.gradient_sum.data() + offset, out.data(), size);
    } else if (group.learning_rate == 0) {
      std::copy(parameters.begin(), parameters.end(), out.begin());
    } else {
      group.optimizer.Apply(
          {update.rate_of(group.learning_rate), update.scale, update.count},
          {parameters, spans.gradient_sum.subspan(offset, size), slots, out, before});
    }
    at = end;
  }
}

}  // namespace rubato
