#include "server/shard/update_threads.h"

#include <algorithm>

#include "common/base/monotonic.h"

namespace rubato {
namespace {

// Less is done before another thread has awoken.
constexpr int64_t kFewValues = 16384;
// Parts begin at a cache line, whatever line a buffer begins at.
constexpr int64_t kGrain = 1024;
constexpr int64_t kLookNanoseconds = 50000;

Range PartOf(int64_t n, int64_t index, int64_t parts) {
  const auto cut = [&](int64_t i) {
    return i == parts ? n : std::min(n, (n * i / parts + kGrain - 1) / kGrain * kGrain);
  };
  return {cut(index), cut(index + 1)};
}

}  // namespace

UpdateThreads::UpdateThreads(int threads) {
  for (int i = 1; i < threads; ++i) threads_.emplace_back([this, i] { Loop(i); });
}

UpdateThreads::~UpdateThreads() {
  {
    absl::MutexLock lock(&mutex_);
    closing_ = true;
  }
  for (std::thread& thread : threads_) thread.join();
}

void UpdateThreads::Run(int64_t n, Part part) {
  if (threads_.empty() || n < kFewValues) {
    part({0, n});
    return;
  }
  part_ = &part;
  size_ = n;
  missing_.store(static_cast<int>(threads_.size()), std::memory_order_relaxed);
  {
    absl::MutexLock lock(&mutex_);  // wakes who sleeps
    round_.fetch_add(1, std::memory_order_release);
  }
  part(PartOf(n, 0, static_cast<int64_t>(threads_.size()) + 1));
  while (missing_.load(std::memory_order_acquire) > 0) std::this_thread::yield();
}

uint64_t UpdateThreads::AwaitRound(uint64_t last) {
  const auto there = [this, last] { return round_ != last || closing_; };
  const int64_t end = MonotonicNanos() + kLookNanoseconds;
  while (!there() && MonotonicNanos() < end) {
  }
  if (!there()) absl::MutexLock lock(&mutex_, absl::Condition(&there));
  return round_.load(std::memory_order_acquire);
}

void UpdateThreads::Loop(int index) {
  for (uint64_t round = 0;;) {
    const uint64_t next = AwaitRound(round);
    if (next == round) return;  // the end
    round = next;
    (*part_)(PartOf(size_, index, static_cast<int64_t>(threads_.size()) + 1));
    missing_.fetch_sub(1, std::memory_order_release);
  }
}

}  // namespace rubato
