#include "worker/data/augment.h"

#include <algorithm>

#include "common/base/check.h"
#include "common/base/random.h"

namespace rubato {

void Augment(const Augmentation& augmentation, uint64_t key, int64_t height, int64_t width,
             absl::Span<const float> background, absl::Span<float> image,
             std::vector<float>* scratch) {
  const int64_t plane = height * width, padding = augmentation.crop_padding;
  RUBATO_CHECK(static_cast<int64_t>(image.size()) ==
               static_cast<int64_t>(background.size()) * plane);
  // Drawn whatever is asked for, so that one setting does not change what the other does.
  RandomStream stream(key);
  const int64_t down = stream.Below(static_cast<uint32_t>(2 * padding + 1)) - padding;
  const int64_t right = stream.Below(static_cast<uint32_t>(2 * padding + 1)) - padding;
  const bool mirrored = augmentation.horizontal_flip && stream.Below(2) == 1;
  if (down == 0 && right == 0 && !mirrored) return;
  scratch->assign(image.begin(), image.end());
  for (size_t channel = 0; channel < background.size(); ++channel) {
    const float* from = scratch->data() + channel * plane;
    float* to = image.data() + channel * plane;
    for (int64_t y = 0; y < height; ++y, to += width) {
      const int64_t row = y + down;
      for (int64_t x = 0; x < width; ++x) {
        const int64_t column = (mirrored ? width - 1 - x : x) + right;
        const bool inside = row >= 0 && row < height && column >= 0 && column < width;
        to[x] = inside ? from[row * width + column] : background[channel];
      }
    }
  }
}

}  // namespace rubato
