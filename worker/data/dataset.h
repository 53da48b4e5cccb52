// Labelled images in memory: one split (train or test) of a data set.
#ifndef RUBATO_WORKER_DATA_DATASET_H_
#define RUBATO_WORKER_DATA_DATASET_H_

#include <array>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace rubato {

struct ExampleShape {
  int64_t channels = 0, height = 0, width = 0;

  int64_t size() const { return channels * height * width; }
};

inline bool operator==(const ExampleShape& a, const ExampleShape& b) {
  return a.channels == b.channels && a.height == b.height && a.width == b.width;
}

// What a source of data hands over: images as bytes and their labels.
struct Examples {
  ExampleShape shape;
  int64_t classes = 0;          // labels lie in [0, classes)
  std::vector<uint8_t> pixels;  // (examples, channels, height, width)
  std::vector<uint8_t> labels;  // (examples)
};

// Per channel: a pixel x of 0…255 becomes (x / 255 - mean) / std.
struct Normalization {
  std::vector<float> mean, std;  // (channels); std > 0
};

// Immutable once made, so any number of threads may read.
class Dataset {
 public:
  Dataset(Examples examples, const Normalization& normalization);

  int64_t size() const { return static_cast<int64_t>(examples_.labels.size()); }
  const ExampleShape& shape() const { return examples_.shape; }
  int64_t classes() const { return examples_.classes; }
  const Examples& examples() const { return examples_; }

  // Copies the examples at `indices`, each in [0, size()), in that order.
  // features: (indices, channels, height, width), normalised, in the float32 arithmetic of
  // torchvision's ToTensor and Normalize; labels: (indices).
  void Read(absl::Span<const int64_t> indices, float* features, int32_t* labels) const;

 private:
  Examples examples_;
  std::vector<std::array<float, 256>> tables_;  // (channels): of each byte, its normalised value
};

}  // namespace rubato

#endif  // RUBATO_WORKER_DATA_DATASET_H_
