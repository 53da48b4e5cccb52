// Values brought to mean 0 and variance 1, and their gradients. Types, bits and shapes as in
// tensor/kernels.h. Means and variances (dividing by the number of values) are sums by lanes, in
// two passes. Weight and bias, and their gradients, may both be null: 1 and 0.
#ifndef RUBATO_TENSOR_NORMALIZATION_H_
#define RUBATO_TENSOR_NORMALIZATION_H_

#include <cstdint>

#include "tensor/tensor.h"

namespace rubato {

// y = (x - mean) / sqrt(variance + eps) * weight + bias over each row, as
// torch.nn.functional.layer_norm. x, y: (rows, columns); weight, bias: (columns). `statistics`
// (rows, 2) receives mean and 1 / sqrt(variance + eps) for the next function.
void LayerNorm(const ConstTensorRef& x, const ConstTensorRef& weight, const ConstTensorRef& bias,
               double eps, const TensorRef& y, const TensorRef& statistics);
// dx may be null.
void LayerNormBackward(const ConstTensorRef& x, const ConstTensorRef& weight,
                       const ConstTensorRef& statistics, const ConstTensorRef& dy,
                       const TensorRef& dx, const TensorRef& dweight, const TensorRef& dbias);

// Likewise over each group of channels of each example, as torch.nn.functional.group_norm. x, y:
// (n, channels, plane); weight, bias: (channels); statistics: (n, groups, 2).
void GroupNorm(int64_t groups, const ConstTensorRef& x, const ConstTensorRef& weight,
               const ConstTensorRef& bias, double eps, const TensorRef& y,
               const TensorRef& statistics);
void GroupNormBackward(int64_t groups, const ConstTensorRef& x, const ConstTensorRef& weight,
                       const ConstTensorRef& statistics, const ConstTensorRef& dy,
                       const TensorRef& dx, const TensorRef& dweight, const TensorRef& dbias);

// Likewise over each channel of the whole batch, as torch.nn.functional.batch_norm in training.
// statistics: (channels, 2).
void BatchNorm(const ConstTensorRef& x, const ConstTensorRef& weight, const ConstTensorRef& bias,
               double eps, const TensorRef& y, const TensorRef& statistics);
void BatchNormBackward(const ConstTensorRef& x, const ConstTensorRef& weight,
                       const ConstTensorRef& statistics, const ConstTensorRef& dy,
                       const TensorRef& dx, const TensorRef& dweight, const TensorRef& dbias);

// By given means and variances (channels), as torch.nn.functional.batch_norm in evaluation.
void BatchNormByStatistics(const ConstTensorRef& x, const ConstTensorRef& weight,
                           const ConstTensorRef& bias, const ConstTensorRef& mean,
                           const ConstTensorRef& variance, double eps, const TensorRef& y);

// What a batch of n examples adds to running averages: n times its means, then n times its unbiased
// variances (dividing by the number of values less 1). statistics: what BatchNorm left, of
// channels of so many values; averages: (2, channels). One value has no unbiased variance: PyTorch
// refuses it, here it counts as 0.
void BatchAverages(const ConstTensorRef& statistics, int64_t n, int64_t values, double eps,
                   const TensorRef& averages);

}  // namespace rubato

#endif  // RUBATO_TENSOR_NORMALIZATION_H_
