// Floats in whole pages of memory, as a device pins them: for tests and benches.
#ifndef RUBATO_WORKER_MODEL_PAGES_H_
#define RUBATO_WORKER_MODEL_PAGES_H_

#include <cstdint>
#include <cstdlib>
#include <memory>

#include "absl/types/span.h"

namespace rubato {

class Pages {
 public:
  explicit Pages(int64_t values)
      : bytes_((values * static_cast<int64_t>(sizeof(float)) / kPage + 1) * kPage),
        memory_(std::aligned_alloc(kPage, bytes_), std::free),
        values_(static_cast<float*>(memory_.get()), values) {}

  void* memory() const { return memory_.get(); }
  int64_t bytes() const { return bytes_; }
  absl::Span<float> values() const { return values_; }

 private:
  static constexpr int64_t kPage = 4096;
  const int64_t bytes_;
  const std::shared_ptr<void> memory_;
  const absl::Span<float> values_;
};

}  // namespace rubato

#endif  // RUBATO_WORKER_MODEL_PAGES_H_
