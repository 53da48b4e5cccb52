// The arithmetic behind layers, on one kind of device. What the functions compute is said beside
// those of the CPU, of the same names: tensor/kernels.h, attention.h, convolution.h and
// normalization.h. Layers know this interface only.
//
// Tensors lie in the device's memory and, on a device of its own, calls return before their work is
// done: it follows in the order of the calls (tensor/device.h).
//
// In half floats (float16, bfloat16) parameters that are factors of products are half floats too;
// all others, gradients by parameters and statistics are float32. Sums are of float32.
#ifndef RUBATO_TENSOR_KERNEL_SET_H_
#define RUBATO_TENSOR_KERNEL_SET_H_

#include <cstdint>

#include "tensor/attention.h"
#include "tensor/convolution.h"
#include "tensor/kernels.h"
#include "tensor/tensor.h"

namespace rubato {

// What attention keeps for its backward, and scratch of either function: values of its type.
struct AttentionMemory {
  int64_t saved, scratch;
};

class KernelSet {
 public:
  virtual ~KernelSet() = default;

  // y = x weight^T + bias. x: (rows, in), weight: (out, in), bias: (out) or null, y: (rows, out).
  virtual void Linear(const ConstTensorRef& x, const ConstTensorRef& weight,
                      const ConstTensorRef& bias, const TensorRef& y) = 0;
  // dx and dbias may be null.
  virtual void LinearBackward(const ConstTensorRef& x, const ConstTensorRef& weight,
                              const ConstTensorRef& dy, const TensorRef& dx,
                              const TensorRef& dweight, const TensorRef& dbias) = 0;

  // Values of scratch of type `dtype`, for a batch of n; for n examples no less than for fewer.
  virtual int64_t ConvolutionScratch(const Convolution& convolution, DType dtype,
                                     int64_t n) const = 0;
  virtual void Conv2d(const Convolution& convolution, const ConstTensorRef& x,
                      const ConstTensorRef& weight, const ConstTensorRef& bias, const TensorRef& y,
                      const TensorRef& scratch) = 0;
  virtual void Conv2dBackward(const Convolution& convolution, const ConstTensorRef& x,
                              const ConstTensorRef& weight, const ConstTensorRef& dy,
                              const TensorRef& dx, const TensorRef& dweight, const TensorRef& dbias,
                              const TensorRef& scratch) = 0;

  // Whether it is computed with the channels of x and y last, in whatever order they lie; for all n
  // or none. Then those of the weights are last: (out_channels, kernel, kernel, in_channels /
  // groups); their gradient is in the order of parameters.
  virtual bool ComputesChannelsLast(const Convolution&, DType /*dtype*/, int64_t /*n*/) const {
    return false;
  }
  // y (matrices, columns, rows) = each matrix of x (matrices, rows, columns) turned.
  virtual void Turn(const ConstTensorRef& x, const TensorRef& y) = 0;

  // What the two functions need for a batch of n; the same at each call, and for n examples no less
  // than for fewer.
  virtual AttentionMemory MemoryOf(const Attention& attention, int64_t n) const = 0;
  // `saved` is probabilities, or what the kernels have in their place.
  virtual void ScaledDotProductAttention(int64_t heads, bool causal, const ConstTensorRef& x,
                                         const TensorRef& y, const TensorRef& saved,
                                         const TensorRef& scratch) = 0;
  virtual void ScaledDotProductAttentionBackward(int64_t heads, bool causal,
                                                 const ConstTensorRef& x, const ConstTensorRef& y,
                                                 const ConstTensorRef& saved,
                                                 const ConstTensorRef& dy, const TensorRef& dx,
                                                 const TensorRef& scratch) = 0;

  virtual void Copy(const ConstTensorRef& x, const TensorRef& y) = 0;
  virtual void SetToZero(const TensorRef& y) = 0;
  virtual void AddTensors(const ConstTensorRef& x, const ConstTensorRef& y, const TensorRef& z) = 0;
  virtual void AddRow(const ConstTensorRef& x, const ConstTensorRef& bias, const TensorRef& y) = 0;
  virtual void ColumnSums(const ConstTensorRef& x, const TensorRef& sums) = 0;
  virtual void Multiply(const ConstTensorRef& x, const ConstTensorRef& y, const TensorRef& z) = 0;

