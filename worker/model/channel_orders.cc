#include "worker/model/channel_orders.h"

namespace rubato {
namespace {

class Planner {
 public:
  explicit Planner(const Graph& graph) : graph_(graph) {
    for (size_t value = 0; value < graph.shapes.size(); ++value) {
      leader_.push_back(static_cast<int>(value));
    }
    gain_.resize(graph.shapes.size());
    is_first_.resize(graph.shapes.size());
  }

  // Whether its two orders differ.
  bool HasOrder(int value) const {
    const Shape& shape = graph_.shapes[value];
    return shape.size() == 3 && shape[0] > 1 && shape[1] * shape[2] > 1;
  }

  void Join(int a, int b) {
    if (HasOrder(a) && HasOrder(b)) leader_[LeaderOf(a)] = LeaderOf(b);
  }
  void Gain(int value, int64_t values) { gain_[value] += values; }
  void KeepFirst(int value) { is_first_[value] = true; }

  std::vector<ChannelOrder> Decide() {
    const int values = static_cast<int>(gain_.size());
    std::vector<int64_t> gains(values);
    std::vector<bool> is_first(values);
    for (int value = 0; value < values; ++value) {
      const int leader = LeaderOf(value);
      gains[leader] += gain_[value];
      is_first[leader] = is_first[leader] || is_first_[value];
    }
    std::vector<ChannelOrder> orders;
    for (int value = 0; value < values; ++value) {
      const int leader = LeaderOf(value);
      const bool is_last = HasOrder(value) && !is_first[leader] && gains[leader] > 0;
      orders.push_back(is_last ? ChannelOrder::kLast : ChannelOrder::kFirst);
    }
    return orders;
  }

 private:
  int LeaderOf(int value) {
    while (leader_[value] != value) value = leader_[value] = leader_[leader_[value]];
    return value;
  }

  const Graph& graph_;
  std::vector<int> leader_;    // by value: one of the same order, or itself
  std::vector<int64_t> gain_;  // by value
  std::vector<bool> is_first_;
};

}  // namespace

std::vector<ChannelOrder> PlanChannelOrders(const Graph& graph, int64_t n, const KernelSet& kernels,
                                            DType dtype) {
  Planner planner(graph);
  const int nodes = static_cast<int>(graph.nodes.size());
  planner.KeepFirst(0);
  planner.KeepFirst(nodes);
  for (int i = 0; i < nodes; ++i) {
    const Graph::Node& node = graph.nodes[i];
    if (node.layer == nullptr) {
      planner.Join(node.input, i + 1);
      planner.Join(node.other, i + 1);
      continue;
    }
    switch (node.layer->order_use()) {
      case Layer::OrderUse::kFirst:
        planner.KeepFirst(node.input);
        planner.KeepFirst(i + 1);
        break;
      case Layer::OrderUse::kSame:
        planner.Join(node.input, i + 1);
        break;
      case Layer::OrderUse::kAny: {
        const OrderGain gain = node.layer->ChannelsLastGain(kernels, dtype, n);
        planner.Gain(node.input, gain.x);
        planner.Gain(i + 1, gain.y);
        break;
      }
    }
  }
  return planner.Decide();
}

}  // namespace rubato
