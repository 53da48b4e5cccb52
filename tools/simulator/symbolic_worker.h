// Gradients that are symbols of what they were computed from.
#ifndef RUBATO_TOOLS_SIMULATOR_SYMBOLIC_WORKER_H_
#define RUBATO_TOOLS_SIMULATOR_SYMBOLIC_WORKER_H_

#include <cmath>
#include <vector>

#include "absl/strings/str_format.h"
#include "common/space/reduction_tree.h"
#include "tools/simulator/symbol.h"
#include "tools/simulator/worker_model.h"

namespace rubato {

// The gradient of `node` for one block, as the tree says.
inline uint64_t NodeSymbol(uint64_t seed, const SampleSchedule& schedule, int64_t unit, Range node,
                           int64_t block, uint64_t parameters) {
  if (node.size() == 1) {
    const SampleRange leaf = schedule.MicroBatch(unit, node.begin);
    return LeafSymbol(seed, leaf.epoch, leaf.positions.begin, leaf.positions.end, block,
                      parameters);
  }
  int64_t left = 1;  // the largest power of two below the node's size
  while (2 * left < node.size()) left *= 2;
  const int64_t middle = node.begin + left;
  return SumSymbol(NodeSymbol(seed, schedule, unit, {node.begin, middle}, block, parameters),
                   NodeSymbol(seed, schedule, unit, {middle, node.end}, block, parameters));
}

class SymbolicWorker : public WorkerModel {
 public:
  // Of its gradients one of `non_finite_in` is not finite (symbol.h; 0: none). With `leaves_out` it
  // leaves such contributions out, and with `judges` it sends none before it has seen all of it.
  // Its tests have an accuracy with `tells_accuracy`.
  SymbolicWorker(int64_t blocks, uint64_t seed, bool is_script, uint64_t non_finite_in,
                 bool leaves_out, bool judges, bool tells_accuracy)
      : seed_(seed),
        is_script_(is_script),
        non_finite_in_(non_finite_in),
        leaves_out_(leaves_out),
        judges_(judges),
        tells_accuracy_(tells_accuracy),
        values_(blocks) {}

  void OnBlock(int64_t block, const Content& content) override { values_[block] = content.symbol; }

  absl::Status Compute(const SampleSchedule& schedule, int64_t unit, Range node,
                       const Policy& policy, Push push, proto::Progress* progress) override {
    uint64_t parameters = 0;
    for (uint64_t value : values_) parameters = AppendSymbol(parameters, value);
    for (int64_t leaf = node.begin; leaf < node.end; ++leaf) {
      progress->add_loss_sum(std::nan(""));
      progress->add_samples(schedule.MicroBatch(unit, leaf).positions.size());
      if (is_script_) progress->add_told(Weight(schedule, unit, {leaf, leaf + 1}));
    }
    const int64_t blocks = static_cast<int64_t>(values_.size());
    const auto gradient = [&](int64_t block) {
      return NodeSymbol(seed_, schedule, unit, node, block, parameters);
    };
    // As of worker/step/contributions.cc: the last layers' blocks leave before the others are
    // known.
    int64_t finite_from = 0;
    for (int64_t block = 0; block < blocks; ++block) {
      if (!IsFinite(gradient(block), non_finite_in_)) finite_from = block + 1;
    }
    const bool is_finite = finite_from == 0 || (leaves_out_ && !policy.on_arrival());
    if (!is_finite && leaves_out_) {
      progress->set_left_out(true);
      return absl::OkStatus();
    }
    if (!is_finite && judges_ && policy.on_arrival()) finite_from = blocks;
    for (int64_t block = blocks - 1; block >= (is_finite ? 0 : finite_from); --block) {
      push(block, {gradient(block), {}});
    }
    if (is_finite) return absl::OkStatus();
    return absl::AbortedError(absl::StrFormat("unit %d: a gradient is not finite", unit));
  }

  int64_t Weight(const SampleSchedule& schedule, int64_t unit, Range node) const override {
    if (!is_script_) return schedule.Samples(unit, node);
    int64_t weight = 0;
    for (int64_t leaf = node.begin; leaf < node.end; ++leaf) {
      const SampleRange at = schedule.MicroBatch(unit, leaf);
      weight += WeightOf(seed_, at.epoch, at.positions.begin, at.positions.end);
    }
    return weight;
  }

  std::vector<proto::EvaluationResult> Test(int64_t unit, bool is_final) override {
    std::vector<proto::EvaluationResult> results(is_final ? 2 : 1);
    for (proto::EvaluationResult& result : results) {
      result.set_unit(unit);
      result.set_loss_sum(TestLoss(unit));
      result.set_samples(1);
      if (tells_accuracy_) result.set_correct(TestAccuracy(seed_, unit));
      if (is_script_) result.set_judged(1);
    }
    results.back().set_is_final(is_final);
    return results;
  }

 private:
  const uint64_t seed_;
  const bool is_script_;
  const uint64_t non_finite_in_;
  const bool leaves_out_;
  const bool judges_;
  const bool tells_accuracy_;
  std::vector<uint64_t> values_;
};

}  // namespace rubato

#endif  // RUBATO_TOOLS_SIMULATOR_SYMBOLIC_WORKER_H_
