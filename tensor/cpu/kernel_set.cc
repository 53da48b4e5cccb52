#include "tensor/kernel_set.h"

#include "common/base/check.h"
#include "tensor/attention.h"
#include "tensor/normalization.h"

namespace rubato {
namespace {

template <typename T>
void TurnEach(const ConstTensorRef& x, const TensorRef& y) {
  const int64_t rows = x.dim(1), columns = x.dim(2), matrix = rows * columns;
  const absl::Span<const T> from = x.values<T>();
  const absl::Span<T> to = y.values<T>();
  for (int64_t i = 0; i < x.size(); ++i) {
    const int64_t begin = i / matrix * matrix, row = (i - begin) / columns;
    to[begin + (i - begin) % columns * rows + row] = from[i];
  }
}

void CheckChannelsFirst(const Convolution& c) {
  RUBATO_CHECK(c.x_order == ChannelOrder::kFirst && c.y_order == ChannelOrder::kFirst);
}

class Cpu final : public KernelSet {
 public:
  void Linear(const ConstTensorRef& x, const ConstTensorRef& weight, const ConstTensorRef& bias,
              const TensorRef& y) override {
    if (bias.is_null()) {
      MatMul(x, Transpose::kNo, weight, Transpose::kYes, y);
    } else {
      // Cheaper than to add it afterwards: the library would fill with zeros.
      FillRows(bias, y);
      MatMulAdd(x, Transpose::kNo, weight, Transpose::kYes, y);
    }
  }
  void LinearBackward(const ConstTensorRef& x, const ConstTensorRef& weight,
                      const ConstTensorRef& dy, const TensorRef& dx, const TensorRef& dweight,
                      const TensorRef& dbias) override {
    MatMul(dy, Transpose::kYes, x, Transpose::kNo, dweight);
    if (!dbias.is_null()) rubato::ColumnSums(dy, dbias);
    if (!dx.is_null()) MatMul(dy, Transpose::kNo, weight, Transpose::kNo, dx);
  }
  int64_t ConvolutionScratch(const Convolution& convolution, DType, int64_t n) const override {
    return rubato::ConvolutionScratch(convolution, n);
  }
  void Turn(const ConstTensorRef& x, const TensorRef& y) override {
    x.dtype() == DType::kFloat64 ? TurnEach<double>(x, y) : TurnEach<float>(x, y);
  }
  AttentionMemory MemoryOf(const Attention& a, int64_t n) const override {
    return {n * a.heads * a.places * a.places, a.places * a.places};
  }
  void Dropout(const uint64_t* key, double p, const ConstTensorRef& x,
               const TensorRef& y) override {
    rubato::Dropout(*key, p, x, y);
  }
  void Conv2d(const Convolution& convolution, const ConstTensorRef& x, const ConstTensorRef& weight,
              const ConstTensorRef& bias, const TensorRef& y, const TensorRef& scratch) override {
    CheckChannelsFirst(convolution);
    rubato::Conv2d(convolution, x, weight, bias, y, scratch);
  }
  void Conv2dBackward(const Convolution& convolution, const ConstTensorRef& x,
                      const ConstTensorRef& weight, const ConstTensorRef& dy, const TensorRef& dx,
                      const TensorRef& dweight, const TensorRef& dbias,
                      const TensorRef& scratch) override {
    CheckChannelsFirst(convolution);
    rubato::Conv2dBackward(convolution, x, weight, dy, dx, dweight, dbias, scratch);
  }
  void ScaledDotProductAttention(int64_t heads, bool causal, const ConstTensorRef& x,
                                 const TensorRef& y, const TensorRef& probabilities,
                                 const TensorRef&) override {
    rubato::ScaledDotProductAttention(heads, causal, x, y, probabilities);
  }
  void ScaledDotProductAttentionBackward(int64_t heads, bool causal, const ConstTensorRef& x,
                                         const ConstTensorRef&, const ConstTensorRef& probabilities,
                                         const ConstTensorRef& dy, const TensorRef& dx,
                                         const TensorRef& scratch) override {
    rubato::ScaledDotProductAttentionBackward(heads, causal, x, probabilities, dy, dx, scratch);
  }
  void Copy(const ConstTensorRef& x, const TensorRef& y) override { rubato::Copy(x, y); }
  void SetToZero(const TensorRef& y) override { rubato::SetToZero(y); }
  void AddTensors(const ConstTensorRef& x, const ConstTensorRef& y, const TensorRef& z) override {
    rubato::AddTensors(x, y, z);
  }
  void AddRow(const ConstTensorRef& x, const ConstTensorRef& bias, const TensorRef& y) override {
    rubato::AddRow(x, bias, y);
  }
  void ColumnSums(const ConstTensorRef& x, const TensorRef& sums) override {
    rubato::ColumnSums(x, sums);
  }
  void Multiply(const ConstTensorRef& x, const ConstTensorRef& y, const TensorRef& z) override {
    rubato::Multiply(x, y, z);
  }
  void Relu(const ConstTensorRef& x, const TensorRef& y) override { rubato::Relu(x, y); }
  void ReluBackward(const ConstTensorRef& y, const ConstTensorRef& dy,
                    const TensorRef& dx) override {
    rubato::ReluBackward(y, dy, dx);
  }
  void Sigmoid(const ConstTensorRef& x, const TensorRef& y) override { rubato::Sigmoid(x, y); }
  void SigmoidBackward(const ConstTensorRef& y, const ConstTensorRef& dy,
                       const TensorRef& dx) override {
    rubato::SigmoidBackward(y, dy, dx);
  }
  void Tanh(const ConstTensorRef& x, const TensorRef& y) override { rubato::Tanh(x, y); }
  void TanhBackward(const ConstTensorRef& y, const ConstTensorRef& dy,
                    const TensorRef& dx) override {
    rubato::TanhBackward(y, dy, dx);
  }
  void Gelu(GeluForm form, const ConstTensorRef& x, const TensorRef& y) override {
    rubato::Gelu(form, x, y);
  }
  void GeluWithDerivative(GeluForm form, const ConstTensorRef& x, const TensorRef& y,
                          const TensorRef& derivative) override {
    rubato::GeluWithDerivative(form, x, y, derivative);
  }
  void Embed(const ConstTensorRef& x, const ConstTensorRef& weight, const TensorRef& y) override {
    rubato::Embed(x, weight, y);
  }
  void EmbedBackward(const ConstTensorRef& x, const ConstTensorRef& dy,
                     const TensorRef& dweight) override {
    rubato::EmbedBackward(x, dy, dweight);
  }
  void MaxPool2d(const Window& window, const ConstTensorRef& x, const TensorRef& y) override {
    RUBATO_CHECK(window.inner == 1);
    rubato::MaxPool2d(window, x, y);
  }
  void MaxPool2dBackward(const Window& window, const ConstTensorRef& x, const ConstTensorRef& y,
                         const ConstTensorRef& dy, const TensorRef& dx) override {
    RUBATO_CHECK(window.inner == 1);
    rubato::MaxPool2dBackward(window, x, y, dy, dx);
  }
  void AvgPool2d(const Window& window, bool count_padding, const ConstTensorRef& x,
                 const TensorRef& y) override {
    RUBATO_CHECK(window.inner == 1);
    rubato::AvgPool2d(window, count_padding, x, y);
  }
  void AvgPool2dBackward(const Window& window, bool count_padding, const ConstTensorRef& dy,
                         const TensorRef& dx) override {
    RUBATO_CHECK(window.inner == 1);
    rubato::AvgPool2dBackward(window, count_padding, dy, dx);
  }
  void AdaptiveAvgPool2d(const Planes& planes, int64_t out, const ConstTensorRef& x,
                         const TensorRef& y) override {
    RUBATO_CHECK(planes.inner == 1);
    rubato::AdaptiveAvgPool2d(planes.height, planes.width, out, x, y);
  }
  void AdaptiveAvgPool2dBackward(const Planes& planes, int64_t out, const ConstTensorRef& dy,
                                 const TensorRef& dx) override {
    RUBATO_CHECK(planes.inner == 1);
    rubato::AdaptiveAvgPool2dBackward(planes.height, planes.width, out, dy, dx);
  }
  void LayerNorm(const ConstTensorRef& x, const ConstTensorRef& weight, const ConstTensorRef& bias,
                 double eps, const TensorRef& y, const TensorRef& statistics) override {
    rubato::LayerNorm(x, weight, bias, eps, y, statistics);
  }
  void LayerNormBackward(const ConstTensorRef& x, const ConstTensorRef& weight,
                         const ConstTensorRef& statistics, const ConstTensorRef& dy,
                         const TensorRef& dx, const TensorRef& dweight,
                         const TensorRef& dbias) override {
    rubato::LayerNormBackward(x, weight, statistics, dy, dx, dweight, dbias);
  }
  void GroupNorm(int64_t groups, const ConstTensorRef& x, const ConstTensorRef& weight,
                 const ConstTensorRef& bias, double eps, const TensorRef& y,
                 const TensorRef& statistics) override {
    rubato::GroupNorm(groups, x, weight, bias, eps, y, statistics);
  }
  void GroupNormBackward(int64_t groups, const ConstTensorRef& x, const ConstTensorRef& weight,
                         const ConstTensorRef& statistics, const ConstTensorRef& dy,
                         const TensorRef& dx, const TensorRef& dweight,
                         const TensorRef& dbias) override {
    rubato::GroupNormBackward(groups, x, weight, statistics, dy, dx, dweight, dbias);
  }
  void BatchNorm(const ConstTensorRef& x, const ConstTensorRef& weight, const ConstTensorRef& bias,
                 double eps, const TensorRef& y, const TensorRef& statistics, int64_t examples,
                 const TensorRef& averages) override {
    rubato::BatchNorm(x, weight, bias, eps, y, statistics);
    if (averages.is_null()) return;
    BatchAverages(statistics, examples, x.dim(0) * x.dim(2), eps, averages);
  }
  void BatchNormBackward(const ConstTensorRef& x, const ConstTensorRef& weight,
                         const ConstTensorRef& statistics, const ConstTensorRef& dy,
                         const TensorRef& dx, const TensorRef& dweight,
                         const TensorRef& dbias) override {
    rubato::BatchNormBackward(x, weight, statistics, dy, dx, dweight, dbias);
  }
  void BatchNormByStatistics(const ConstTensorRef& x, const ConstTensorRef& weight,
                             const ConstTensorRef& bias, const ConstTensorRef& mean,
                             const ConstTensorRef& variance, double eps,
                             const TensorRef& y) override {
    rubato::BatchNormByStatistics(x, weight, bias, mean, variance, eps, y);
  }
};

}  // namespace

KernelSet& CpuKernels() {
  static Cpu* const kernels = new Cpu;  // has no state
  return *kernels;
}

}  // namespace rubato
