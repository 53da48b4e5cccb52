// A device's kernels for who has float64 in the host's memory: each call sends its operands over,
// rounded to the type that the device computes in, and fetches the results.
#ifndef RUBATO_TENSOR_CUDA_ROUNDED_KERNELS_H_
#define RUBATO_TENSOR_CUDA_ROUNDED_KERNELS_H_

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <deque>
#include <string>
#include <vector>

#include "common/base/check.h"
#include "tensor/cuda/numbers.h"
#include "tensor/device.h"
#include "tensor/half_float.h"
#include "tensor/kernel_set.h"

namespace rubato {

class RoundedKernels final : public KernelSet {
 public:
  // dtype: of what tensor/kernel_set.h does not want in float32. What calls take of the device's
  // memory is not given back.
  RoundedKernels(Device* device, DType dtype) : device_(*device), dtype_(dtype) {}

  // In what type the result at an address was, and so was rounded to, at last.
  DType TypeOf(const void* result) const {
    for (auto each = fetched_.rbegin(); each != fetched_.rend(); ++each) {
      if (each->wanted.address() == result) return each->sent.dtype();
    }
    RUBATO_CHECK(false);
  }

  void Linear(const ConstTensorRef& x, const ConstTensorRef& weight, const ConstTensorRef& bias,
              const TensorRef& y) override {
    Call(&KernelSet::Linear, x, weight, bias, y);
  }
  void LinearBackward(const ConstTensorRef& x, const ConstTensorRef& weight,
                      const ConstTensorRef& dy, const TensorRef& dx, const TensorRef& dweight,
                      const TensorRef& dbias) override {
    Call(&KernelSet::LinearBackward, x, weight, dy, dx, InFloat32(dweight), InFloat32(dbias));
  }
  int64_t ConvolutionScratch(const Convolution& convolution, DType dtype,
                             int64_t n) const override {
    return device_.kernels().ConvolutionScratch(convolution, dtype, n);
  }
  void Conv2d(const Convolution& convolution, const ConstTensorRef& x, const ConstTensorRef& weight,
              const ConstTensorRef& bias, const TensorRef& y, const TensorRef& scratch) override {
    Call(&KernelSet::Conv2d, convolution, x, weight, bias, y, scratch);
  }
  void Conv2dBackward(const Convolution& convolution, const ConstTensorRef& x,
                      const ConstTensorRef& weight, const ConstTensorRef& dy, const TensorRef& dx,
                      const TensorRef& dweight, const TensorRef& dbias,
                      const TensorRef& scratch) override {
    Call(&KernelSet::Conv2dBackward, convolution, x, weight, dy, dx, InFloat32(dweight),
         InFloat32(dbias), scratch);
  }
  void Turn(const ConstTensorRef& x, const TensorRef& y) override { Call(&KernelSet::Turn, x, y); }
  AttentionMemory MemoryOf(const Attention& attention, int64_t n) const override {
    return device_.kernels().MemoryOf(attention, n);
  }
  void ScaledDotProductAttention(int64_t heads, bool causal, const ConstTensorRef& x,
                                 const TensorRef& y, const TensorRef& saved,
                                 const TensorRef& scratch) override {
    Call(&KernelSet::ScaledDotProductAttention, heads, causal, x, y, saved, scratch);
  }
  void ScaledDotProductAttentionBackward(int64_t heads, bool causal, const ConstTensorRef& x,
                                         const ConstTensorRef& y, const ConstTensorRef& saved,
                                         const ConstTensorRef& dy, const TensorRef& dx,
                                         const TensorRef& scratch) override {
    Call(&KernelSet::ScaledDotProductAttentionBackward, heads, causal, x, y, saved, dy, dx,
         scratch);
  }
  void Copy(const ConstTensorRef& x, const TensorRef& y) override { Call(&KernelSet::Copy, x, y); }
  void SetToZero(const TensorRef& y) override { Call(&KernelSet::SetToZero, y); }
  void AddTensors(const ConstTensorRef& x, const ConstTensorRef& y, const TensorRef& z) override {
    Call(&KernelSet::AddTensors, x, y, z);
  }
  void AddRow(const ConstTensorRef& x, const ConstTensorRef& bias, const TensorRef& y) override {
    Call(&KernelSet::AddRow, x, InFloat32(bias), y);
  }
  void ColumnSums(const ConstTensorRef& x, const TensorRef& sums) override {
    Call(&KernelSet::ColumnSums, x, InFloat32(sums));
  }
  void Multiply(const ConstTensorRef& x, const ConstTensorRef& y, const TensorRef& z) override {
    Call(&KernelSet::Multiply, x, y, z);
  }
  void Relu(const ConstTensorRef& x, const TensorRef& y) override { Call(&KernelSet::Relu, x, y); }
  void ReluBackward(const ConstTensorRef& y, const ConstTensorRef& dy,
                    const TensorRef& dx) override {
    Call(&KernelSet::ReluBackward, y, dy, dx);
  }
  void Sigmoid(const ConstTensorRef& x, const TensorRef& y) override {
    Call(&KernelSet::Sigmoid, x, y);
  }
  void SigmoidBackward(const ConstTensorRef& y, const ConstTensorRef& dy,
                       const TensorRef& dx) override {
    Call(&KernelSet::SigmoidBackward, y, dy, dx);
  }
  void Tanh(const ConstTensorRef& x, const TensorRef& y) override { Call(&KernelSet::Tanh, x, y); }
  void TanhBackward(const ConstTensorRef& y, const ConstTensorRef& dy,
                    const TensorRef& dx) override {
    Call(&KernelSet::TanhBackward, y, dy, dx);
  }
  void Gelu(GeluForm form, const ConstTensorRef& x, const TensorRef& y) override {
    Call(&KernelSet::Gelu, form, x, y);
  }
  void GeluWithDerivative(GeluForm form, const ConstTensorRef& x, const TensorRef& y,
                          const TensorRef& derivative) override {
    Call(&KernelSet::GeluWithDerivative, form, x, y, derivative);
  }
  void Dropout(const uint64_t* key, double p, const ConstTensorRef& x,
               const TensorRef& y) override {
    // A key has as many bytes as a float64.
    const TensorRef sent = Take(DType::kFloat64, {1});
    device_.Upload(Stream::kCompute, key, const_cast<void*>(sent.address()), sizeof *key);
    Call(&KernelSet::Dropout, static_cast<const uint64_t*>(sent.address()), p, x, y);
  }
  void Embed(const ConstTensorRef& x, const ConstTensorRef& weight, const TensorRef& y) override {
    Call(&KernelSet::Embed, InFloat32(x), InFloat32(weight), y);
  }
  void EmbedBackward(const ConstTensorRef& x, const ConstTensorRef& dy,
                     const TensorRef& dweight) override {
    Call(&KernelSet::EmbedBackward, InFloat32(x), dy, InFloat32(dweight));
  }
  void MaxPool2d(const Window& window, const ConstTensorRef& x, const TensorRef& y) override {
    Call(&KernelSet::MaxPool2d, window, x, y);
  }
  void MaxPool2dBackward(const Window& window, const ConstTensorRef& x, const ConstTensorRef& y,
                         const ConstTensorRef& dy, const TensorRef& dx) override {
    Call(&KernelSet::MaxPool2dBackward, window, x, y, dy, dx);
  }
  void AvgPool2d(const Window& window, bool count_padding, const ConstTensorRef& x,
                 const TensorRef& y) override {
    Call(&KernelSet::AvgPool2d, window, count_padding, x, y);
  }
  void AvgPool2dBackward(const Window& window, bool count_padding, const ConstTensorRef& dy,
                         const TensorRef& dx) override {
    Call(&KernelSet::AvgPool2dBackward, window, count_padding, dy, dx);
  }
  void AdaptiveAvgPool2d(const Planes& planes, int64_t out, const ConstTensorRef& x,
                         const TensorRef& y) override {
    Call(&KernelSet::AdaptiveAvgPool2d, planes, out, x, y);
  }
  void AdaptiveAvgPool2dBackward(const Planes& planes, int64_t out, const ConstTensorRef& dy,
                                 const TensorRef& dx) override {
    Call(&KernelSet::AdaptiveAvgPool2dBackward, planes, out, dy, dx);
  }
  void LayerNorm(const ConstTensorRef& x, const ConstTensorRef& weight, const ConstTensorRef& bias,
                 double eps, const TensorRef& y, const TensorRef& statistics) override {
    Call(&KernelSet::LayerNorm, x, InFloat32(weight), InFloat32(bias), eps, y,
         InFloat32(statistics));
  }
  void LayerNormBackward(const ConstTensorRef& x, const ConstTensorRef& weight,
                         const ConstTensorRef& statistics, const ConstTensorRef& dy,
                         const TensorRef& dx, const TensorRef& dweight,
                         const TensorRef& dbias) override {
    Call(&KernelSet::LayerNormBackward, x, InFloat32(weight), InFloat32(statistics), dy, dx,
         InFloat32(dweight), InFloat32(dbias));
  }
  void GroupNorm(int64_t groups, const ConstTensorRef& x, const ConstTensorRef& weight,
                 const ConstTensorRef& bias, double eps, const TensorRef& y,
                 const TensorRef& statistics) override {
    Call(&KernelSet::GroupNorm, groups, x, InFloat32(weight), InFloat32(bias), eps, y,
         InFloat32(statistics));
  }
  void GroupNormBackward(int64_t groups, const ConstTensorRef& x, const ConstTensorRef& weight,
                         const ConstTensorRef& statistics, const ConstTensorRef& dy,
                         const TensorRef& dx, const TensorRef& dweight,
                         const TensorRef& dbias) override {
    Call(&KernelSet::GroupNormBackward, groups, x, InFloat32(weight), InFloat32(statistics), dy, dx,
         InFloat32(dweight), InFloat32(dbias));
  }
  void BatchNorm(const ConstTensorRef& x, const ConstTensorRef& weight, const ConstTensorRef& bias,
                 double eps, const TensorRef& y, const TensorRef& statistics, int64_t examples,
                 const TensorRef& averages) override {
    Call(&KernelSet::BatchNorm, x, InFloat32(weight), InFloat32(bias), eps, y,
         InFloat32(statistics), examples, InFloat32(averages));
  }
  void BatchNormBackward(const ConstTensorRef& x, const ConstTensorRef& weight,
                         const ConstTensorRef& statistics, const ConstTensorRef& dy,
                         const TensorRef& dx, const TensorRef& dweight,
                         const TensorRef& dbias) override {
    Call(&KernelSet::BatchNormBackward, x, InFloat32(weight), InFloat32(statistics), dy, dx,
         InFloat32(dweight), InFloat32(dbias));
  }
  void BatchNormByStatistics(const ConstTensorRef& x, const ConstTensorRef& weight,
                             const ConstTensorRef& bias, const ConstTensorRef& mean,
                             const ConstTensorRef& variance, double eps,
                             const TensorRef& y) override {
    Call(&KernelSet::BatchNormByStatistics, x, InFloat32(weight), InFloat32(bias), InFloat32(mean),
         InFloat32(variance), eps, y);
  }

