// Runs a graph forward and backward in memory that is planned once.
#ifndef RUBATO_WORKER_MODEL_NETWORK_H_
#define RUBATO_WORKER_MODEL_NETWORK_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "common/space/flat_space.h"
#include "tensor/tensor.h"
#include "worker/model/arena.h"
#include "worker/model/channel_orders.h"
#include "worker/model/graph.h"
#include "worker/model/layers/layer.h"

namespace rubato {

// How backward goes through a graph, and what lies where: activations, their gradients and what
// layers keep for themselves, each only as long as it is needed.
struct MemoryPlan {
  struct Step {
    enum Kind { kLayer, kAdd, kCopy, kReady } kind;
    int node = 0;            // kLayer, kReady; kAdd, kCopy: the value
    int dy = -1, dx = -1;    // kLayer: gradients; dx may be none
    int from = -1, to = -1;  // kAdd, kCopy: gradients
  };
  std::vector<Step> backward;
  std::vector<ChannelOrder> orders;  // by value: see PlanChannelOrders
  // By value: the storage of its activation, -1 for the input's own memory.
  std::vector<int> storage_of;
  int output_gradient = 0;
  int input_gradient = -1;  // none if it is not wanted
  // Offsets of values in the arena.
  std::vector<int64_t> storages, gradients;
  std::vector<int64_t> saved, scratch, backward_scratch;  // by node
  int64_t size = 0;                                       // values of the arena
};

// Asked before values of the parameters are read that may not have arrived yet: whether they may be
// now, or else the call is to end.
using AwaitParameters = absl::FunctionRef<bool(Range values)>;
inline bool AllHaveArrived(Range) { return true; }

// What a network is for: gradients of its parameters, those of its input too, or neither.
enum class Purpose { kTraining, kInputGradient, kEvaluation };

// For batches of up to max_batch examples, of values of type `dtype`.
MemoryPlan PlanMemory(const Graph& graph, int64_t max_batch, Purpose purpose,
                      const KernelSet& kernels = CpuKernels(), DType dtype = DType::kFloat32);

// After Create a call allocates nothing. For one thread at a time.
class Network {
 public:
  // ResourceExhausted if there is no memory.
  static absl::StatusOr<std::unique_ptr<Network>> Create(Graph graph, int64_t max_batch,
                                                         DType dtype, Purpose purpose);

  // Computes by `kernels`, which must outlive it, in `arena`, plan.size values of their device:
  // half floats too. No allocation.
  Network(Graph graph, MemoryPlan plan, int64_t max_batch, KernelSet* kernels, TensorRef arena);

  // What a batch is computed from; all of it lies where the kernels compute.
  struct Inputs {
    ConstTensorRef parameters;  // the flat vector
    ConstTensorRef x;
    const uint64_t* keys = nullptr;  // that of each node's draws
    // In half floats, where parameters are of float32: those of layers of products in the network's
    // type, node i's from factor_begins[i] on; and x in float32, for layers that take indices.
    ConstTensorRef factors = {};
    absl::Span<const int64_t> factor_begins = {};
    ConstTensorRef indices = {};
  };

  const Graph& graph() const { return graph_; }
  int64_t memory_bytes() const { return plan_.size * BytesOf(arena_.dtype()); }

  // The output for x, n examples, which the caller keeps until Backward is done. `parameters` is
  // the flat vector. In training, what nodes draw is a function of `key` (node i draws under
  // Key(key, i)), and what the batch adds to buffers is written to their place in `gradient`, the
  // flat vector's like, unless it is null. Valid until the next call. Each node waits for its own
  // parameters; null if they need no waiting.
  ConstTensorRef Forward(const ConstTensorRef& parameters, const ConstTensorRef& x, bool training,
                         uint64_t key, const TensorRef& gradient,
                         AwaitParameters await = AllHaveArrived);

  // Likewise, from where `inputs` lie until Backward is done.
  ConstTensorRef Forward(const Inputs& inputs, bool training, const TensorRef& gradient,
                         AwaitParameters await = AllHaveArrived);

  // Where the caller puts the gradient by the last output before Backward.
  TensorRef output_gradient();

  // After Forward in training: overwrites the parameters' part of `gradient`. ready as in
  // Model::Gradient. Returns the gradient by the input, if that is a purpose, or null.
  ConstTensorRef Backward(const ConstTensorRef& parameters, const TensorRef& gradient,
                          absl::FunctionRef<void(int64_t begin)> ready);

 private:
  TensorRef Gradient(int gradient, int value);
  LayerContext ContextOf(size_t node, const std::vector<int64_t>& scratch);
  ConstTensorRef ParametersOf(size_t node) const;
  const ConstTensorRef& InputOf(const Graph::Node& node) const;

  const Graph graph_;
  const MemoryPlan plan_;
  const int64_t max_batch_;
  KernelSet* const kernels_;
  Tensor memory_;  // of the arena, on the CPU
  const TensorRef arena_;
  // Of the batch at hand.
  int64_t n_ = 0;
  Inputs inputs_;
  ConstTensorRef indices_;  // x as layers see it that take indices
  std::vector<ConstTensorRef> values_;
  bool training_ = false;
  std::vector<uint64_t> keys_;  // on the CPU
};

}  // namespace rubato

#endif  // RUBATO_WORKER_MODEL_NETWORK_H_
