// The kernels that compute value by value, for tests that try each.
#ifndef RUBATO_TENSOR_CUDA_SINGLE_VALUE_KERNELS_H_
#define RUBATO_TENSOR_CUDA_SINGLE_VALUE_KERNELS_H_

#include "tensor/kernel_set.h"

namespace rubato {

// Calls unary(name, function) for those of one operand and binary(name, function) for those of two:
// functions of KernelSet, whose last argument is the result.
template <typename Unary, typename Binary>
void ForEachOfSingleValues(Unary unary, Binary binary) {
  unary("copy", &KernelSet::Copy);
  unary("relu", &KernelSet::Relu);
  unary("sigmoid", &KernelSet::Sigmoid);
  unary("tanh", &KernelSet::Tanh);
  binary("add", &KernelSet::AddTensors);
  binary("multiply", &KernelSet::Multiply);
  binary("relu backward", &KernelSet::ReluBackward);
  binary("sigmoid backward", &KernelSet::SigmoidBackward);
  binary("tanh backward", &KernelSet::TanhBackward);
}

}  // namespace rubato

#endif  // RUBATO_TENSOR_CUDA_SINGLE_VALUE_KERNELS_H_
