// The pulls that a shard may not answer yet: of each block, in order of arrival, and of a view that
// has not come.
#ifndef RUBATO_SERVER_SHARD_WAITING_PULLS_H_
#define RUBATO_SERVER_SHARD_WAITING_PULLS_H_

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/functional/function_ref.h"
#include "common/frames/codec.h"
#include "common/frames/frame.h"
#include "common/space/flat_space.h"

namespace rubato {

// A worker's wish for parameters, or an observer's.
struct Pull {
  uint64_t puller = 0;  // the stream that the answer goes to
  uint32_t worker = kObserver;
  uint32_t view = 0;  // a worker's pull counts in its view only
  int64_t clock = 0;
  uint64_t number = 0;            // comes back with the answer
  bool retire = false;            // see FrameKind::kRetire
  Codec codec = Codec::kFloat32;  // of the answer
};

class WaitingPulls {
 public:
  // Streams that may wait for a block: as many as a job has workers at most, and some observers.
  static constexpr size_t kMost = (1 << 16) + 64;

  // A pull of a later view, of these blocks.
  struct Early {
    Pull pull;
    Range blocks;
  };

  explicit WaitingPulls(Range blocks) : first_(blocks.begin), by_block_(blocks.size()) {}

  // Adds a pull, which replaces an earlier one of the same stream, because a stream has one pull at
  // a time. False if kMost others already wait for the block.
  bool Add(int64_t block, const Pull& pull);
  void AddEarly(const Pull& pull, Range blocks) { early_.push_back({pull, blocks}); }

  // Calls `answer` with each pull of the block that `may_answer`, and forgets it.
  void Answer(int64_t block, absl::FunctionRef<bool(const Pull&)> may_answer,
              absl::FunctionRef<void(const Pull&)> answer);
  // Forgets the block's pulls of workers in views before `view`: they ask anew.
  void ForgetBefore(int64_t block, uint32_t view);
  void ForgetPuller(uint64_t puller);
  // Those that came before their view, which are forgotten.
  std::vector<Early> TakeEarly();

 private:
  struct Queue {
    std::vector<Pull> pulls;
    absl::flat_hash_set<uint64_t> pullers;  // of them: most ask when none of theirs waits

    void EraseIf(absl::FunctionRef<bool(const Pull&)> predicate);
  };

  int64_t first_;
  std::vector<Queue> by_block_;
  std::vector<Early> early_;
};

}  // namespace rubato

#endif  // RUBATO_SERVER_SHARD_WAITING_PULLS_H_
