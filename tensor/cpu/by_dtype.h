#ifndef RUBATO_TENSOR_CPU_BY_DTYPE_H_
#define RUBATO_TENSOR_CPU_BY_DTYPE_H_

#include "tensor/tensor.h"

namespace rubato {

// Dispatches a kernel template by the tensors' type; call(T()) runs it.
template <typename Call>
auto ByDType(const ConstTensorRef& tensor, Call call) {
  if (tensor.dtype() == DType::kFloat32) return call(float());
  return call(double());  // other types are refused by values<double>()
}

}  // namespace rubato

#endif  // RUBATO_TENSOR_CPU_BY_DTYPE_H_
