#include "worker/step/contributions.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "common/base/finite.h"
#include "common/base/status.h"
#include "common/job/is_script.h"
#include "common/space/sum_of_squares.h"
#include "worker/model/loss.h"

namespace rubato {

absl::Status Contributions::Compute(const SampleSchedule& schedule, int64_t unit, Range node,
                                    const Policy& policy, absl::Span<const float> parameters,
                                    Push push, proto::Progress* progress, AwaitParameters await) {
  const bool on_arrival = policy.on_arrival();
  const bool skip = skips();
  // What must be judged as a whole is kept back until it is; else blocks leave while backward runs.
  const bool judge = on_arrival && (skip || job_.optimizer().has_clip_grad_norm());
  int64_t non_finite = -1;  // the first such value of the flat gradient
  const std::string what = absl::StrCat(on_arrival ? "contribution " : "step ", unit);
  Blocks kept;
  bool encodes = false;
  const auto on_block = [&](int64_t block, const Payload& payload) {
    // Not before: what does not wait for its parameters leaves the residuals as they are.
    if (!std::exchange(encodes, true)) encoder_.Begin(schedule, unit, node, policy);
    // In sync with `skip`, the shards judge the whole step.
    if ((on_arrival || !skip) && !sums_.is_known_finite()) {
      const size_t index = FirstNonFinite(payload.values());
      if (index < payload.size) {
        const int64_t at = space_.BlockValues(block).begin + static_cast<int64_t>(index);
        non_finite = non_finite < 0 ? at : std::min(non_finite, at);
      }
    }
    if (judge) {
      kept.emplace_back(block, payload);
    } else if (non_finite < 0) {
      push(block, encoder_.Encode(block, payload));
    }
  };
  RUBATO_ASSIGN_OR_RETURN(const std::vector<BatchResult> results,
                          sums_.Compute(schedule, unit, node, parameters, on_block, await));
  const std::string gradient =
      non_finite < 0
          ? ""
          : absl::StrCat("the gradient of ", ParameterAt(layout_, non_finite), " is not finite");
  RUBATO_RETURN_IF_ERROR(AddResults(results, what, node.begin, gradient, progress));
  if (non_finite >= 0) {
    if (!skip) return absl::AbortedError(absl::StrCat(what, ": ", gradient));
    progress->set_left_out(true);
    return absl::OkStatus();
  }
  if (!judge) return absl::OkStatus();
  Clip(kept, weight().value_or(schedule.Samples(unit, node)));
  for (const auto& [block, payload] : kept) push(block, encoder_.Encode(block, payload));
  return absl::OkStatus();
}

absl::Status Contributions::AddResults(absl::Span<const BatchResult> results,
                                       const std::string& what, int64_t first,
                                       const std::string& gradient,
                                       proto::Progress* progress) const {
  const bool has_told = IsScript(job_) || absl::c_any_of(results, [](const BatchResult& result) {
                          return result.told < static_cast<double>(result.samples);
                        });
  for (size_t i = 0; i < results.size(); ++i) {
    const BatchResult& result = results[i];
    if (!std::isfinite(result.loss_sum) && !skips()) {
      return absl::AbortedError(
          absl::StrCat(what, ": the loss of micro-batch ", first + i, " is ",
                       result.loss_sum / static_cast<double>(result.samples),
                       gradient.empty() ? "" : absl::StrCat(", and ", gradient)));
    }
    progress->add_loss_sum(result.loss_sum);
    if (has_told) progress->add_told(result.told);
    if (!IsScript(job_) && IsClassification(job_.loss().name())) {
      progress->add_correct(result.correct);
      progress->add_judged(result.judged);
    }
    progress->add_samples(result.samples);
  }
  return absl::OkStatus();
}

void Contributions::Clip(const Blocks& blocks, int64_t weight) const {
  if (!job_.optimizer().has_clip_grad_norm()) return;
  // Averages of statistics have no part in it.
  const int64_t trainable = TrainableCount(layout_);
  const auto gradient = [&](int64_t block, absl::Span<const float> values) {
    return values.first(std::max<int64_t>(
        std::min(space_.BlockValues(block).end, trainable) - space_.BlockValues(block).begin, 0));
  };
  SumOfSquares squares(trainable);
  for (const auto& [block, payload] : blocks) {
    const absl::Span<const float> values = gradient(block, payload.values());
    if (!values.empty()) squares.Add(space_.BlockValues(block).begin, values);
  }
  const double factor = ClipFactor(squares.sum(), weight, job_.optimizer().clip_grad_norm());
  if (factor >= 1) return;
  for (const auto& [block, payload] : blocks) {
    // The gradient is this worker's own, and nobody reads it yet.
    for (const float& value : gradient(block, payload.values())) {
      const_cast<float&>(value) *= static_cast<float>(factor);
    }
  }
}

}  // namespace rubato
