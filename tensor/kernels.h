// The arithmetic behind layers and loss. Kernels check the shapes of what they are given: a
// mismatch is a bug of the caller. Unless said otherwise they take float32 or float64, the same
// for all tensors of a call, and tensors that do not overlap.
//
// Bits: MatMul and convolutions are OpenBLAS's or oneDNN's, on one thread, and their sums depend on
// the library's version and on the kernels that it has chosen for the processor (MatMulSignature).
// All others are the project's own and give equal bits at every level of the instruction set
// (common/base/isa.h).
#ifndef RUBATO_TENSOR_KERNELS_H_
#define RUBATO_TENSOR_KERNELS_H_

#include <cstdint>
#include <string>

#include "absl/types/span.h"
#include "common/base/isa.h"
#include "tensor/tensor.h"

namespace rubato {

enum class Transpose { kNo, kYes };

// c = a b, where a or b may be read as its transpose. a as read: (m, k), b: (k, n), c: (m, n).
void MatMul(const ConstTensorRef& a, Transpose transpose_a, const ConstTensorRef& b,
            Transpose transpose_b, const TensorRef& c);

// c += a b, likewise.
void MatMulAdd(const ConstTensorRef& a, Transpose transpose_a, const ConstTensorRef& b,
               Transpose transpose_b, const TensorRef& c);

// What decides the bits of MatMul besides its operands, e.g. "OpenBLAS 0.3.21 SkylakeX, oneDNN
// 2.6.3 avx512".
std::string MatMulSignature();

// Makes the libraries use one set of kernels on every processor that has the level, instead of the
// one that they would choose for it: for equal bits on unequal machines. For the start of main.
void FixMatMulKernels(Isa isa);

// Leaves to OpenBLAS what oneDNN measured faster at, for comparisons. For the start of main.
void UseOpenBlasAlone();

// y = x, value by value in row-major order; the shapes may differ, the sizes not.
void Copy(const ConstTensorRef& x, const TensorRef& y);

// All values 0.
void SetToZero(const TensorRef& y);

// y[i, j] += bias[j]. bias: (features), y: (n, features).
void AddBias(const ConstTensorRef& bias, const TensorRef& y);

// y[i, j] = bias[j].
void FillRows(const ConstTensorRef& bias, const TensorRef& y);

// sums[j] = sum over i of x[i, j]. x: (n, features), sums: (features). Each column is summed by
// four accumulators that take the rows in turn, added as (0 + 1) + (2 + 3).
void ColumnSums(const ConstTensorRef& x, const TensorRef& sums);

// y = max(x, 0), where NaN stays NaN. y may be x.
void Relu(const ConstTensorRef& x, const TensorRef& y);

// dx = dy where y is positive (or NaN), 0 elsewhere; y is what Relu gave. dx may be dy.
void ReluBackward(const ConstTensorRef& y, const ConstTensorRef& dy, const TensorRef& dx);

// y = 1 / (1 + e^-x), and dx = dy y (1 - y); y is what Sigmoid gave. float32 results of this and of
// the next functions are the nearest floats but for 0.02 units in the last place.
void Sigmoid(const ConstTensorRef& x, const TensorRef& y);
void SigmoidBackward(const ConstTensorRef& y, const ConstTensorRef& dy, const TensorRef& dx);

// y = tanh x, and dx = dy (1 - y^2); y is what Tanh gave.
void Tanh(const ConstTensorRef& x, const TensorRef& y);
void TanhBackward(const ConstTensorRef& y, const ConstTensorRef& dy, const TensorRef& dx);

// y = x P(X <= x) of the normal distribution, i.e. x (1 + erf(x / sqrt(2))) / 2, or
// x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2; with its derivative, which has most of its
// terms in common with it. y may be x.
enum class GeluForm { kExact, kTanh };
void Gelu(GeluForm form, const ConstTensorRef& x, const TensorRef& y);
void GeluWithDerivative(GeluForm form, const ConstTensorRef& x, const TensorRef& y,
                        const TensorRef& derivative);

// z = x y, value by value. z may be y.
void Multiply(const ConstTensorRef& x, const ConstTensorRef& y, const TensorRef& z);

// y[i] = x[i] / (1 - p) where RandomBits(key, i) >= p 2^32, x[i] * 0 elsewhere: a value stays with
// probability 1 - p, in [0, 1) up to 2^-32. It is its own gradient: dx = Dropout(dy).
void Dropout(uint64_t key, double p, const ConstTensorRef& x, const TensorRef& y);

// What a number costs whose distance from its target is d.
enum class RegressionForm {
  kSquared,   // d^2
  kAbsolute,  // |d|; its derivative at 0 is 0
  kHuber,     // d^2 / 2 where |d| <= delta, delta (|d| - delta / 2) elsewhere
};

struct RegressionOptions {
  RegressionForm form = RegressionForm::kSquared;
  double delta = 1;  // kHuber's, above 0
};

// The sum of what all values cost, with d = x[i] - t[i]; and its gradient by x, times `factor`.
double RegressionLoss(const ConstTensorRef& x, absl::Span<const float> t,
                      const RegressionOptions& options, double factor, const TensorRef& gradient);

struct CrossEntropySums {
  double loss = 0;      // sum over the samples of -log softmax(logits)[label]
  int64_t correct = 0;  // samples whose label has the greatest logit (the first among equals)
};

struct CrossEntropyOptions {
  double label_smoothing = 0;  // the part of each label that is spread evenly over all classes
  int64_t ignore_index = -1;   // labels that cost nothing
  double gradient_scale = 1;
  // (classes), in the kernels' memory, or none: the factor of each class's part of a label, as
  // torch.nn.CrossEntropyLoss(weight, reduction="sum"); and their sum.
  const float* class_weights = nullptr;
  double sum_of_weights = 0;
};

// Softmax cross-entropy of logits (n, classes) against labels (n), each in [0, classes), and its
// gradient (n, classes) by the logits, scaled: softmax(logits), less the (smoothed) label, where
// classes have no weights.
CrossEntropySums SoftmaxCrossEntropy(const ConstTensorRef& logits, absl::Span<const int32_t> labels,
                                     const CrossEntropyOptions& options, const TensorRef& gradient);
inline CrossEntropySums SoftmaxCrossEntropy(const ConstTensorRef& logits,
                                            absl::Span<const int32_t> labels,
                                            const TensorRef& gradient) {
  return SoftmaxCrossEntropy(logits, labels, {}, gradient);
}

}  // namespace rubato

#endif  // RUBATO_TENSOR_KERNELS_H_
