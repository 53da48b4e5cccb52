// A layer's factors of products, in half floats.
#ifndef RUBATO_WORKER_MODEL_FACTORS_H_
#define RUBATO_WORKER_MODEL_FACTORS_H_

#include <cstdint>

#include "tensor/device.h"
#include "tensor/tensor.h"
#include "worker/model/layers/layer.h"

namespace rubato {

// factors = the layer's parameters, rounded, in the order in which the kernels take them for
// batches of up to n.
inline void WriteFactors(const Layer& layer, int64_t n, const ConstTensorRef& parameters,
                         const TensorRef& factors, DeviceKernels* kernels) {
  const TurnedFactors turned = layer.turned_factors(*kernels, factors.dtype(), n);
  const int64_t size = turned.filters * turned.channels * turned.places;
  const int64_t rest = parameters.size() - size;
  if (size > 0) {
    kernels->ConvertFilters(parameters.Slice(0, {turned.filters, turned.channels, turned.places}),
                            factors.Slice(0, {turned.filters, turned.places, turned.channels}));
  }
  if (rest > 0) kernels->Convert(parameters.Slice(size, {rest}), factors.Slice(size, {rest}));
}

}  // namespace rubato

#endif  // RUBATO_WORKER_MODEL_FACTORS_H_
