#include <algorithm>

#include "common/base/check.h"
#include "worker/model/network.h"

namespace rubato {
namespace {

// Plans backward first: when each gradient lives decides when activations may go. Times: node i
// runs forward at i, the loss at the number of nodes, step k of backward behind it.
class Planner {
 public:
  Planner(const Graph& graph, int64_t max_batch, Purpose purpose, const KernelSet& kernels,
          DType dtype)
      : graph_(graph),
        kernels_(kernels),
        dtype_(dtype),
        statistic_(std::max<int64_t>(1, BytesOf(DType::kFloat32) / BytesOf(dtype))),
        n_(max_batch),
        nodes_(static_cast<int>(graph.nodes.size())),
        purpose_(purpose) {
    consumers_.resize(nodes_ + 1);
    needed_.resize(nodes_ + 1);
    needed_[0] = purpose == Purpose::kInputGradient;
    for (int i = 0; i < nodes_; ++i) {
      const Graph::Node& node = graph.nodes[i];
      consumers_[node.input].push_back(i);
      if (node.other >= 0) consumers_[node.other].push_back(i);
      needed_[i + 1] =
          node.parameters > 0 || needed_[node.input] || (node.other >= 0 && needed_[node.other]);
    }
  }

  MemoryPlan Run() {
    plan_.orders = PlanChannelOrders(graph_, n_, kernels_, dtype_);
    PlanBackward();
    PlanStorages();
    PlaceAll();
    return std::move(plan_);
  }

 private:
  struct GradientBuffer {
    int64_t size;
    int owners = 0;  // values whose gradient it holds or will hold
    int first, last;
  };

  int64_t SizeOfValue(int value) const { return n_ * SizeOf(graph_.shapes[value]); }
  int now() const { return nodes_ + 1 + static_cast<int>(plan_.backward.size()); }

  int NewGradient(int value, int time) {
    buffers_.push_back({SizeOfValue(value), 1, time, time});
    return static_cast<int>(buffers_.size()) - 1;
  }

  void Do(const MemoryPlan::Step& step) {
    for (int buffer : {step.dy, step.dx, step.from, step.to}) {
      if (buffer >= 0) buffers_[buffer].last = now();
    }
    plan_.backward.push_back(step);
  }

  // The gradient of `value`, which others may hold too, gets memory of its own.
  void Unshare(int value) {
    const int shared = gradient_of_[value];
    if (buffers_[shared].owners == 1) return;
    const int own = NewGradient(value, now());
    Do({MemoryPlan::Step::kCopy, value, -1, -1, shared, own});
    --buffers_[shared].owners;
    gradient_of_[value] = own;
  }

  // `value` gets the gradient in `buffer`, besides what it has.
  void Pass(int buffer, int value) {
    if (!needed_[value]) return;
    if (gradient_of_[value] < 0) {
      gradient_of_[value] = buffer;
      ++buffers_[buffer].owners;
      return;
    }
    Unshare(value);
    Do({MemoryPlan::Step::kAdd, value, -1, -1, buffer, gradient_of_[value]});
  }

  void PlanBackward() {
    gradient_of_.assign(nodes_ + 1, -1);
    step_of_.assign(nodes_, -1);
    gradient_of_[nodes_] = NewGradient(nodes_, nodes_);
    plan_.output_gradient = gradient_of_[nodes_];
    if (purpose_ == Purpose::kEvaluation) return;
    for (int i = nodes_ - 1; i >= 0; --i) {
      const Graph::Node& node = graph_.nodes[i];
      if (!needed_[i + 1]) continue;
      const int dy = gradient_of_[i + 1];
      RUBATO_CHECK(dy >= 0);
      if (node.layer == nullptr) {
        Pass(dy, node.input);
        Pass(dy, node.other);
      } else if (IsAlias(graph_, plan_.orders, i)) {
        Pass(dy, node.input);
      } else {
        PlanLayer(i, dy);
      }
      --buffers_[dy].owners;
      if (node.parameters > 0) Do({MemoryPlan::Step::kReady, i});
    }
    plan_.input_gradient = gradient_of_[0];
    if (gradient_of_[0] >= 0) buffers_[gradient_of_[0]].last = now();
  }

  void PlanLayer(int i, int dy) {
    const int input = graph_.nodes[i].input;
    int dx = -1;
    if (needed_[input]) {
      const bool is_first = gradient_of_[input] < 0;
      if (is_first && graph_.nodes[i].layer->MayRunInPlace() && buffers_[dy].owners == 1) {
        dx = dy;
        ++buffers_[dy].owners;
      } else {
        dx = NewGradient(input, now());
      }
      step_of_[i] = now();
      Do({MemoryPlan::Step::kLayer, i, dy, dx});
      if (is_first) {
        gradient_of_[input] = dx;
      } else {
        --buffers_[dx].owners;  // until it is added
        Unshare(input);
        Do({MemoryPlan::Step::kAdd, input, -1, -1, dx, gradient_of_[input]});
      }
    } else {
      step_of_[i] = now();
      Do({MemoryPlan::Step::kLayer, i, dy, dx});
    }
  }

