// The memory of the parameters that a worker has pulled: one flat vector, of which a block is the
// worker's own copy, or a server's on the same host, read where it lies. For devices that read it
// by themselves, all are copies; for a script too, in its memory, unless it still reads that.
#ifndef RUBATO_WORKER_STEP_PARAMETER_MEMORY_H_
#define RUBATO_WORKER_STEP_PARAMETER_MEMORY_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "common/frames/received_values.h"
#include "common/space/flat_space.h"
#include "worker/step/pin_memory.h"
#include "worker/step/reader_memory.h"

namespace rubato {

// A server keeps two versions of a block in two places, in turn. So that nothing needs to be mapped
// anew in every step there are two vectors in address space, one for even and one for odd versions;
// memory is only what is copied.
class ParameterMemory {
 public:
  // `pin` or `reader` may be given, not both.
  explicit ParameterMemory(const FlatSpace& space, const PinMemory& pin = nullptr,
                           ReaderMemory reader = nullptr);
  ~ParameterMemory();
  ParameterMemory(const ParameterMemory&) = delete;

  // From now on blocks are filled in as of `version`. What was borrowed is given back.
  void Begin(int64_t version);

  // One thread at a time for a block. Borrows lent values until Begin if it may. The first since
  // Begin asks for the reader's memory; where that is given, all until Begin are copied there.
  void Fill(int64_t block, const ReceivedValues& values, bool may_borrow);

  // What has been filled in since Begin.
  absl::Span<const float> values() const;

 private:
  // Whose memory lies at a block's place: of no arena, the worker's own.
  struct Place {
    std::shared_ptr<const SharedArenaView> arena;
    uint64_t offset = 0;
  };
  struct Vector {
    float* begin = nullptr;
    std::vector<Place> places;  // by block
  };

  // Of places in both vectors; beyond, blocks are copied. Each may be a mapping of its own, and
  // the system allows a process some 65,000.
  static constexpr int kMaxBorrowed = 16000;

  // The beginning of the reader's vector, if blocks go there since Begin; else null.
  float* AskReader() ABSL_LOCKS_EXCLUDED(mutex_);
  char* At(int64_t block) const;
  // Whether the lent values lie at the block's place now.
  bool Map(int64_t block, const LentValues& lent);

  const FlatSpace space_;
  Vector vectors_[2];
  std::shared_ptr<const void> pin_;  // of the first, in which all blocks then are copies
  int current_ = 0;
  std::vector<std::shared_ptr<const void>> loans_;  // by block
  std::atomic<bool> maps_{false};                   // lent values, since Begin
  std::atomic<bool> copies_{false};                 // into memory of its own, since that was freed
  std::atomic<int> borrowed_places_{0};

  const ReaderMemory reader_;
  mutable absl::Mutex mutex_;
  std::optional<float*> readers_ ABSL_GUARDED_BY(mutex_);  // as AskReader's, once it is asked
};

}  // namespace rubato

#endif  // RUBATO_WORKER_STEP_PARAMETER_MEMORY_H_
