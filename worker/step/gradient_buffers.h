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
#include "worker/step/pin_memory.h"

namespace rubato {

// For one thread; a buffer's readers may be others.
class GradientBuffers {
 public:
  using Gradient = std::shared_ptr<absl::Span<float>>;  // and its memory

  // A device's step is recorded for each buffer that it writes by itself; if there are more, it
  // writes them another way.
  static constexpr size_t kMostPinned = 8;

  // Of `values` floats each, in `arena`, if there is one, so that they can be lent. The first
  // kMostPinned are pinned, where that can be, as long as this lives.
  GradientBuffers(int64_t values, std::shared_ptr<SharedArena> arena, PinMemory pin = nullptr)
      : values_(values), arena_(std::move(arena)), pin_(std::move(pin)) {}

  // One that nobody else holds, of whatever values.
  Gradient Take();
  // How many there are.
  int64_t size() const { return static_cast<int64_t>(buffers_.size()); }

 private:
  const int64_t values_;
  const std::shared_ptr<SharedArena> arena_;
  const PinMemory pin_;
  std::vector<Gradient> buffers_;
  std::vector<std::shared_ptr<const void>> pins_;  // goes before the buffers
};

}  // namespace rubato

#endif  // RUBATO_WORKER_STEP_GRADIENT_BUFFERS_H_
