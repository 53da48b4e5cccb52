// Which blocks are in the snapshot that a shard takes.
#ifndef RUBATO_SERVER_SHARD_SNAPSHOT_PROGRESS_H_
#define RUBATO_SERVER_SHARD_SNAPSHOT_PROGRESS_H_

#include <cstdint>
#include <vector>

#include "common/space/flat_space.h"

namespace rubato {

class SnapshotProgress {
 public:
  explicit SnapshotProgress(Range blocks) : first_(blocks.begin), copied_(blocks.size()) {}

  uint32_t id() const { return id_; }
  // In sync: the version to copy.
  int64_t step() const { return step_; }

  // Snapshot `id`, above all earlier ones, of which none goes on.
  void Begin(uint32_t id, int64_t step) {
    id_ = id;
    step_ = step;
    missing_ = static_cast<int64_t>(copied_.size());
  }
  bool Lacks(int64_t block) const { return copied_[block - first_] != id_; }
  void Add(int64_t block) {
    copied_[block - first_] = id_;
    --missing_;
  }
  // Its step will not be, so it will not be whole either: nothing is missing any more.
  void Forget() {
    copied_.assign(copied_.size(), id_);
    missing_ = 0;
  }
  // Of a snapshot that has begun.
  bool IsWhole() const { return missing_ == 0; }

 private:
  int64_t first_;
  uint32_t id_ = 0;
  int64_t step_ = -1;
  int64_t missing_ = 0;
  std::vector<uint32_t> copied_;  // by block: the last snapshot that it is in
};

}  // namespace rubato

#endif  // RUBATO_SERVER_SHARD_SNAPSHOT_PROGRESS_H_