  struct Storage {
    int64_t size;
    int first, last;
    bool is_read_back = false;  // as the output of a layer, in its backward
  };

  void PlanStorages() {
    plan_.storage_of.assign(nodes_ + 1, -1);
    for (int i = 0; i < nodes_; ++i) {
      const Graph::Node& node = graph_.nodes[i];
      const int in = plan_.storage_of[node.input];
      int out;
      if (IsAlias(graph_, plan_.orders, i)) {
        out = in;
      } else if (node.layer != nullptr && node.layer->MayRunInPlace() &&
                 !node.layer->BackwardReadsX() && in >= 0 && !storages_[in].is_read_back &&
                 OnlyReader(i, in)) {
        out = in;
      } else {
        out = static_cast<int>(storages_.size());
        storages_.push_back({SizeOfValue(i + 1), i, i});
      }
      plan_.storage_of[i + 1] = out;
      if (out >= 0 && node.layer != nullptr && !IsAlias(graph_, plan_.orders, i) &&
          node.layer->BackwardReadsY()) {
        storages_[out].is_read_back = true;
      }
    }
    for (int i = 0; i < nodes_; ++i) {
      const Graph::Node& node = graph_.nodes[i];
      const bool runs_back = node.layer != nullptr && step_of_[i] >= 0;
      Keep(node.input, runs_back && node.layer->BackwardReadsX() ? step_of_[i] : i);
      if (node.other >= 0) Keep(node.other, i);
      Keep(i + 1, runs_back && node.layer->BackwardReadsY() ? step_of_[i] : i);
    }
    Keep(nodes_, nodes_);  // for the loss
  }

  // Whether no other node reads what storage `in` holds before node i runs.
  bool OnlyReader(int i, int in) const {
    for (int value = 0; value <= i; ++value) {
      if (plan_.storage_of[value] != in) continue;
      for (int consumer : consumers_[value]) {
        const Graph::Node& other = graph_.nodes[consumer];
        const bool is_alias =
            other.layer != nullptr && consumer < i && plan_.storage_of[consumer + 1] == in;
        if (consumer != i && !is_alias) return false;
      }
    }
    return true;
  }

  void Keep(int value, int until) {
    const int storage = plan_.storage_of[value];
    if (storage >= 0) storages_[storage].last = std::max(storages_[storage].last, until);
  }

  void PlaceAll() {
    std::vector<ArenaRequest> requests;
    for (const Storage& storage : storages_) {
      requests.push_back({storage.size, storage.first, storage.last});
    }
    for (const GradientBuffer& buffer : buffers_) {
      requests.push_back({buffer.size, buffer.first, buffer.last});
    }
    for (int i = 0; i < nodes_; ++i) {
      const Layer* layer = graph_.nodes[i].layer.get();
      const int back = std::max(step_of_[i], i);
      const int64_t saved = layer == nullptr ? 0
                                             : layer->saved_size(kernels_, dtype_, n_) *
                                                   (layer->SavesStatistics() ? statistic_ : 1);
      const int64_t scratch =
          layer == nullptr
              ? 0
              : layer->scratch_size(kernels_, dtype_, n_, OrdersOf(graph_, plan_.orders, i));
      requests.push_back({saved, i, back});
      requests.push_back({scratch, i, i});
      requests.push_back({scratch, back, back});
    }
    const ArenaPlan arena = PlanArena(requests);
    auto next = arena.offsets.begin();
    for (size_t i = 0; i < storages_.size(); ++i) plan_.storages.push_back(*next++);
    for (size_t i = 0; i < buffers_.size(); ++i) plan_.gradients.push_back(*next++);
    for (int i = 0; i < nodes_; ++i) {
      plan_.saved.push_back(*next++);
      plan_.scratch.push_back(*next++);
      plan_.backward_scratch.push_back(*next++);
    }
    plan_.size = arena.size;
  }

  const Graph& graph_;
  const KernelSet& kernels_;
  const DType dtype_;
  const int64_t statistic_;  // values in the place of one
  const int64_t n_;
  const int nodes_;
  const Purpose purpose_;
  std::vector<std::vector<int>> consumers_;  // by value
  std::vector<bool> needed_;                 // by value: whether it gets a gradient
  std::vector<GradientBuffer> buffers_;
  std::vector<int> gradient_of_;  // by value: its buffer so far, or -1
  std::vector<int> step_of_;      // by node: the time of its backward, or -1
  std::vector<Storage> storages_;
  MemoryPlan plan_;
};

}  // namespace

MemoryPlan PlanMemory(const Graph& graph, int64_t max_batch, Purpose purpose,
                      const KernelSet& kernels, DType dtype) {
  return Planner(graph, max_batch, purpose, kernels, dtype).Run();
}

}  // namespace rubato