 private:
  struct Result {
    TensorRef wanted, sent;
  };
  template <typename Tensor>
  struct Wanted {
    Tensor tensor;
  };

  template <typename Tensor>
  static Wanted<Tensor> InFloat32(const Tensor& tensor) {
    return {tensor};
  }

  template <typename Function, typename... A>
  void Call(Function function, const A&... arguments) {
    (device_.kernels().*function)(Sent(arguments)...);
    device_.Synchronize();
    for (const Result& result : results_) Fetch(result);
    fetched_.insert(fetched_.end(), results_.begin(), results_.end());
    results_.clear();
    sent_.clear();
  }

  // What is no tensor goes as it is.
  template <typename A>
  const A& Sent(const A& argument) {
    return argument;
  }
  ConstTensorRef Sent(const ConstTensorRef& operand) { return Send(operand, dtype_); }
  ConstTensorRef Sent(const Wanted<ConstTensorRef>& operand) {
    return Send(operand.tensor, DType::kFloat32);
  }
  TensorRef Sent(const TensorRef& result) { return SendResult(result, dtype_); }
  TensorRef Sent(const Wanted<TensorRef>& result) {
    return SendResult(result.tensor, DType::kFloat32);
  }

  TensorRef Take(DType dtype, const Shape& shape) {
    const absl::StatusOr<void*> memory = device_.Allocate(SizeOf(shape) * BytesOf(dtype));
    RUBATO_CHECK(memory.ok());
    return TensorRef::At(*memory, dtype, shape);
  }

