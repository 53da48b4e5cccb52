// Examples in memory: one split (training, validation or test) of a data set.
#ifndef RUBATO_WORKER_DATA_DATASET_H_
#define RUBATO_WORKER_DATA_DATASET_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "worker/data/augment.h"

namespace rubato {

// Of one example: an image, or a row of a table, which has `channels` columns and neither height
// nor width.
struct ExampleShape {
  int64_t channels = 0, height = 0, width = 0;

  bool is_row() const { return height == 0 && width == 0; }
  int64_t plane() const { return is_row() ? 1 : height * width; }  // values of one channel
  int64_t size() const { return channels * plane(); }
  // As a model takes it: (channels, height, width) or (channels).
  std::vector<int64_t> dimensions() const {
    return is_row() ? std::vector<int64_t>{channels}
                    : std::vector<int64_t>{channels, height, width};
  }
};

inline bool operator==(const ExampleShape& a, const ExampleShape& b) {
  return a.channels == b.channels && a.height == b.height && a.width == b.width;
}

// The examples that a source of data returns: features as bytes or as floats, targets as labels or
// as values. One vector of each pair stays empty.
struct Examples {
  ExampleShape shape;
  int64_t classes = 0;          // labels lie in [0, classes); 0: the targets are values
  int64_t labels_each = 1;      // of one example: a text has a label for each place
  std::vector<uint8_t> pixels;  // (examples, channels, height, width)
  std::vector<float> features;  // the same, or (examples, columns); NaN where a value is missing
  std::vector<int32_t> labels;  // (examples, labels_each)
  std::vector<float> values;    // (examples)

  int64_t size() const {
    return classes > 0 ? static_cast<int64_t>(labels.size()) / labels_each
                       : static_cast<int64_t>(values.size());
  }
};

// Per channel or column. A byte x becomes (x / 255 - mean) / std, a float x (x - mean) / std.
struct Normalization {
  std::vector<float> mean, std;  // (channels); std > 0
};

// Immutable once made, so any number of threads may read.
class Dataset {
 public:
  // An augmentation is for images only.
  Dataset(Examples examples, const Normalization& normalization,
          const Augmentation& augmentation = {});

  int64_t size() const { return examples_.size(); }
  const ExampleShape& shape() const { return examples_.shape; }
  int64_t classes() const { return examples_.classes; }  // 0: a regression
  int64_t target_values() const { return classes() > 0 ? 0 : 1; }
  int64_t labels_each() const { return examples_.labels_each; }
  const Examples& examples() const { return examples_; }
  // One more than the greatest feature that Read returns, if all features are integers of at least
  // 0; otherwise 0. Scans all of them.
  int64_t Symbols() const;

  // Copies the examples at `indices`, each in [0, size()), in that order.
  // features: (indices, *shape), normalised, bytes in the float32 arithmetic of torchvision's
  // ToTensor and Normalize; labels: (indices, labels_each), or values: (indices). The array that
  // the data set does not have is not written and may be null.
  //
  // With `augmentation_key` images are augmented: each as a function of the key and its index.
  void Read(absl::Span<const int64_t> indices, float* features, int32_t* labels,
            float* values = nullptr, std::optional<uint64_t> augmentation_key = std::nullopt) const;

 private:
  Examples examples_;
  Normalization normalization_;  // of features that are floats
  Augmentation augmentation_;
  std::vector<float> background_;               // (channels): a pixel of 0, normalised
  std::vector<std::array<float, 256>> tables_;  // (channels): of each byte, its normalised value
};

}  // namespace rubato

#endif  // RUBATO_WORKER_DATA_DATASET_H_
