// In which order the channels of a model's values lie where it is computed.
#ifndef RUBATO_WORKER_MODEL_CHANNEL_ORDERS_H_
#define RUBATO_WORKER_MODEL_CHANNEL_ORDERS_H_

#include <cstdint>
#include <vector>

#include "tensor/convolution.h"
#include "tensor/kernel_set.h"
#include "worker/model/graph.h"

namespace rubato {

// Of each value of the graph, for batches of n by these kernels; its gradient lies likewise. Values
// between which no layer turns anything have one order: the channels are last if the turns that
// this spares move more values than those that it costs (Layer::ChannelsLastGain). They are first,
// as everywhere outside of the device, in the input, in the output, wherever a layer knows no other
// order, and of values that both orders are one for: of no planes, or of one channel or one place.
std::vector<ChannelOrder> PlanChannelOrders(const Graph& graph, int64_t n, const KernelSet& kernels,
                                            DType dtype);

// Those of a node's input and output.
inline LayerOrders OrdersOf(const Graph& graph, const std::vector<ChannelOrder>& orders,
                            size_t node) {
  return {orders[graph.nodes[node].input], orders[node + 1]};
}

// Whether the node's output is its input under another shape, in the same memory.
inline bool IsAlias(const Graph& graph, const std::vector<ChannelOrder>& orders, size_t node) {
  const Layer* const layer = graph.nodes[node].layer.get();
  return layer != nullptr && layer->OutputIsInput() &&
         orders[graph.nodes[node].input] == orders[node + 1];
}

}  // namespace rubato

#endif  // RUBATO_WORKER_MODEL_CHANNEL_ORDERS_H_
