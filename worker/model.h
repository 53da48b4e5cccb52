// A sequence of layers and the loss behind it, over a flat vector of parameters.
#ifndef RUBATO_WORKER_MODEL_H_
#define RUBATO_WORKER_MODEL_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/job.pb.h"
#include "proto/layout.pb.h"
#include "tensor/tensor.h"
#include "worker/layer.h"
#include "worker/loss.h"

namespace rubato {

// The parameters of a model on examples of shape `example_shape` (without the batch): named as by
// the torch.nn.Sequential of the same layers ("1.weight"), in forward order. Needs no memory for
// them. InvalidArgument, naming the layer, if the layers do not fit the examples, one another or
// the objective.
absl::StatusOr<proto::Layout> LayoutOf(const proto::Model& config,
                                       absl::Span<const int64_t> example_shape,
                                       const Objective& objective);

// Holds activations and their gradients for a batch of at most max_batch examples, so that a
// call allocates nothing; holds no parameters. For one thread at a time.
//
// In the methods, `features` holds n examples, 1 to max_batch, row by row, and targets are n;
// `parameters` is the whole flat vector. All values but targets are of the model's type: a
// Span<const float> (or double, for float64) can be passed as it is.
class Model {
 public:
  // Errors as LayoutOf, and ResourceExhausted if there is no memory for max_batch examples.
  // dtype: float32, or float64 for tests of the arithmetic.
  static absl::StatusOr<std::unique_ptr<Model>> Create(const proto::Model& config,
                                                       absl::Span<const int64_t> example_shape,
                                                       const Objective& objective,
                                                       int64_t max_batch,
                                                       DType dtype = DType::kFloat32);

  const proto::Layout& layout() const { return layout_; }
  int64_t parameter_count() const { return parameter_count_; }
  int64_t example_size() const { return SizeOf(example_shape_); }  // values of one example
  int64_t max_batch() const { return max_batch_; }

  // The last layer's output in evaluation, (n, outputs), of which there may be more than classes.
  // Valid until the next call.
  ConstTensorRef Logits(const ConstTensorRef& parameters, const ConstTensorRef& features);

  // The loss of a batch in evaluation, without its gradient: nothing is random.
  BatchResult Evaluate(const ConstTensorRef& parameters, const ConstTensorRef& features,
                       const Targets& targets);

  // The loss in training, and its gradient by the parameters: of the SUM over the samples, not the
  // mean. What layers draw is a function of `key`: layer i draws under Key(key, i).
  // `gradient` (parameter_count) is overwritten; it may not overlap `parameters`. Last layers
  // come first: each time that gradient[begin, ...) has become final down from the previous
  // begin, ready(begin) is called; the last call is ready(0).
  BatchResult Gradient(const ConstTensorRef& parameters, const ConstTensorRef& features,
                       const Targets& targets, uint64_t key, const TensorRef& gradient,
                       absl::FunctionRef<void(int64_t begin)> ready);

 private:
  // A layer and where its numbers lie.
  struct Stage {
    std::unique_ptr<Layer> layer;
    LayerContext context;    // of the call at hand
    int64_t begin = 0;       // of its parameters in the flat vector
    int64_t parameters = 0;  // how many
    Tensor output;           // (max_batch, *output_shape); none if its output is its input
    ConstTensorRef x, y;     // of the batch at hand
  };

  Model(proto::Layout layout, absl::Span<const int64_t> example_shape, const Objective& objective,
        int64_t max_batch);
  // Returns n.
  int64_t Forward(const ConstTensorRef& parameters, const ConstTensorRef& features, bool training,
                  uint64_t key);
  BatchResult Loss(const Targets& targets, const TensorRef& gradient);

  std::vector<Stage> stages_;
  const proto::Layout layout_;
  const Shape example_shape_;
  const Objective objective_;
  const int64_t max_batch_;
  int64_t parameter_count_ = 0;
  // The gradients by the output and by the input of the stage at hand, in turn.
  Tensor gradients_[2];
};

}  // namespace rubato

#endif  // RUBATO_WORKER_MODEL_H_
