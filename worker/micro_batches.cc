#include "worker/micro_batches.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "common/check.h"
#include "common/kernels.h"
#include "common/random.h"
#include "common/reduction_tree.h"

namespace rubato {

MicroBatches::MicroBatches(Model* model, const FlatSpace* space, BatchReader* reader, uint64_t seed)
    : model_(model), space_(space), reader_(reader), seed_(seed) {}

MicroBatches::Gradient MicroBatches::TakeBuffer() {
  for (const Gradient& buffer : buffers_) {
    if (buffer.use_count() > 1) continue;
    std::atomic_thread_fence(std::memory_order_acquire);  // after what its last reader did
    return buffer;
  }
  buffers_.push_back(std::make_shared<std::vector<float>>(space_->values()));
  return buffers_.back();
}

std::vector<BatchResult> MicroBatches::Compute(const SampleSchedule& schedule, int64_t unit,
                                               Range node, absl::Span<const float> parameters,
                                               Push push) {
  const ReductionTree tree(schedule.leaves());
  std::vector<BatchResult> results;
  std::vector<Sum> sums;  // of finished left siblings, outermost first
  for (int64_t leaf = node.begin; leaf < node.end; ++leaf) {
    // The left siblings that this leaf completes, innermost first: known before it is computed.
    Sum sum{{leaf, leaf + 1}, TakeBuffer()};
    std::vector<Gradient> left;
    while (!(sum.node == node) && !sums.empty() && tree.Sibling(sum.node) == sums.back().node) {
      left.push_back(std::move(sums.back().gradient));
      sums.pop_back();
      sum.node = tree.Parent(sum.node);
    }
    const bool is_last = sum.node == node;
    // Values from `done` on are whole: blocks of them are folded and, at the last leaf, leave.
    int64_t next_block = space_->blocks() - 1;
    const auto ready = [&](int64_t begin) {
      for (; next_block >= 0 && space_->BlockValues(next_block).begin >= begin; --next_block) {
        const Range values = space_->BlockValues(next_block);
        float* out = sum.gradient->data() + values.begin;
        for (const Gradient& gradient : left) {
          Add(gradient->data() + values.begin, out, out, values.size());
        }
        if (is_last) {
          push(next_block, Payload{sum.gradient, absl::MakeConstSpan(out, values.size())});
        }
      }
    };
    const SampleRange range = schedule.MicroBatch(unit, leaf);
    if (range.positions.empty()) {  // of a short unit
      std::fill(sum.gradient->begin(), sum.gradient->end(), 0.0f);
      results.push_back({});
      ready(0);
    } else {
      reader_->ReadShuffled(range);
      const uint64_t key = Key(seed_, "dropout", unit, leaf);
      results.push_back(model_->Gradient(parameters, reader_->features(), reader_->targets(), key,
                                         absl::MakeSpan(*sum.gradient), ready));
    }
    RUBATO_CHECK(next_block < 0);
    if (!is_last) sums.push_back(std::move(sum));
  }
  return results;
}

}  // namespace rubato
