#include "worker/model/network.h"

#include <utility>

#include "common/base/check.h"
#include "common/base/random.h"
#include "common/base/status.h"
#include "tensor/kernel_set.h"

namespace rubato {

absl::StatusOr<std::unique_ptr<Network>> Network::Create(Graph graph, int64_t max_batch,
                                                         DType dtype, Purpose purpose) {
  RUBATO_CHECK(dtype == DType::kFloat32 || dtype == DType::kFloat64);
  MemoryPlan plan = PlanMemory(graph, max_batch, purpose);
  RUBATO_ASSIGN_OR_RETURN(Tensor memory, Tensor::Zeros({plan.size}, dtype));
  auto network = std::make_unique<Network>(std::move(graph), std::move(plan), max_batch,
                                           &CpuKernels(), memory.ref());
  network->memory_ = std::move(memory);
  network->keys_.resize(network->graph_.nodes.size());
  return network;
}

Network::Network(Graph graph, MemoryPlan plan, int64_t max_batch, KernelSet* kernels,
                 TensorRef arena)
    : graph_(std::move(graph)),
      plan_(std::move(plan)),
      max_batch_(max_batch),
      kernels_(kernels),
      arena_(std::move(arena)) {
  RUBATO_CHECK(max_batch >= 1 && arena_.size() >= plan_.size);
  values_.resize(graph_.nodes.size() + 1);
}

LayerContext Network::ContextOf(size_t node, const std::vector<int64_t>& scratch) {
  const Layer& layer = *graph_.nodes[node].layer;
  LayerContext context;
  context.training = training_;
  context.kernels = kernels_;
  context.key = inputs_.keys + node;
  context.orders = OrdersOf(graph_, plan_.orders, node);
  const int64_t saved = layer.saved_size(*kernels_, arena_.dtype(), n_);
  if (layer.SavesStatistics() && IsHalf(arena_.dtype())) {
    const TensorRef values = arena_.Slice(plan_.saved[node], {2 * saved});
    context.saved = TensorRef::At(const_cast<void*>(values.address()), DType::kFloat32, {saved});
  } else {
    context.saved = arena_.Slice(plan_.saved[node], {saved});
  }
  context.scratch = arena_.Slice(
      scratch[node], {layer.scratch_size(*kernels_, arena_.dtype(), n_, context.orders)});
  return context;
}

ConstTensorRef Network::ParametersOf(size_t i) const {
  const Graph::Node& node = graph_.nodes[i];
  if (!inputs_.factors.is_null() && node.layer->multiplications() > 0) {
    return inputs_.factors.Slice(inputs_.factor_begins[i], {node.parameters});
  }
  return inputs_.parameters.Slice(node.begin, {node.parameters});
}

const ConstTensorRef& Network::InputOf(const Graph::Node& node) const {
  return node.input == 0 && node.layer->TakesIndices() ? indices_ : values_[node.input];
}

ConstTensorRef Network::Forward(const ConstTensorRef& parameters, const ConstTensorRef& x,
                                bool training, uint64_t key, const TensorRef& gradient,
                                AwaitParameters await) {
  for (size_t i = 0; i < keys_.size(); ++i) keys_[i] = Key(key, i);
  return Forward({parameters, x, keys_.data()}, training, gradient, await);
}

ConstTensorRef Network::Forward(const Inputs& inputs, bool training, const TensorRef& gradient,
                                AwaitParameters await) {
  n_ = inputs.x.size() / SizeOf(graph_.shapes[0]);
  RUBATO_CHECK(n_ >= 1 && n_ <= max_batch_ && inputs.parameters.size() == graph_.size);
  training_ = training;
  inputs_ = inputs;
  values_[0] = inputs.x.Reshaped(BatchOf(n_, graph_.shapes[0]));
  indices_ = inputs.indices.is_null() ? values_[0] : inputs.indices.Reshaped(values_[0].shape());
  for (size_t i = 0; i < graph_.nodes.size(); ++i) {
    const Graph::Node& node = graph_.nodes[i];
    const ConstTensorRef& input = values_[node.input];
    const Shape shape = BatchOf(n_, graph_.shapes[i + 1]);
    if (IsAlias(graph_, plan_.orders, i)) {
      values_[i + 1] = input.Reshaped(shape);
      continue;
    }
    if (!await({node.begin, node.begin + node.parameters}) ||
        !await({node.buffer_begin, node.buffer_begin + node.buffers})) {
      return {};
    }
    const TensorRef y = arena_.Slice(plan_.storages[plan_.storage_of[i + 1]], shape);
    if (node.layer == nullptr) {
      kernels_->AddTensors(input, values_[node.other], y);
    } else {
      LayerContext context = ContextOf(i, plan_.scratch);
      if (node.buffers > 0) {
        context.buffers = inputs.parameters.Slice(node.buffer_begin, {node.buffers});
        if (!gradient.is_null()) {
          context.statistics = gradient.Slice(node.buffer_begin, {node.buffers});
        }
      }
      node.layer->Forward(context, ParametersOf(i), InputOf(node), y);
    }
    values_[i + 1] = y;
  }
  return values_.back();
}

TensorRef Network::Gradient(int gradient, int value) {
  return arena_.Slice(plan_.gradients[gradient], BatchOf(n_, graph_.shapes[value]));
}

TensorRef Network::output_gradient() {
  return Gradient(plan_.output_gradient, static_cast<int>(graph_.nodes.size()));
}

ConstTensorRef Network::Backward(const ConstTensorRef& parameters, const TensorRef& gradient,
                                 absl::FunctionRef<void(int64_t begin)> ready) {
  RUBATO_CHECK(training_ && gradient.size() == graph_.size &&
               parameters.address() == inputs_.parameters.address());
  if (graph_.trainable < graph_.size) ready(graph_.trainable);
  for (const MemoryPlan::Step& step : plan_.backward) {
    // A gradient's steps name a value, of which there is one more.
    const Graph::Node& node =
        graph_.nodes[step.kind == MemoryPlan::Step::kLayer || step.kind == MemoryPlan::Step::kReady
                         ? step.node
                         : 0];
    switch (step.kind) {
      case MemoryPlan::Step::kLayer:
        node.layer->Backward(ContextOf(step.node, plan_.backward_scratch), ParametersOf(step.node),
                             InputOf(node), values_[step.node + 1],
                             Gradient(step.dy, step.node + 1),
                             step.dx < 0 ? TensorRef() : Gradient(step.dx, node.input),
                             gradient.Slice(node.begin, {node.parameters}));
        break;
      case MemoryPlan::Step::kAdd:
      case MemoryPlan::Step::kCopy: {
        const Shape shape = BatchOf(n_, graph_.shapes[step.node]);
        const TensorRef from = arena_.Slice(plan_.gradients[step.from], shape);
        const TensorRef to = arena_.Slice(plan_.gradients[step.to], shape);
        step.kind == MemoryPlan::Step::kAdd ? kernels_->AddTensors(to, from, to)
                                            : kernels_->Copy(from, to);
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
