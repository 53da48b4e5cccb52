#include "worker/data/dataset.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "common/base/check.h"
#include "common/base/random.h"

namespace rubato {

Dataset::Dataset(Examples examples, const Normalization& normalization,
                 const Augmentation& augmentation)
    : examples_(std::move(examples)), normalization_(normalization), augmentation_(augmentation) {
  RUBATO_CHECK(augmentation.empty() || !examples_.shape.is_row());
  const size_t channels = examples_.shape.channels;
  const size_t values = size() * examples_.shape.size();
  RUBATO_CHECK(normalization.mean.size() == channels && normalization.std.size() == channels);
  RUBATO_CHECK(examples_.pixels.empty() || examples_.features.empty());
  RUBATO_CHECK(examples_.pixels.size() + examples_.features.size() == values);
  RUBATO_CHECK(examples_.labels.empty() || examples_.values.empty());
  for (size_t channel = 0; channel < channels; ++channel) {
    background_.push_back((0.0f - normalization.mean[channel]) / normalization.std[channel]);
  }
  if (examples_.pixels.empty()) return;
  tables_.resize(channels);
  for (size_t channel = 0; channel < channels; ++channel) {
    for (int byte = 0; byte < 256; ++byte) {
      const float scaled = static_cast<float>(byte) / 255.0f;
      tables_[channel][byte] = (scaled - normalization.mean[channel]) / normalization.std[channel];
    }
  }
}

int64_t Dataset::Symbols() const {
  constexpr float kMost = 1 << 24;  // whole numbers up to there are exact
  if (examples_.features.empty()) return 0;
  const int64_t plane = examples_.shape.plane(), channels = examples_.shape.channels;
  float most = 0;
  const float* value = examples_.features.data();
  for (int64_t i = 0; i < size(); ++i) {
    for (int64_t channel = 0; channel < channels; ++channel) {
      const float mean = normalization_.mean[channel], scale = normalization_.std[channel];
      for (int64_t j = 0; j < plane; ++j) {
        const float read = (*value++ - mean) / scale;
        if (!(read >= 0 && read < kMost) || read != std::floor(read)) return 0;
        most = std::max(most, read);
      }
    }
  }
  return static_cast<int64_t>(most) + 1;
}

void Dataset::Read(absl::Span<const int64_t> indices, float* features, int32_t* labels,
                   float* values, std::optional<uint64_t> augmentation_key) const {
  const bool augments = augmentation_key.has_value() && !augmentation_.empty();
  std::vector<float> scratch;
  const int64_t plane = examples_.shape.plane();
  const int64_t channels = examples_.shape.channels;
  const int64_t labels_each = examples_.labels_each;
  for (const int64_t index : indices) {
    RUBATO_CHECK(index >= 0 && index < size());
    const int64_t begin = index * examples_.shape.size();
    if (!tables_.empty()) {
      const uint8_t* pixel = examples_.pixels.data() + begin;
      for (const std::array<float, 256>& table : tables_) {
        for (int64_t i = 0; i < plane; ++i) *features++ = table[*pixel++];
      }
    } else {
      const float* value = examples_.features.data() + begin;
      for (int64_t channel = 0; channel < channels; ++channel) {
        const float mean = normalization_.mean[channel], std = normalization_.std[channel];
        for (int64_t i = 0; i < plane; ++i) *features++ = (*value++ - mean) / std;
      }
    }
    if (augments) {
      const int64_t size = examples_.shape.size();
      Augment(augmentation_, Key(*augmentation_key, static_cast<uint64_t>(index)),
              examples_.shape.height, examples_.shape.width, background_,
              absl::MakeSpan(features - size, size), &scratch);
    }
    if (examples_.classes > 0) {
      labels = std::copy_n(examples_.labels.data() + index * labels_each, labels_each, labels);
    } else {
      *values++ = examples_.values[index];
    }
  }
}

}  // namespace rubato
