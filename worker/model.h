// Layers and the loss behind them, over a flat vector of parameters.
#ifndef RUBATO_WORKER_MODEL_H_
#define RUBATO_WORKER_MODEL_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/job.pb.h"
#include "proto/layout.pb.h"
#include "tensor/tensor.h"
#include "worker/loss.h"
#include "worker/network.h"

namespace rubato {

// The parameters of a model on examples of shape `example_shape` (without the batch): named as by
// the torch.nn.Sequential of the same layers ("1.weight"), in forward order; buffers, such as
// batch norm's running statistics, behind all parameters. Needs no memory for them.
// InvalidArgument, naming the layer, if the layers do not fit the examples, one another or the
// objective.
absl::StatusOr<proto::Layout> LayoutOf(const proto::Model& config,
                                       absl::Span<const int64_t> example_shape,
                                       const Objective& objective);

// Bytes that such a Model holds: activations, their gradients, what layers keep. Errors as
// LayoutOf.
absl::StatusOr<int64_t> MemoryOf(const proto::Model& config,
                                 absl::Span<const int64_t> example_shape,
                                 const Objective& objective, int64_t max_batch, Purpose purpose);

// Holds activations and their gradients for a batch of at most max_batch examples, so that a
// call allocates nothing; holds no parameters. For one thread at a time.
//
// In the methods, `features` holds n examples, 1 to max_batch, row by row, and targets are n;
// `parameters` is the whole flat vector. All values but targets are of the model's type: a
// Span<const float> (or double, for float64) can be passed as it is.
class Model {
 public:
  // Errors as LayoutOf, and ResourceExhausted if there is no memory for max_batch examples.
  // dtype: float32, or float64 for tests of the arithmetic. For kEvaluation, which needs a fraction
  // of the memory, Gradient may not be called.
  static absl::StatusOr<std::unique_ptr<Model>> Create(const proto::Model& config,
                                                       absl::Span<const int64_t> example_shape,
                                                       const Objective& objective,
                                                       int64_t max_batch,
                                                       DType dtype = DType::kFloat32,
                                                       Purpose purpose = Purpose::kTraining);

  const proto::Layout& layout() const { return network_->graph().layout; }
  // Values of the flat vector, of which the last may be buffers: see proto/layout.proto, `average`.
  int64_t parameter_count() const { return network_->graph().size; }
  int64_t trainable_count() const { return network_->graph().trainable; }
  int64_t example_size() const { return SizeOf(example_shape_); }  // values of one example
  int64_t max_batch() const { return max_batch_; }
  const Graph& graph() const { return network_->graph(); }
  // Of activations and gradients.
  int64_t memory_bytes() const { return network_->memory_bytes(); }

  // The last layer's output in evaluation, (n, outputs), of which there may be more than classes.
  // Valid until the next call.
  ConstTensorRef Logits(const ConstTensorRef& parameters, const ConstTensorRef& features);

  // The loss of a batch in evaluation, without its gradient: nothing is random.
  BatchResult Evaluate(const ConstTensorRef& parameters, const ConstTensorRef& features,
                       const Targets& targets);

  // The loss in training, and its gradient by the parameters: of the SUM over the samples, not the
  // mean; of buffers: the samples' number times what the batch measured. What layers draw is a
  // function of `key`: node i of the graph, which is layer i unless there are compositions, draws
  // under Key(key, i).
  // `gradient` (parameter_count) is overwritten; it may not overlap `parameters`. Last layers
  // come first: each time that gradient[begin, ...) has become final down from the previous
  // begin, ready(begin) is called; the last call is ready(0).
  // `await` is asked for what a layer of forward reads, first layers first, and for all parameters
  // before backward; if it says no, the call ends with none, `gradient` spoilt and ready not
  // called.
  std::optional<BatchResult> Gradient(const ConstTensorRef& parameters,
                                      const ConstTensorRef& features, const Targets& targets,
                                      uint64_t key, const TensorRef& gradient,
                                      absl::FunctionRef<void(int64_t begin)> ready,
                                      AwaitParameters await);
  // While all parameters are there.
  BatchResult Gradient(const ConstTensorRef& parameters, const ConstTensorRef& features,
                       const Targets& targets, uint64_t key, const TensorRef& gradient,
                       absl::FunctionRef<void(int64_t begin)> ready) {
    return *Gradient(parameters, features, targets, key, gradient, ready, AllHaveArrived);
  }

 private:
  Model(std::unique_ptr<Network> network, absl::Span<const int64_t> example_shape,
        const Objective& objective, int64_t max_batch);

  const std::unique_ptr<Network> network_;
  const Shape example_shape_;
  const Objective objective_;
  const int64_t max_batch_;
};

}  // namespace rubato

#endif  // RUBATO_WORKER_MODEL_H_
