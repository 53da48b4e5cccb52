#include "worker/data/prefetch.h"

#include <algorithm>
#include <utility>

namespace rubato {
namespace {

bool Same(const SampleRange& a, const SampleRange& b) {
  return a.epoch == b.epoch && a.positions == b.positions;
}

}  // namespace

Prefetch::Prefetch(Read read, int64_t ahead) : read_(std::move(read)), ahead_(ahead) {
  if (ahead_ > 0) thread_ = std::thread([this] { Run(); });
}

Prefetch::~Prefetch() {
  if (ahead_ == 0) return;
  {
    absl::MutexLock lock(&mutex_);
    closing_ = true;
  }
  thread_.join();
}

void Prefetch::Announce(const SampleRange& range) {
  if (ahead_ == 0) return;
  absl::MutexLock lock(&mutex_);
  announced_.push_back(range);
}

std::unique_ptr<Batch> Prefetch::FreeBatch() {
  if (free_.empty()) return std::make_unique<Batch>();
  std::unique_ptr<Batch> batch = std::move(free_.back());
  free_.pop_back();
  return batch;
}

void Prefetch::DropReady() {
  for (Ready& ready : ready_) free_.push_back(std::move(ready.batch));
  ready_.clear();
  drop_reading_ = reading_;
}

void Prefetch::Take(const SampleRange& range, Batch* batch) {
  {
    absl::MutexLock lock(&mutex_);
    if (reading_ && !drop_reading_ && Same(reading_range_, range)) {
      DropReady();
      drop_reading_ = false;
      const auto done = [this, &range]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
        return !reading_ || !Same(reading_range_, range);
      };
      mutex_.Await(absl::Condition(&done));
    }
    const auto found = std::find_if(ready_.begin(), ready_.end(),
                                    [&](const Ready& ready) { return Same(ready.range, range); });
    if (found != ready_.end()) {
      ++hits_;
      std::swap(*batch, *found->batch);
      for (auto it = ready_.begin(); it <= found; ++it) free_.push_back(std::move(it->batch));
      ready_.erase(ready_.begin(), found + 1);
      return;
    }
    const auto announced =
        std::find_if(announced_.begin(), announced_.end(),
                     [&](const SampleRange& other) { return Same(other, range); });
    if (announced != announced_.end()) {
      DropReady();
      announced_.erase(announced_.begin(), announced + 1);
    }
  }
  read_(range, batch);
}

void Prefetch::Run() {
  while (true) {
    std::unique_ptr<Batch> batch;
    SampleRange range;
    {
      const auto wanted = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
        return closing_ || (!announced_.empty() && static_cast<int64_t>(ready_.size()) < ahead_);
      };
      absl::MutexLock lock(&mutex_, absl::Condition(&wanted));
      if (closing_) return;
      range = reading_range_ = announced_.front();
      announced_.pop_front();
      batch = FreeBatch();
      reading_ = true;
      drop_reading_ = false;
    }
    read_(range, batch.get());
    absl::MutexLock lock(&mutex_);
    reading_ = false;
    if (drop_reading_) {
      free_.push_back(std::move(batch));
    } else {
      ready_.push_back({range, std::move(batch)});
    }
  }
}

}  // namespace rubato
