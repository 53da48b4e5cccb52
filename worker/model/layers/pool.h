// Layers that give one value for each window of an image.
#ifndef RUBATO_WORKER_MODEL_LAYERS_POOL_H_
#define RUBATO_WORKER_MODEL_LAYERS_POOL_H_

#include <memory>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/job.pb.h"
#include "worker/model/layers/layer.h"

namespace rubato {

// As torch.nn.MaxPool2d, AvgPool2d and AdaptiveAvgPool2d. InvalidArgument if input_shape is not
// (channels, height, width), if the window is larger than the padded input, or the padding more
// than half of the window.
absl::StatusOr<std::unique_ptr<Layer>> MakeMaxPool2d(const proto::Pool2d& config,
                                                     absl::Span<const int64_t> input_shape);
absl::StatusOr<std::unique_ptr<Layer>> MakeAvgPool2d(const proto::AvgPool2d& config,
                                                     absl::Span<const int64_t> input_shape);
absl::StatusOr<std::unique_ptr<Layer>> MakeAdaptiveAvgPool2d(const proto::AdaptiveAvgPool2d& config,
                                                             absl::Span<const int64_t> input_shape);

}  // namespace rubato

#endif  // RUBATO_WORKER_MODEL_LAYERS_POOL_H_
