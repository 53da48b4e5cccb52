// From a layer of the job to a Layer: the one place that knows all of them.
#ifndef RUBATO_WORKER_MODEL_LAYERS_BUILD_H_
#define RUBATO_WORKER_MODEL_LAYERS_BUILD_H_

#include <memory>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/job.pb.h"
#include "worker/model/layers/layer.h"

namespace rubato {

// `input_shape` is of one example. InvalidArgument if the layer does not fit it, or is of no kind.
absl::StatusOr<std::unique_ptr<Layer>> BuildLayer(const proto::Layer& config,
                                                  absl::Span<const int64_t> input_shape);

}  // namespace rubato

#endif  // RUBATO_WORKER_MODEL_LAYERS_BUILD_H_
