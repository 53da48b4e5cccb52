// Reads the parameters of all shards, as an observer, over the same streams that workers use.
#ifndef RUBATO_SERVER_RUN_COLLECT_H_
#define RUBATO_SERVER_RUN_COLLECT_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/monotonic.h"
#include "common/files/checkpoint.h"
#include "common/wire/connection_options.h"
#include "common/wire/shard_streams.h"
#include "proto/job.pb.h"
#include "proto/view.pb.h"

namespace rubato {

// What to read of each block.
struct Selection {
  int64_t version = 0;    // parameters at this version or later, if there is no snapshot
  uint32_t snapshot = 0;  // what this snapshot holds
  int slots = 0;          // of the optimizer that come with it
};

// Which blocks of which slots have yet to come, and until when they are waited for: each that comes
// gives the others `silence` more.
class AwaitedBlocks {
 public:
  AwaitedBlocks(int64_t blocks, int64_t slots, absl::Duration silence, absl::Time now)
      : blocks_(blocks),
        silence_(silence),
        has_come_(static_cast<size_t>(blocks * slots)),
        missing_(blocks * slots),
        deadline_(now + silence) {}

  // One that has come before is no matter.
  void OnBlock(int64_t block, int64_t slot, absl::Time now);
  absl::Time deadline() const { return deadline_; }
  int64_t missing() const { return missing_; }
  int64_t size() const { return static_cast<int64_t>(has_come_.size()); }

 private:
  const int64_t blocks_;
  const absl::Duration silence_;
  std::vector<bool> has_come_;  // (slots, blocks)
  int64_t missing_;
  absl::Time deadline_;
};

// What one thread collects, another may end.
struct CollectEnd {
  void Set() ABSL_LOCKS_EXCLUDED(mutex) {
    MonotonicLock lock(&mutex);
    is_set = true;
  }

  MonotonicMutex mutex;
  bool is_set ABSL_GUARDED_BY(mutex) = false;
};

// The whole flat vectors. DeadlineExceeded if blocks are missing and none has come for `silence`;
// the error of a stream that breaks; Cancelled when `end` is set, which a connection that is being
// made would not notice for as long as that is given.
absl::StatusOr<TrainingState> CollectState(const proto::Job& job, const proto::View& view,
                                           const Selection& selection,
                                           const std::string& job_digest,
                                           const ConnectionOptions& connection,
                                           absl::Duration silence, CollectEnd* end);

// Sends them to the shards, whose coordinator waits for their answers. The streams must live until
// those have come.
absl::StatusOr<std::unique_ptr<ShardStreams>> SendState(
    const proto::Job& job, const proto::View& view, std::shared_ptr<const TrainingState> state,
    const std::string& job_digest, const ConnectionOptions& connection,
    std::function<void(absl::Status)> on_failure);

// Writes them under the layout's names and shapes; returns TensorsDigest of them.
absl::StatusOr<std::string> WriteParameters(const std::string& path, const proto::Layout& layout,
                                            const std::vector<float>& parameters);

}  // namespace rubato

#endif  // RUBATO_SERVER_RUN_COLLECT_H_
