#include "worker/data/statistics.h"

#include <array>
#include <cmath>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "worker/data/field.h"

namespace rubato {
namespace {

struct Moments {
  double mean = 0, std = 1;
};

// Of bytes, by how many there are of each: exact up to the last division.
Moments MomentsOfBytes(const std::array<int64_t, 256>& counts) {
  double n = 0, sum = 0;
  int kinds = 0;
  for (int byte = 0; byte < 256; ++byte) {
    n += static_cast<double>(counts[byte]);
    sum += static_cast<double>(counts[byte]) * byte;
    kinds += counts[byte] > 0;
  }
  const double mean = sum / n;
  double squares = 0;
  for (int byte = 0; byte < 256; ++byte) {
    squares += static_cast<double>(counts[byte]) * (byte - mean) * (byte - mean);
  }
  return {mean / 255, kinds == 1 ? 1 : std::sqrt(squares / n) / 255};
}

Moments MomentsOfChannel(const Examples& train, int64_t channel) {
  const int64_t plane = train.shape.plane(), size = train.shape.size();
  const auto for_each = [&](const auto& all, const auto& visit) {
    for (int64_t i = 0; i < train.size(); ++i) {
      for (int64_t j = 0; j < plane; ++j) visit(all[i * size + channel * plane + j]);
    }
  };
  if (!train.pixels.empty()) {
    std::array<int64_t, 256> counts = {};
    for_each(train.pixels, [&](uint8_t byte) { ++counts[byte]; });
    return MomentsOfBytes(counts);
  }
  const double n = static_cast<double>(train.size() * plane);
  const float first = train.features[channel * plane];
  bool constant = true;
  double sum = 0;
  for_each(train.features, [&](float x) {
    sum += x;
    constant = constant && x == first;
  });
  if (constant) return {first, 1};
  const double mean = sum / n;
  double squares = 0;
  for_each(train.features, [&](float x) { squares += (x - mean) * (x - mean); });
  return {mean, std::sqrt(squares / n)};
}

}  // namespace

Normalization ComputeNormalization(const Examples& train, int64_t quantities) {
  RUBATO_CHECK(train.size() > 0);
  Normalization result;
  for (int64_t channel = 0; channel < train.shape.channels; ++channel) {
    const Moments moments = channel < quantities ? MomentsOfChannel(train, channel) : Moments();
    result.mean.push_back(static_cast<float>(moments.mean));
    // Values that differ by less than float32 can tell from their mean's size.
    const float std = static_cast<float>(moments.std);
    result.std.push_back(std > 0 && std::isfinite(1 / std) ? std : 1);
  }
  return result;
}

absl::StatusOr<std::vector<float>> ImputeMeans(const Examples& train,
                                               const std::vector<std::string>& columns,
                                               const std::vector<Examples*>& splits) {
  const int64_t width = train.shape.size();
  std::vector<double> sums(width);
  std::vector<int64_t> counts(width);
  for (size_t i = 0; i < train.features.size(); ++i) {
    if (std::isnan(train.features[i])) continue;
    sums[i % width] += train.features[i];
    ++counts[i % width];
  }
  std::vector<float> means;
  for (int64_t i = 0; i < width; ++i) {
    means.push_back(static_cast<float>(sums[i] / static_cast<double>(counts[i])));
  }
  for (Examples* split : splits) {
    for (size_t i = 0; i < split->features.size(); ++i) {
      if (!std::isnan(split->features[i])) continue;
      const int64_t column = static_cast<int64_t>(i) % width;
      if (counts[column] == 0) {
        return absl::InvalidArgumentError(
            absl::StrCat("data.impute: the column ", Quoted(columns[column]),
                         " has no value in the training split, expected one to take the mean of"));
      }
      split->features[i] = means[column];
    }
  }
  return means;
}

}  // namespace rubato
