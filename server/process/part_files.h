// Writes and reads a shard's part of checkpoints during the training, on a separate thread that
// uses idle processor time.
#ifndef RUBATO_SERVER_PROCESS_PART_FILES_H_
#define RUBATO_SERVER_PROCESS_PART_FILES_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "common/frames/frame.h"
#include "common/frames/payload.h"
#include "proto/cluster.pb.h"
#include "proto/job.pb.h"
#include "proto/view.pb.h"
#include "server/shard/shard_event.h"

namespace rubato {

class PartFiles {
 public:
  // What its thread calls. None of them but the last blocks for long.
  struct Outlets {
    // To the coordinator.
    std::function<void(const proto::PeerMessage&)> say;
    // Passes a frame to the shard, which releases the payload when the frame has been handled or is
    // dropped.
    std::function<void(const Frame& frame, const Payload& payload)> give;
    // Makes ready what a snapshot needs, unless `stops` says so; takes long. May be null.
    std::function<void(absl::FunctionRef<bool()> stops)> prepare;
  };

  // Of shard number `shard`. InvalidArgument if the job's optimizer cannot be made.
  static absl::StatusOr<std::unique_ptr<PartFiles>> Create(const proto::Job& job, int shard,
                                                           Outlets outlets);
  ~PartFiles() { Close(); }
  // Stops calling outlets, and does not wait for the disk. Later requests are ignored. Any thread.
  void Close();

  // Before the first of the others. Any thread.
  void SetView(const proto::View& view);
  // The shard has made its state: what its snapshots need is to be made ready, when it is time.
  void Prepare();
  // Reports the result (proto::PartWritten). A part that is still being written is abandoned: the
  // coordinator never needs two at a time.
  void Write(const shard_outcome::WritePart& part);
  // Gives up that part, if it is still being written.
  void Forget(uint32_t snapshot);
  // Gives the shard its floats, or says that it does not see them (proto::ShardRestored).
  void Read(const shard_outcome::ReadPart& part);

 private:
  class Worker;

  explicit PartFiles(std::shared_ptr<Worker> worker) : worker_(std::move(worker)) {}

  const std::shared_ptr<Worker> worker_;
};

}  // namespace rubato

#endif  // RUBATO_SERVER_PROCESS_PART_FILES_H_
