// Images of the training split, moved and mirrored at random.
#ifndef RUBATO_WORKER_DATA_AUGMENT_H_
#define RUBATO_WORKER_DATA_AUGMENT_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace rubato {

struct Augmentation {
  int64_t crop_padding = 0;      // as torchvision's RandomCrop(size, padding)
  bool horizontal_flip = false;  // as torchvision's RandomHorizontalFlip()

  bool empty() const { return crop_padding == 0 && !horizontal_flip; }
};

// image (channels, height, width): shifted by up to crop_padding pixels each way, then mirrored
// with probability 1/2, as a pure function of `key`. Pixels from outside the image get the value
// `background` (channels). `scratch` is resized as needed.
void Augment(const Augmentation& augmentation, uint64_t key, int64_t height, int64_t width,
             absl::Span<const float> background, absl::Span<float> image,
             std::vector<float>* scratch);

}  // namespace rubato

#endif  // RUBATO_WORKER_DATA_AUGMENT_H_
