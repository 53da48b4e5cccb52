#include "worker/step/gradient_buffers.h"

#include <atomic>

namespace rubato {

GradientBuffers::Gradient GradientBuffers::Take() {
  for (const Gradient& buffer : buffers_) {
    if (buffer.use_count() > 1) continue;
    std::atomic_thread_fence(std::memory_order_acquire);  // after what its last reader did
    return buffer;
  }
  struct Buffer {
    absl::Span<float> values;
    std::shared_ptr<char> lendable;
    std::vector<float> own;
  };
  const auto buffer = std::make_shared<Buffer>();
  const size_t size = static_cast<size_t>(values_);
  if (arena_ != nullptr) {
    buffer->lendable = arena_->Allocate(size * sizeof(float));
  }
  if (buffer->lendable != nullptr) {
    buffer->values = {reinterpret_cast<float*>(buffer->lendable.get()), size};
  } else {
    buffer->own.resize(size);
    buffer->values = absl::MakeSpan(buffer->own);
  }
  buffers_.push_back(Gradient(buffer, &buffer->values));
  return buffers_.back();
}

}  // namespace rubato
