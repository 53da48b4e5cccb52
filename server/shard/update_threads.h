// Runs one update on several threads. Values are independent of one another, so the bits do not
// depend on the number of threads.
#ifndef RUBATO_SERVER_SHARD_UPDATE_THREADS_H_
#define RUBATO_SERVER_SHARD_UPDATE_THREADS_H_

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/synchronization/mutex.h"
#include "common/space/flat_space.h"

namespace rubato {

class UpdateThreads {
 public:
  using Part = absl::FunctionRef<void(Range values)>;

  // At least 1: the caller's is one of them.
  explicit UpdateThreads(int threads);
  ~UpdateThreads();
  UpdateThreads(const UpdateThreads&) = delete;
  UpdateThreads& operator=(const UpdateThreads&) = delete;

  int size() const { return static_cast<int>(threads_.size()) + 1; }

  // Calls `part` with ranges that make up [0, n), each on a thread of its own, and returns when all
  // have returned. Few values go as one, on the caller's thread.
  void Run(int64_t n, Part part) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  // Waits for another round than `last`, or the end, and returns its number. Spins for a moment,
  // since the blocks of a gradient arrive one after the other, then sleeps.
  uint64_t AwaitRound(uint64_t last) ABSL_LOCKS_EXCLUDED(mutex_);
  void Loop(int index);

  std::vector<std::thread> threads_;
  absl::Mutex mutex_;
  // Of the round at hand; written before its number is.
  const Part* part_ = nullptr;
  int64_t size_ = 0;
  std::atomic<uint64_t> round_{0};
  std::atomic<int> missing_{0};  // threads that have not ended it
  std::atomic<bool> closing_{false};
};

}  // namespace rubato

#endif  // RUBATO_SERVER_SHARD_UPDATE_THREADS_H_
