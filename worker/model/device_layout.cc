#include "worker/model/device_layout.h"

namespace rubato {
namespace {

// Places tensors behind one another in memory whose address is not known yet.
class Places {
 public:
  // Returns the offset.
  int64_t Add(int64_t bytes) {
    constexpr int64_t kAlignment = 256;
    const int64_t offset = bytes_;
    bytes_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
    return offset;
  }
  int64_t bytes() const { return bytes_; }

 private:
  int64_t bytes_ = 0;
};

}  // namespace

DeviceLayout LayOut(const Graph& graph, const MemoryPlan& plan, const Objective& objective,
                    int64_t max_batch, DType dtype, Purpose purpose, const Keeping& keeping) {
  const DType value = HostTypeOf(dtype);
  const bool trains = purpose != Purpose::kEvaluation, classes = IsClassification(objective.loss);
  DeviceLayout l;
  l.target = classes ? DType::kInt32 : DType::kFloat32;
  l.n_features = max_batch * SizeOf(graph.shapes[0]);
  l.n_targets = max_batch * (classes ? objective.places : objective.outputs);
  l.n_rows = max_batch * (classes ? objective.places : 1);
  const int64_t keys = static_cast<int64_t>(graph.nodes.size()) * 8;
  l.n_weights = static_cast<int64_t>(objective.class_weights.size());
  Places device, factors;
  for (const Graph::Node& node : graph.nodes) {
    // Each aligned for itself: products are slow where their factors are not.
    const bool multiplies = node.layer != nullptr && node.layer->multiplications() > 0;
    l.factor_begins.push_back(factors.Add(multiplies ? node.parameters * BytesOf(dtype) : 0) /
                              BytesOf(dtype));
  }
  l.n_factors = factors.bytes() / BytesOf(dtype);
  const int64_t vector_bytes = (graph.size + keeping.spare) * BytesOf(value);
  l.parameters = device.Add(vector_bytes);
  l.factors = device.Add(IsHalf(dtype) ? factors.bytes() : 0);
  for (int i = 0; trains && i <= keeping.keeps; ++i) {
    l.gradients.push_back(device.Add(vector_bytes));
  }
  l.features = device.Add(l.n_features * BytesOf(value));
  l.converted = device.Add(IsHalf(dtype) ? l.n_features * BytesOf(dtype) : 0);
  l.targets = device.Add(l.n_targets * BytesOf(l.target));
  l.weights = device.Add(l.n_weights * BytesOf(DType::kFloat32));
  l.scale = device.Add(8);
  l.keys = device.Add(keys);
  l.rows = device.Add(2 * l.n_rows * 8);
  l.n_flags = static_cast<int64_t>(graph.nodes.size()) + 1;
  l.sums = device.Add((3 + l.n_flags) * 8);
  l.arena = device.Add(plan.size * BytesOf(dtype));
  l.device_bytes = device.bytes();
  Places host;
  l.host.parameters = host.Add(graph.size * BytesOf(value));
  l.host.gradient = host.Add(trains ? graph.size * BytesOf(value) : 0);
  l.host.features = host.Add(l.n_features * BytesOf(value));
  l.host.targets = host.Add(l.n_targets * BytesOf(l.target));
  l.host.weights = host.Add(l.n_weights * BytesOf(DType::kFloat32));
  l.host.scale = host.Add(8);
  l.host.keys = host.Add(keys);
  l.host.sums = host.Add(3 * 8);
  l.host.flags = host.Add(l.n_flags * 8);
  l.host.bytes = host.bytes();
  return l;
}

}  // namespace rubato
