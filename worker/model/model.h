// Layers and the loss behind them, over a flat vector of parameters.
#ifndef RUBATO_WORKER_MODEL_MODEL_H_
#define RUBATO_WORKER_MODEL_MODEL_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/job.pb.h"
#include "proto/layout.pb.h"
#include "tensor/device.h"
#include "tensor/tensor.h"
#include "worker/model/device_step.h"
#include "worker/model/loss.h"
#include "worker/model/network.h"

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
  // With a device the model computes there, and the types of worker/model/device_step.h are known
  // too; ResourceExhausted then says what batch would fit. It keeps gradients there.
  static absl::StatusOr<std::unique_ptr<Model>> Create(
      const proto::Model& config, absl::Span<const int64_t> example_shape,
      const Objective& objective, int64_t max_batch, DType dtype = DType::kFloat32,
      Purpose purpose = Purpose::kTraining, std::unique_ptr<Device> device = nullptr,
      const Keeping& keeping = {});

  const proto::Layout& layout() const { return graph().layout; }
  // Values of the flat vector, of which the last may be buffers: see proto/layout.proto, `average`.
  int64_t parameter_count() const { return graph().size; }
  int64_t trainable_count() const { return graph().trainable; }
  int64_t example_size() const { return SizeOf(example_shape_); }  // values of one example
  int64_t max_batch() const { return max_batch_; }
  const Objective& objective() const { return objective_; }
  const Graph& graph() const {
    return device_step_ != nullptr ? device_step_->graph() : network_->graph();
  }
  // The device's (Device::fused_by, Device::fused).
  std::string fused_by() const { return device_step_ != nullptr ? device_step_->fused_by() : ""; }
  std::string fused() const { return device_step_ != nullptr ? device_step_->fused() : ""; }
  // Of activations and gradients.
  int64_t memory_bytes() const {
    return device_step_ != nullptr ? device_step_->memory_bytes() : network_->memory_bytes();
  }

  // From here until it is called again, `parameters` has the same values in all calls, so that a
  // device is sent them once. Before the first time they may differ from call to call. Gradients
  // that a device has kept are forgotten.
  void OnNewParameters() {
    if (device_step_ != nullptr) device_step_->OnNewParameters();
  }

  // The last layer's output in evaluation, (n, outputs), of which there may be more than classes.
  // Valid until the next call. On the CPU alone.
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

  // On a device (worker/model/device_step.h).
  void OnParametersThere() { device_step_->OnParametersThere(); }
  TensorRef parameters_there() const { return device_step_->parameters(); }
  TensorRef sum_there() const { return device_step_->sum(); }

  // As long as what this returns lives, which must be less long than the model, the device itself
  // reads parameters and writes gradients that lie there: whole pages. Null if it does not; on the
  // CPU.
  std::shared_ptr<const void> Pin(void* host, int64_t bytes);
  bool IsPinned(const ConstTensorRef& host) const { return device_step_->IsPinned(host); }
  // See DeviceStep.
  int64_t copied_bytes() const {
    return device_step_ != nullptr ? device_step_->copied_bytes() : 0;
  }

  bool is_on_device() const { return device_step_ != nullptr; }
  // Whether all of the last gradient that `ready` was told of is known to be finite.
  bool is_known_finite() const { return device_step_ != nullptr && device_step_->is_finite(); }

  // Gradients that a device keeps, so as to add them up; 0 on the CPU.
  int keeps() const { return device_step_ != nullptr ? device_step_->keeps() : 0; }
  // As Gradient, on a device. Without features the gradient is 0. `gradient` is written only if the
  // sum leaves.
  std::optional<BatchResult> GradientOnDevice(const ConstTensorRef& parameters,
                                              const ConstTensorRef& features,
                                              const Targets& targets, uint64_t key,
                                              const TensorRef& gradient, const Summing& summing,
                                              absl::FunctionRef<void(int64_t begin)> ready,
                                              AwaitParameters await);

 private:
  Model(std::unique_ptr<Network> network, std::unique_ptr<DeviceStep> device_step,
        absl::Span<const int64_t> example_shape, const Objective& objective, int64_t max_batch);

  // One of them.
  const std::unique_ptr<Network> network_;
  const std::unique_ptr<DeviceStep> device_step_;
  const Shape example_shape_;
  const Objective objective_;
  const int64_t max_batch_;
};

}  // namespace rubato

#endif  // RUBATO_WORKER_MODEL_MODEL_H_
