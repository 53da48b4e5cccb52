// Memory that tells who accesses it, for tests.
#ifndef RUBATO_TENSOR_CUDA_TRACED_MEMORY_H_
#define RUBATO_TENSOR_CUDA_TRACED_MEMORY_H_

#include <cstdint>
#include <functional>

namespace rubato {

// While it is watched each access of the calling thread's faults, is told, is done in a single
// step, and the memory is closed again. What is told is where an access begins and whether it
// writes, not how long it is: code whose values are counted must not be vectorised. One at a time
// in a process; x86-64 Linux.
class TracedMemory {
 public:
  // `bytes` of zeros. on_access(offset, writes) is called in a signal handler, between two
  // instructions of the thread: it may do what that thread could do there.
  TracedMemory(int64_t bytes, std::function<void(int64_t offset, bool writes)> on_access);
  ~TracedMemory();
  TracedMemory(const TracedMemory&) = delete;

  // Aligned to 256 bytes.
  void* Take(int64_t bytes);
  int64_t OffsetOf(const void* address) const;
  bool Has(const void* address) const;

  void Watch();
  void Stop();

 private:
  int64_t taken_ = 0;
};

}  // namespace rubato

#endif  // RUBATO_TENSOR_CUDA_TRACED_MEMORY_H_
