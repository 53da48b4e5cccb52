#include "worker/step/gradient_buffers.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>

#include "common/base/last_words.h"
#include "common/wire/arena_space.h"

namespace rubato {

GradientBuffers::Gradient GradientBuffers::Take() {
  for (const Gradient& buffer : buffers_) {
    if (buffer.use_count() > 1) continue;
    std::atomic_thread_fence(std::memory_order_acquire);  // after what its last reader did
    return buffer;
  }
  struct Buffer {
    absl::Span<float> values;
    std::shared_ptr<char> memory;  // whole pages
  };
  const auto buffer = std::make_shared<Buffer>();
  const size_t size = static_cast<size_t>(values_);
  const size_t bytes = RoundUp(std::max<size_t>(size, 1) * sizeof(float), kSharedPage);
  if (arena_ != nullptr) buffer->memory = arena_->Allocate(size * sizeof(float));
  if (buffer->memory == nullptr) {
    char* const own = static_cast<char*>(std::aligned_alloc(kSharedPage, bytes));
    if (own == nullptr) EndOutOfMemory();
    buffer->memory = std::shared_ptr<char>(own, std::free);
  }
  buffer->values = {reinterpret_cast<float*>(buffer->memory.get()), size};
  if (pin_ != nullptr && pins_.size() < kMostPinned) {
    auto pin = pin_(buffer->memory.get(), static_cast<int64_t>(bytes));
    if (pin != nullptr) pins_.push_back(std::move(pin));
  }
  buffers_.push_back(Gradient(buffer, &buffer->values));
  return buffers_.back();
}

}  // namespace rubato
