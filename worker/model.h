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

// The parameters of a model on examples of shape `example_shape` (without the batch) with labels
// in [0, classes): named as by the torch.nn.Sequential of the same layers ("1.weight"), in forward
// order. Needs no memory for them. InvalidArgument, naming the layer, if the layers do not fit
// the examples, one another or the classes.
absl::StatusOr<proto::Layout> LayoutOf(const proto::Model& config,
                                       absl::Span<const int64_t> example_shape, int64_t classes);

// Holds activations and their gradients for a batch of at most max_batch examples, so that a
// call allocates nothing; holds no parameters. For one thread at a time.
//
// In the methods, n is the number of labels, 1 to max_batch; `features` holds n examples, row by
// row; `parameters` is the whole flat vector. All values are of the model's type: a
// Span<const float> (or double, for float64) can be passed as it is.
class Model {
 public:
  // Errors as LayoutOf, and ResourceExhausted if there is no memory for max_batch examples.
  // dtype: float32, or float64 for tests of the arithmetic.
  static absl::StatusOr<std::unique_ptr<Model>> Create(const proto::Model& config,
                                                       absl::Span<const int64_t> example_shape,
                                                       int64_t classes, int64_t max_batch,
                                                       DType dtype = DType::kFloat32);

  const proto::Layout& layout() const { return layout_; }
  int64_t parameter_count() const { return parameter_count_; }
  int64_t example_size() const { return SizeOf(example_shape_); }  // values of one example
  int64_t max_batch() const { return max_batch_; }

  // The last layer's output, (n, classes or more). Valid until the next call. n is taken from the
  // number of values in `features`.
  ConstTensorRef Logits(const ConstTensorRef& parameters, const ConstTensorRef& features);

  // The loss of a batch, without its gradient.
  BatchResult Evaluate(const ConstTensorRef& parameters, const ConstTensorRef& features,
                       absl::Span<const int32_t> labels);

  // The loss, and its gradient by the parameters: of the SUM over the samples, not the mean.
  // `gradient` (parameter_count) is overwritten; it may not overlap `parameters`. Last layers
  // come first: each time that gradient[begin, ...) has become final down from the previous
  // begin, ready(begin) is called; the last call is ready(0).
  BatchResult Gradient(const ConstTensorRef& parameters, const ConstTensorRef& features,
                       absl::Span<const int32_t> labels, const TensorRef& gradient,
                       absl::FunctionRef<void(int64_t begin)> ready);

 private:
  // A layer and where its numbers lie.
  struct Stage {
    std::unique_ptr<Layer> layer;
    int64_t begin = 0;       // of its parameters in the flat vector
    int64_t parameters = 0;  // how many
    Tensor output;           // (max_batch, *output_shape); none if its output is its input
    ConstTensorRef x, y;    // of the batch at hand
  };

  Model(proto::Layout layout, absl::Span<const int64_t> example_shape, int64_t max_batch);
  void Forward(const ConstTensorRef& parameters, const ConstTensorRef& features, int64_t n);

  std::vector<Stage> stages_;
  const proto::Layout layout_;
  const Shape example_shape_;
  const int64_t max_batch_;
  int64_t parameter_count_ = 0;
  // The gradients by the output and by the input of the stage at hand, in turn.
  Tensor gradients_[2];
};

}  // namespace rubato

#endif  // RUBATO_WORKER_MODEL_H_
