// Examples of a data set, batch by batch.
#ifndef RUBATO_WORKER_DATA_BATCH_READER_H_
#define RUBATO_WORKER_DATA_BATCH_READER_H_

#include <cstdint>
#include <optional>

#include "absl/types/span.h"
#include "common/space/flat_space.h"
#include "common/space/sample_schedule.h"
#include "worker/data/dataset.h"
#include "worker/data/prefetch.h"
#include "worker/model/loss.h"

namespace rubato {

// Reads the examples at `positions` in the order of `epoch`. The order is a function of (seed,
// epoch, position) alone; the augmentation of an image is a function of (seed, epoch, example).
class BatchReader {
 public:
  // At most `max_batch` examples at a time; up to `ahead` announced batches are read before they
  // are asked for. `data` must outlive it.
  BatchReader(const Dataset* data, uint64_t seed, int64_t max_batch, int64_t ahead = 0);

  // Announces that ReadShuffled(range) will follow the earlier announced ones: a hint that changes
  // no result.
  void Announce(const SampleRange& range);

  // Of the training order.
  void ReadShuffled(const SampleRange& range, Batch* batch);
  // The WeightOfLabels of theirs; reads nothing else.
  double WeightOf(const SampleRange& range, const Objective& objective) const;
  // Reads in the order of the data set, for tests of a whole split. The result is valid until the
  // next call.
  void ReadInOrder(Range positions);
  absl::Span<const float> features() const { return in_order_.inputs(); }
  absl::Span<const int32_t> labels() const { return in_order_.labels; }
  Targets targets() const { return in_order_.targets(); }
  // Reads that had been done ahead.
  int64_t hits() const { return prefetch_.hits(); }

 private:
  void Read(absl::Span<const int64_t> indices, std::optional<uint64_t> augmentation_key,
            Batch* batch) const;
  void ReadOrdered(const SampleRange& range, Batch* batch) const;
  int64_t IndexAt(int64_t epoch, int64_t position) const;

  const Dataset* const data_;
  const uint64_t seed_;
  const int64_t max_batch_;
  Batch in_order_;
  Prefetch prefetch_;
};

}  // namespace rubato

#endif  // RUBATO_WORKER_DATA_BATCH_READER_H_
