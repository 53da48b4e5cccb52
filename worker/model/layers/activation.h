// Layers that apply one function to each value.
#ifndef RUBATO_WORKER_MODEL_LAYERS_ACTIVATION_H_
#define RUBATO_WORKER_MODEL_LAYERS_ACTIVATION_H_

#include <memory>

#include "absl/types/span.h"
#include "proto/job.pb.h"
#include "worker/model/layers/layer.h"

namespace rubato {

// max(x, 0), as torch.nn.ReLU; the gradient at 0 is 0.
std::unique_ptr<Layer> MakeRelu(absl::Span<const int64_t> input_shape);

// x times the normal distribution's P(X <= x), as torch.nn.GELU, exact or approximate.
std::unique_ptr<Layer> MakeGelu(const proto::Gelu& config, absl::Span<const int64_t> input_shape);

// tanh x, as torch.nn.Tanh.
std::unique_ptr<Layer> MakeTanh(absl::Span<const int64_t> input_shape);

// 1 / (1 + e^-x), as torch.nn.Sigmoid.
std::unique_ptr<Layer> MakeSigmoid(absl::Span<const int64_t> input_shape);

}  // namespace rubato

#endif  // RUBATO_WORKER_MODEL_LAYERS_ACTIVATION_H_
