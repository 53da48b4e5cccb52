// Reads batches ahead of their use, on a thread of its own.
#ifndef RUBATO_WORKER_DATA_PREFETCH_H_
#define RUBATO_WORKER_DATA_PREFETCH_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/space/sample_schedule.h"
#include "worker/model/loss.h"

namespace rubato {

// Examples, ready for a model.
struct Batch {
  int64_t size = 0;             // examples
  int64_t width = 0;            // values of an example
  std::vector<float> features;  // (size or more, *shape)
  std::vector<int32_t> labels;  // (size, labels of an example), or none
  std::vector<float> values;    // (size), or none

  absl::Span<const float> inputs() const { return {features.data(), size_t(size * width)}; }
  Targets targets(double weight = 1) const { return {labels, values, weight}; }
};

// An announcement is only a hint: Take always returns the requested examples, so no result depends
// on announcements. For one thread that announces and takes.
class Prefetch {
 public:
  // Fills a batch; called from both threads, with different batches.
  using Read = std::function<void(const SampleRange& range, Batch* batch)>;

  // Holds at most `ahead` batches that nobody has asked for yet; with 0 there is no thread, and all
  // are read when they are asked for.
  Prefetch(Read read, int64_t ahead);
  // Waits for the batch at hand.
  ~Prefetch();

  // `range` will be asked for, after all that was announced before.
  void Announce(const SampleRange& range) ABSL_LOCKS_EXCLUDED(mutex_);

  // Fills `batch` with the examples of `range`. What was announced before it is forgotten.
  void Take(const SampleRange& range, Batch* batch) ABSL_LOCKS_EXCLUDED(mutex_);

  // How many Takes found their batch read, or being read.
  int64_t hits() const { return hits_; }

 private:
  struct Ready {
    SampleRange range;
    std::unique_ptr<Batch> batch;
  };

  void Run() ABSL_LOCKS_EXCLUDED(mutex_);
  std::unique_ptr<Batch> FreeBatch() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Forgets all that is ready or being read.
  void DropReady() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Read read_;
  const int64_t ahead_;
  // Of the thread that takes.
  int64_t hits_ = 0;

  absl::Mutex mutex_;
  std::deque<SampleRange> announced_ ABSL_GUARDED_BY(mutex_);  // not begun
  std::deque<Ready> ready_ ABSL_GUARDED_BY(mutex_);            // in the order announced
  std::vector<std::unique_ptr<Batch>> free_ ABSL_GUARDED_BY(mutex_);
  bool reading_ ABSL_GUARDED_BY(mutex_) = false;
  SampleRange reading_range_ ABSL_GUARDED_BY(mutex_);
  bool drop_reading_ ABSL_GUARDED_BY(mutex_) = false;  // nobody wants what is being read any more
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace rubato

#endif  // RUBATO_WORKER_DATA_PREFETCH_H_
