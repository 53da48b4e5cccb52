// One step of a model: a function of its input and its parameters, and the derivative of it.
#ifndef RUBATO_WORKER_MODEL_LAYERS_LAYER_H_
#define RUBATO_WORKER_MODEL_LAYERS_LAYER_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "proto/layout.pb.h"
#include "tensor/kernel_set.h"
#include "tensor/tensor.h"

namespace rubato {

// How the channels of x and y lie, and of their gradients: of (channels, height, width) examples.
struct LayerOrders {
  ChannelOrder x = ChannelOrder::kFirst, y = ChannelOrder::kFirst;
};

// How many values less a layer turns for each example if the channels of x, or of y, are last;
// negative if it turns more.
struct OrderGain {
  int64_t x = 0, y = 0;
};

// Factors of products that come first among a layer's parameters, (filters, channels, places), and
// that the kernels take as (filters, places, channels).
struct TurnedFactors {
  int64_t filters = 0, channels = 0, places = 0;
};

// What a call depends on besides its operands, and where it may write besides its results.
struct LayerContext {
  bool training = false;  // else evaluation
  LayerOrders orders = {};
  // What computes; all that is named here lies in its device's memory.
  KernelSet* kernels = &CpuKernels();
  // Of the layer's random draws (common/base/random.h); unused in evaluation.
  const uint64_t* key = nullptr;
  // What Forward leaves for Backward: saved_size() values.
  TensorRef saved = {};
  // scratch_size() values, of no meaning between calls.
  TensorRef scratch = {};
  // Values of buffers(), one behind the other; in training Forward writes what the batch adds to
  // their averages into `statistics`: n times what it measured.
  ConstTensorRef buffers = {};
  TensorRef statistics = {};
};

// A layer has no memory between calls but what it computes: parameters, activations and gradients
// belong to the caller, and are of one type, float32 or float64. Its parameters are one flat
// range, in the order of parameters(). Batches have the examples as first dimension. Calls
// allocate nothing.
class Layer {
 public:
  virtual ~Layer() = default;

  // What the job calls it: "linear".
  virtual std::string kind() const = 0;

  // Of one example.
  const Shape& input_shape() const { return input_shape_; }
  const Shape& output_shape() const { return output_shape_; }

  // Names are within the layer, as PyTorch's module calls them: "weight".
  const std::vector<proto::Parameter>& parameters() const { return parameters_; }

  // What is measured and not trained, such as running statistics; named likewise.
  virtual std::vector<proto::Parameter> buffers() const { return {}; }

  // True if the output is the input under another shape, so that a caller that looks at its own
  // memory under that shape need not call the layer at all, but where orders of channels differ.
  virtual bool OutputIsInput() const { return false; }

  // Whether Backward reads the values of x, and of y: else they may be gone.
  virtual bool BackwardReadsX() const { return true; }
  virtual bool BackwardReadsY() const { return true; }

  // Whether y may be x, and dx may be dy: the same memory.
  virtual bool MayRunInPlace() const { return false; }

  // Values of LayerContext::saved and scratch for a batch of n, of type `dtype`.
  virtual int64_t saved_size(const KernelSet&, DType /*dtype*/, int64_t /*n*/) const { return 0; }
  virtual int64_t scratch_size(const KernelSet&, DType /*dtype*/, int64_t /*n*/,
                               const LayerOrders&) const {
    return 0;
  }

  // Whether what it saves are statistics, which are of float32 where values are half floats.
  virtual bool SavesStatistics() const { return false; }

  // What orders of channels it knows: channels that are first alone; any, with y in the order of x;
  // or any of each, at a gain.
  enum class OrderUse { kFirst, kSame, kAny };
  virtual OrderUse order_use() const { return OrderUse::kFirst; }
  virtual OrderGain ChannelsLastGain(const KernelSet&, DType /*dtype*/, int64_t /*n*/) const {
    return {};
  }

  virtual TurnedFactors turned_factors(const KernelSet&, DType /*dtype*/, int64_t /*n*/) const {
    return {};
  }

  // Whether x are whole numbers, which half floats do not hold.
  virtual bool TakesIndices() const { return false; }

  // Products of two numbers, each added to a sum, in Forward for one example: what the layer costs,
  // where that is what it costs.
  virtual int64_t multiplications() const { return 0; }

  // y = f(x). x: (n, *input_shape), y: (n, *output_shape), whatever their channels' order is;
  // parameters: (number of them).
  virtual void Forward(const LayerContext& context, const ConstTensorRef& parameters,
                       const ConstTensorRef& x, const TensorRef& y) = 0;

  // From dy, the gradient of some scalar by y: its gradient by the parameters and, unless dx is
  // null, by x. Both are overwritten. context, x and y are those of Forward.
  virtual void Backward(const LayerContext& context, const ConstTensorRef& parameters,
                        const ConstTensorRef& x, const ConstTensorRef& y, const ConstTensorRef& dy,
                        const TensorRef& dx, const TensorRef& dparameters) = 0;

 protected:
  Layer(Shape input_shape, Shape output_shape, std::vector<proto::Parameter> parameters)
      : input_shape_(std::move(input_shape)),
        output_shape_(std::move(output_shape)),
        parameters_(std::move(parameters)) {}

 private:
  const Shape input_shape_;
  const Shape output_shape_;
  const std::vector<proto::Parameter> parameters_;
};

}  // namespace rubato

#endif  // RUBATO_WORKER_MODEL_LAYERS_LAYER_H_
