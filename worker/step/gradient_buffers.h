// Memory for a worker's gradients: buffers of the whole flat vector, each used again when nobody
// reads it any more.
#ifndef RUBATO_WORKER_STEP_GRADIENT_BUFFERS_H_
#define RUBATO_WORKER_STEP_GRADIENT_BUFFERS_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "common/wire/shared_arena.h"

namespace rubato {

// For one thread; a buffer's readers may be others.
class GradientBuffers {
 public:
  using Gradient = std::shared_ptr<absl::Span<float>>;  // and its memory

  // Of `values` floats each, in `arena`, if there is one, so that they can be lent.
  GradientBuffers(int64_t values, std::shared_ptr<SharedArena> arena)
      : values_(values), arena_(std::move(arena)) {}

  // One that nobody else holds, of whatever values.
  Gradient Take();
  // How many there are.
  int64_t size() const { return static_cast<int64_t>(buffers_.size()); }

 private:
  const int64_t values_;
  const std::shared_ptr<SharedArena> arena_;
  std::vector<Gradient> buffers_;
};

}  // namespace rubato

#endif  // RUBATO_WORKER_STEP_GRADIENT_BUFFERS_H_
