#include "worker/data/batch_reader.h"

#include <algorithm>
#include <vector>

#include "common/base/check.h"
#include "common/base/random.h"
#include "common/space/permutation.h"

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
  Read(indices, std::nullopt, &in_order_);
}

int64_t BatchReader::IndexAt(int64_t epoch, int64_t position) const {
  return static_cast<int64_t>(SampleAt(seed_, epoch, position, data_->size()));
}

double BatchReader::WeightOf(const SampleRange& range, const Objective& objective) const {
  const int64_t each = data_->labels_each();
  double weight = 0;
  for (int64_t position = range.positions.begin; position < range.positions.end; ++position) {
    const int32_t* const labels =
        data_->examples().labels.data() + IndexAt(range.epoch, position) * each;
    weight += WeightOfLabels(objective, absl::MakeConstSpan(labels, each));
  }
  return weight;
}

void BatchReader::ReadOrdered(const SampleRange& range, Batch* batch) const {
  std::vector<int64_t> indices;
  indices.reserve(range.positions.size());
  for (int64_t position = range.positions.begin; position < range.positions.end; ++position) {
    indices.push_back(IndexAt(range.epoch, position));
  }
  Read(indices, Key(seed_, "augment", static_cast<uint64_t>(range.epoch)), batch);
}

void BatchReader::Read(absl::Span<const int64_t> indices, std::optional<uint64_t> augmentation_key,
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
