#include "worker/batch_reader.h"

#include <vector>

#include "common/check.h"
#include "common/permutation.h"
#include "common/random.h"

namespace rubato {

BatchReader::BatchReader(const Dataset* data, uint64_t seed, int64_t max_batch, int64_t ahead)
    : data_(data),
      seed_(seed),
      max_batch_(max_batch),
      prefetch_([this](const SampleRange& range, Batch* batch) { ReadOrdered(range, batch); },
                ahead) {}

void BatchReader::Announce(const SampleRange& range) { prefetch_.Announce(range); }

void BatchReader::ReadShuffled(const SampleRange& range, Batch* batch) {
  prefetch_.Take(range, batch);
}

void BatchReader::ReadInOrder(Range positions) {
  std::vector<int64_t> indices;
  indices.reserve(positions.size());
  for (int64_t i = positions.begin; i < positions.end; ++i) indices.push_back(i);
  Read(indices, absl::nullopt, &in_order_);
}

void BatchReader::ReadOrdered(const SampleRange& range, Batch* batch) const {
  std::vector<int64_t> indices;
  indices.reserve(range.positions.size());
  for (int64_t position = range.positions.begin; position < range.positions.end; ++position) {
    indices.push_back(static_cast<int64_t>(SampleAt(seed_, range.epoch, position, data_->size())));
  }
  Read(indices, Key(seed_, "augment", static_cast<uint64_t>(range.epoch)), batch);
}

void BatchReader::Read(absl::Span<const int64_t> indices, absl::optional<uint64_t> augmentation_key,
                       Batch* batch) const {
  const int64_t size = static_cast<int64_t>(indices.size());
  RUBATO_CHECK(size <= max_batch_);
  batch->size = size;
  batch->width = data_->shape().size();
  // Once as large as can be, so that a short batch does not make the next one fill it anew.
  batch->features.resize(max_batch_ * data_->shape().size());
  if (data_->classes() > 0) {
    batch->labels.resize(size * data_->labels_each());
  } else {
    batch->values.resize(size);
  }
  data_->Read(indices, batch->features.data(), batch->labels.data(), batch->values.data(),
              augmentation_key);
}

}  // namespace rubato