  // Its values are sent, too: a call may leave some, or read them.
  TensorRef SendResult(const TensorRef& wanted, DType dtype) {
    results_.push_back({wanted, Send(wanted, dtype)});
    return results_.back().sent;
  }

  template <typename F>
  static void OfType(DType dtype, F f) {
    dtype == DType::kBFloat16  ? f(BFloat16())
    : dtype == DType::kFloat16 ? f(Float16())
                               : f(float());
  }

  TensorRef Send(const ConstTensorRef& from, DType dtype) {
    if (from.is_null()) return TensorRef();
    const TensorRef to = Take(dtype, from.shape());
    OfType(dtype, [&](auto zero) {
      using T = decltype(zero);
      std::vector<T> values;
      for (double value : from.values<double>()) values.push_back(T(static_cast<float>(value)));
      sent_.emplace_back(values.size() * sizeof(T), '\0');
      std::memcpy(sent_.back().data(), values.data(), sent_.back().size());
    });
    device_.Upload(Stream::kCompute, sent_.back().data(), const_cast<void*>(to.address()),
                   static_cast<int64_t>(sent_.back().size()));
    return to;
  }

  void Fetch(const Result& result) {
    if (result.wanted.is_null()) return;
    OfType(result.sent.dtype(), [&](auto zero) {
      using T = decltype(zero);
      std::vector<T> values(result.sent.size());
      device_.Download(Stream::kCompute, result.sent.address(), values.data(),
                       static_cast<int64_t>(values.size() * sizeof(T)));
      device_.Synchronize();
      std::transform(values.begin(), values.end(), result.wanted.values<double>().begin(),
                     [](T value) { return Widen(value); });
    });
  }

  Device& device_;
  const DType dtype_;
  std::vector<Result> results_;   // of the call
  std::vector<Result> fetched_;   // of all calls
  std::deque<std::string> sent_;  // until the call is over
};

}  // namespace rubato

#endif  // RUBATO_TENSOR_CUDA_ROUNDED_KERNELS_H_
