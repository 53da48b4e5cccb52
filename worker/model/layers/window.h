// Windows of layers over images.
#ifndef RUBATO_WORKER_MODEL_LAYERS_WINDOW_H_
#define RUBATO_WORKER_MODEL_LAYERS_WINDOW_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "tensor/convolution.h"

namespace rubato {

// InvalidArgument if input_shape is not (channels, height, width), or the window is larger than the
// padded input.
absl::StatusOr<Window> WindowOver(absl::Span<const int64_t> input_shape, int64_t kernel,
                                  int64_t stride, int64_t padding);

}  // namespace rubato

#endif  // RUBATO_WORKER_MODEL_LAYERS_WINDOW_H_
