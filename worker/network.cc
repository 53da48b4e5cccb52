#include "worker/network.h"

#include <utility>

#include "absl/memory/memory.h"
#include "common/check.h"
#include "common/random.h"
#include "common/status.h"
#include "tensor/attention.h"
#include "tensor/kernels.h"

namespace rubato {

absl::StatusOr<std::unique_ptr<Network>> Network::Create(Graph graph, int64_t max_batch,
                                                         DType dtype, Purpose purpose) {
  RUBATO_CHECK(max_batch >= 1 && dtype != DType::kInt32);
  MemoryPlan plan = PlanMemory(graph, max_batch, purpose);
  RUBATO_ASSIGN_OR_RETURN(Tensor arena, Tensor::Zeros({plan.size}, dtype));
  auto network = absl::WrapUnique(new Network(std::move(graph), std::move(plan), max_batch));
  network->arena_ = std::move(arena);
  return network;
}

Network::Network(Graph graph, MemoryPlan plan, int64_t max_batch)
    : graph_(std::move(graph)), plan_(std::move(plan)), max_batch_(max_batch) {
  values_.resize(graph_.nodes.size() + 1);
}

LayerContext Network::ContextOf(size_t node, const std::vector<int64_t>& scratch) {
  const Layer& layer = *graph_.nodes[node].layer;
  LayerContext context;
  context.training = training_;
  context.key = Key(key_, node);
  context.saved = arena_.ref().Slice(plan_.saved[node], {layer.saved_size(n_)});
  context.scratch = arena_.ref().Slice(scratch[node], {layer.scratch_size(n_)});
  return context;
}

ConstTensorRef Network::Forward(const ConstTensorRef& parameters, const ConstTensorRef& x,
                                bool training, uint64_t key, const TensorRef& gradient,
                                AwaitParameters await) {
  n_ = x.size() / SizeOf(graph_.shapes[0]);
  RUBATO_CHECK(n_ >= 1 && n_ <= max_batch_ && parameters.size() == graph_.size);
  training_ = training;
  key_ = key;
  values_[0] = x.Reshaped(BatchOf(n_, graph_.shapes[0]));
  for (size_t i = 0; i < graph_.nodes.size(); ++i) {
    const Graph::Node& node = graph_.nodes[i];
    const ConstTensorRef& input = values_[node.input];
    const Shape shape = BatchOf(n_, graph_.shapes[i + 1]);
    if (node.layer != nullptr && node.layer->OutputIsInput()) {
      values_[i + 1] = input.Reshaped(shape);
      continue;
    }
    if (!await({node.begin, node.begin + node.parameters}) ||
        !await({node.buffer_begin, node.buffer_begin + node.buffers})) {
      return {};
    }
    const TensorRef y = arena_.ref().Slice(plan_.storages[plan_.storage_of[i + 1]], shape);
    if (node.layer == nullptr) {
      AddTensors(input, values_[node.other], y);
    } else {
      LayerContext context = ContextOf(i, plan_.scratch);
      if (node.buffers > 0) {
        context.buffers = parameters.Slice(node.buffer_begin, {node.buffers});
        if (!gradient.is_null()) {
          context.statistics = gradient.Slice(node.buffer_begin, {node.buffers});
        }
      }
      node.layer->Forward(context, parameters.Slice(node.begin, {node.parameters}), input, y);
    }
    values_[i + 1] = y;
  }
  return values_.back();
}

TensorRef Network::Gradient(int gradient, int value) {
  return arena_.ref().Slice(plan_.gradients[gradient], BatchOf(n_, graph_.shapes[value]));
}

TensorRef Network::output_gradient() {
  return Gradient(plan_.output_gradient, static_cast<int>(graph_.nodes.size()));
}

ConstTensorRef Network::Backward(const ConstTensorRef& parameters, const TensorRef& gradient,
                                 absl::FunctionRef<void(int64_t begin)> ready) {
  RUBATO_CHECK(training_ && gradient.size() == graph_.size);
  if (graph_.trainable < graph_.size) ready(graph_.trainable);
  for (const MemoryPlan::Step& step : plan_.backward) {
    // A gradient's steps name a value, of which there is one more.
    const Graph::Node& node =
        graph_.nodes[step.kind == MemoryPlan::Step::kLayer || step.kind == MemoryPlan::Step::kReady
                         ? step.node
                         : 0];
    switch (step.kind) {
      case MemoryPlan::Step::kLayer:
        node.layer->Backward(ContextOf(step.node, plan_.backward_scratch),
                             parameters.Slice(node.begin, {node.parameters}), values_[node.input],
                             values_[step.node + 1], Gradient(step.dy, step.node + 1),
                             step.dx < 0 ? TensorRef() : Gradient(step.dx, node.input),
                             gradient.Slice(node.begin, {node.parameters}));
        break;
      case MemoryPlan::Step::kAdd:
      case MemoryPlan::Step::kCopy: {
        const Shape shape = BatchOf(n_, graph_.shapes[step.node]);
        const TensorRef from = arena_.ref().Slice(plan_.gradients[step.from], shape);
        const TensorRef to = arena_.ref().Slice(plan_.gradients[step.to], shape);
        step.kind == MemoryPlan::Step::kAdd ? AddTensors(to, from, to) : Copy(from, to);
        break;
      }
      case MemoryPlan::Step::kReady:
        ready(node.begin);
        break;
    }
  }
  return plan_.input_gradient < 0 ? ConstTensorRef() : Gradient(plan_.input_gradient, 0);
}

}  // namespace rubato