  virtual void Relu(const ConstTensorRef& x, const TensorRef& y) = 0;
  virtual void ReluBackward(const ConstTensorRef& y, const ConstTensorRef& dy,
                            const TensorRef& dx) = 0;
  virtual void Sigmoid(const ConstTensorRef& x, const TensorRef& y) = 0;
  virtual void SigmoidBackward(const ConstTensorRef& y, const ConstTensorRef& dy,
                               const TensorRef& dx) = 0;
  virtual void Tanh(const ConstTensorRef& x, const TensorRef& y) = 0;
  virtual void TanhBackward(const ConstTensorRef& y, const ConstTensorRef& dy,
                            const TensorRef& dx) = 0;
  virtual void Gelu(GeluForm form, const ConstTensorRef& x, const TensorRef& y) = 0;
  virtual void GeluWithDerivative(GeluForm form, const ConstTensorRef& x, const TensorRef& y,
                                  const TensorRef& derivative) = 0;
  // The key, too, lies in the device's memory: it is another one at each step.
  virtual void Dropout(const uint64_t* key, double p, const ConstTensorRef& x,
                       const TensorRef& y) = 0;

  virtual void Embed(const ConstTensorRef& x, const ConstTensorRef& weight, const TensorRef& y) = 0;
  virtual void EmbedBackward(const ConstTensorRef& x, const ConstTensorRef& dy,
                             const TensorRef& dweight) = 0;

  virtual void MaxPool2d(const Window& window, const ConstTensorRef& x, const TensorRef& y) = 0;
  virtual void MaxPool2dBackward(const Window& window, const ConstTensorRef& x,
                                 const ConstTensorRef& y, const ConstTensorRef& dy,
                                 const TensorRef& dx) = 0;
  virtual void AvgPool2d(const Window& window, bool count_padding, const ConstTensorRef& x,
                         const TensorRef& y) = 0;
  virtual void AvgPool2dBackward(const Window& window, bool count_padding, const ConstTensorRef& dy,
                                 const TensorRef& dx) = 0;
  virtual void AdaptiveAvgPool2d(const Planes& planes, int64_t out, const ConstTensorRef& x,
                                 const TensorRef& y) = 0;
  virtual void AdaptiveAvgPool2dBackward(const Planes& planes, int64_t out,
                                         const ConstTensorRef& dy, const TensorRef& dx) = 0;

  virtual void LayerNorm(const ConstTensorRef& x, const ConstTensorRef& weight,
                         const ConstTensorRef& bias, double eps, const TensorRef& y,
                         const TensorRef& statistics) = 0;
  virtual void LayerNormBackward(const ConstTensorRef& x, const ConstTensorRef& weight,
                                 const ConstTensorRef& statistics, const ConstTensorRef& dy,
                                 const TensorRef& dx, const TensorRef& dweight,
                                 const TensorRef& dbias) = 0;
  virtual void GroupNorm(int64_t groups, const ConstTensorRef& x, const ConstTensorRef& weight,
                         const ConstTensorRef& bias, double eps, const TensorRef& y,
                         const TensorRef& statistics) = 0;
  virtual void GroupNormBackward(int64_t groups, const ConstTensorRef& x,
                                 const ConstTensorRef& weight, const ConstTensorRef& statistics,
                                 const ConstTensorRef& dy, const TensorRef& dx,
                                 const TensorRef& dweight, const TensorRef& dbias) = 0;
  // And, unless averages is null, BatchAverages of so many examples: where channels are last, more
  // rows of x are one.
  virtual void BatchNorm(const ConstTensorRef& x, const ConstTensorRef& weight,
                         const ConstTensorRef& bias, double eps, const TensorRef& y,
                         const TensorRef& statistics, int64_t examples,
                         const TensorRef& averages) = 0;
  virtual void BatchNormBackward(const ConstTensorRef& x, const ConstTensorRef& weight,
                                 const ConstTensorRef& statistics, const ConstTensorRef& dy,
                                 const TensorRef& dx, const TensorRef& dweight,
                                 const TensorRef& dbias) = 0;
  virtual void BatchNormByStatistics(const ConstTensorRef& x, const ConstTensorRef& weight,
                                     const ConstTensorRef& bias, const ConstTensorRef& mean,
                                     const ConstTensorRef& variance, double eps,
                                     const TensorRef& y) = 0;
};

// The CPU's. Its memory is the host's, and its work is done when a call returns.
KernelSet& CpuKernels();

}  // namespace rubato

#endif  // RUBATO_TENSOR_KERNEL_SET_H_
