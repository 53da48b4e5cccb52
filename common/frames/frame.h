// A data stream carries frames: a fixed header of 96 bytes, little-endian, and then a payload,
// whose codec, size and number of values the header tells. A message holds one frame or several
// (common/wire/message.h).
#ifndef RUBATO_COMMON_FRAMES_FRAME_H_
#define RUBATO_COMMON_FRAMES_FRAME_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/base/range.h"
#include "common/frames/codec.h"

namespace rubato {

// Used in place of a rank: a puller that computes nothing and reads the current state.
constexpr uint32_t kObserver = 0xffffffff;

enum class FrameKind : uint8_t {
  kPush = 1,  // worker to shard: a gradient sum for one block; payload: its values
  kPull = 2,  // worker to shard: wants `block_count` blocks from `block` on, each as soon as it may
              // be read
  kParameters = 3,  // shard to worker: one block; payload: its values
  kRestore = 4,     // coordinator to shard: one block of a checkpoint; payload: its values
  kRetire = 5,  // worker to shard: as kPull, of a worker that has nothing left to compute: waits
                // only for its own contributions, and nobody waits for its clock any more
};

struct Frame {
  FrameKind kind = FrameKind::kPush;
  Codec codec = Codec::kFloat32;  // of the payload; pull: of the answers
  uint32_t view = 0;
  uint32_t worker = 0;       // rank of the sender (to a shard) or the receiver
  uint32_t incarnation = 0;  // of that worker
  uint64_t block = 0;
  uint64_t clock = 0;    // push: step (sync) or the worker's clock; pull: the clock it is for;
                         // parameters: as asked
  uint64_t version = 0;  // push: the version of the block that the gradient was computed at;
                         // parameters: its version; pull: the attempt of its sender's
                         // registration, by which a shard knows whose the stream is
  union {
    uint32_t block_count = 0;  // pull
    uint32_t weight;           // push: what the sum divided by is its mean: its samples, or what a
                               // script says, such as tokens
  };
  uint32_t samples = 0;     // push: of the sum
  uint32_t first_leaf = 0;  // push: the node of the reduction tree
  uint32_t end_leaf = 0;
  uint64_t unit = 0;       // push: which samples: the step (sync) or the contribution's number;
                           // pull and parameters: the number of the pull, among its worker's;
                           // restore: the view's key
  uint32_t staleness = 0;  // parameters: that of the worker's last contribution to the block
  uint32_t slot =
      0;  // parameters of a snapshot, restore: 0 the parameters, 1… the optimizer's slots
  uint32_t snapshot = 0;       // pull: of this snapshot, all its slots; 0: the parameters in force
  uint32_t lineage = 0;        // push: that of the view that it was computed in
  uint32_t payload_bytes = 0;  // that follow the header
  uint32_t values = 0;         // in the payload

  Range node() const { return {first_leaf, end_leaf}; }
  // Pull: the blocks that it asks for. A peer may send any numbers, so this may not be a valid
  // range.
  Range blocks() const {
    return {static_cast<int64_t>(block), static_cast<int64_t>(block + block_count)};
  }
  void set_blocks(Range blocks) {
    block = static_cast<uint64_t>(blocks.begin);
    block_count = static_cast<uint32_t>(blocks.size());
  }
};

constexpr int64_t kFrameHeaderBytes = 96;

// Writes the header to `out`, which has kFrameHeaderBytes.
void EncodeFrame(const Frame& frame, uint8_t* out);

// Reads a header. InvalidArgument if the bytes are no frame of this version of the protocol.
absl::StatusOr<Frame> DecodeFrame(absl::Span<const uint8_t> header);

}  // namespace rubato

#endif  // RUBATO_COMMON_FRAMES_FRAME_H_
