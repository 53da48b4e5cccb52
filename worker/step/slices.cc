#include "worker/step/slices.h"

#include <algorithm>

#include "common/base/check.h"

namespace rubato {
namespace {

int64_t Ratio(int64_t x, int64_t y) { return (x + y - 1) / y; }  // rounded up

}  // namespace

Slices::Slices(int64_t values, int gpus, int64_t most) : values_(values), gpus_(gpus) {
  RUBATO_CHECK(values > 0 && gpus > 0 && most > 0 && most % kAlignment == 0);
  most_ = std::min(most, Ratio(Ratio(values, gpus), kAlignment) * kAlignment);
  chunks_ = Ratio(values, gpus * most_);
}

Range Slices::Chunk(int64_t chunk) const {
  const int64_t length = gpus_ * most_;
  return {chunk * length, std::min((chunk + 1) * length, values_)};
}

int64_t Slices::Length(int64_t chunk) const {
  return Ratio(Ratio(Chunk(chunk).size(), gpus_), kAlignment) * kAlignment;
}

Range Slices::Slice(int64_t chunk, int gpu) const {
  const int64_t begin = Chunk(chunk).begin + gpu * Length(chunk);
  return {std::min(begin, values_), std::min(begin + Length(chunk), values_)};
}

int64_t Slices::padded_values() const {
  return Chunk(chunks_ - 1).begin + gpus_ * Length(chunks_ - 1);
}

}  // namespace rubato
