#include "worker/model/layers/window.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "tensor/tensor.h"

namespace rubato {

absl::StatusOr<Window> WindowOver(absl::Span<const int64_t> input_shape, int64_t kernel,
                                  int64_t stride, int64_t padding) {
  if (input_shape.size() != 3) {
    return absl::InvalidArgumentError(absl::StrCat("input has shape ", ShapeText(input_shape),
                                                   "; expected (channels, height, width)"));
  }
  const Window window = {input_shape[1], input_shape[2], kernel, stride, padding};
  const int64_t least = std::min(window.height, window.width) + 2 * padding;
  if (kernel > least) {
    return absl::InvalidArgumentError(absl::StrCat(
        "kernel_size: found ", kernel, "; expected at most ", least, ", what the input of shape ",
        ShapeText(input_shape), padding == 0 ? " has" : " has with its padding"));
  }
  return window;
}

}  // namespace rubato
