// What the core of a shard (server/shard/shard.h) decides, for its shell to do, in order.
#ifndef RUBATO_SERVER_SHARD_SHARD_ACTION_H_
#define RUBATO_SERVER_SHARD_SHARD_ACTION_H_

#include <cstdint>
#include <variant>
#include <vector>

#include "common/consistency/ledger.h"
#include "common/frames/codec.h"
#include "common/frames/frame.h"
#include "proto/cluster.pb.h"

namespace rubato {

namespace shard_action {

// Changes of a block, of which at most one is outstanding for each block. The shell calls
// Shard::OnChanged(block) when it is done.

// payload += other; `other` is released.
struct Sum {
  int64_t block = 0;
  PayloadId payload = 0;
  PayloadId other = 0;
};
// Update the block with `payload`, which is released.
struct Apply {
  int64_t block = 0;
  PayloadId payload = 0;
  int64_t samples = 0;         // of the sum
  int64_t weight = 0;          // by which it is divided; averages of statistics by the samples
  int64_t samples_before = 0;  // in earlier updates of the block: the schedule's argument
  int64_t updates_before = 0;  // that the optimizer has made of the block
  double rate = 1;             // the share of the job's learning rate that it has
  double factor = 1;           // of the gradient, by the verdict
  bool keeps_previous = true;  // the version before may still be asked for
  int64_t version = 0;         // that it makes
};
// The sum of squares of `payload`, and whether it is finite.
struct Measure {
  int64_t block = 0;
  PayloadId payload = 0;
  int64_t weight = 0;
};
// Release `payload`: a decision leaves it out.
struct Skip {
  int64_t block = 0;
  PayloadId payload = 0;
  int64_t samples = 0;
  int64_t version = 0;  // that it makes, with the bits of the one before
};

// The others are done at once.

// Send the block's parameters to `puller`.
struct Send {
  uint64_t puller = 0;
  int64_t block = 0;
  int64_t version = 0;          // of the parameters
  bool previous = false;        // it is the version before the current one
  int64_t clock = 0;            // as asked
  uint64_t pull = 0;            // its number, as asked
  int64_t staleness = 0;        // of the worker's last contribution to the block
  uint32_t worker = kObserver;  // who asked
  Codec codec = Codec::kFloat32;
};
// Release `payload`: it was counted before, or counts no more.
struct Drop {
  PayloadId payload = 0;
};
// Ask the coordinator, with what has been measured if that is what the question says: of all
// blocks.
struct Ask {
  proto::Question question;
};
// Put the block, which is at `version`, into snapshot `snapshot`.
struct Copy {
  int64_t block = 0;
  int64_t version = 0;
  uint32_t snapshot = 0;
};
// All blocks are in snapshot `snapshot`.
struct Copied {
  uint32_t snapshot = 0;
};
// Snapshot `snapshot` cannot be taken: a block is at `version`, beyond its step, or is being
// brought there.
struct Missed {
  uint32_t snapshot = 0;
  int64_t version = 0;
};
// The view is closed: report Shard::State().
struct Closed {};

}  // namespace shard_action

using ShardAction =
    std::variant<shard_action::Sum, shard_action::Apply, shard_action::Measure, shard_action::Skip,
                 shard_action::Send, shard_action::Drop, shard_action::Ask, shard_action::Copy,
                 shard_action::Copied, shard_action::Missed, shard_action::Closed>;
using ShardActions = std::vector<ShardAction>;

}  // namespace rubato

#endif  // RUBATO_SERVER_SHARD_SHARD_ACTION_H_
