#include "worker/data/dataset.h"

#include <utility>

#include "common/check.h"

namespace rubato {

Dataset::Dataset(Examples examples, const Normalization& normalization)
    : examples_(std::move(examples)), tables_(examples_.shape.channels) {
  RUBATO_CHECK(examples_.pixels.size() == examples_.labels.size() * examples_.shape.size());
  RUBATO_CHECK(normalization.mean.size() == tables_.size());
  RUBATO_CHECK(normalization.std.size() == tables_.size());
  for (size_t channel = 0; channel < tables_.size(); ++channel) {
    for (int byte = 0; byte < 256; ++byte) {
      const float scaled = static_cast<float>(byte) / 255.0f;
      tables_[channel][byte] = (scaled - normalization.mean[channel]) / normalization.std[channel];
    }
  }
}

void Dataset::Read(absl::Span<const int64_t> indices, float* features, int32_t* labels) const {
  const int64_t plane = examples_.shape.height * examples_.shape.width;
  for (const int64_t index : indices) {
    RUBATO_CHECK(index >= 0 && index < size());
    const uint8_t* pixel = examples_.pixels.data() + index * examples_.shape.size();
    for (const std::array<float, 256>& table : tables_) {
      for (int64_t i = 0; i < plane; ++i) *features++ = table[*pixel++];
    }
    *labels++ = examples_.labels[index];
  }
}

}  // namespace rubato
