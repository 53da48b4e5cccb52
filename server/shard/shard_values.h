// The interface between a shard's protocol and its values: the protocol says what to do with
// payloads and blocks and never reads them. They are floats (server/shard/float_values.h) or
// symbols that stand for them (tools/simulator/symbolic_values.h).
#ifndef RUBATO_SERVER_SHARD_SHARD_VALUES_H_
#define RUBATO_SERVER_SHARD_SHARD_VALUES_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/frames/frame.h"
#include "common/frames/payload.h"
#include "common/frames/received_values.h"
#include "common/space/flat_space.h"
#include "common/space/sum_of_squares.h"
#include "proto/view.pb.h"
#include "server/shard/shard_action.h"

namespace rubato {

class ShardValues {
 public:
  // A block as it is; borrowed until its next change.
  struct Block {
    absl::Span<const float> parameters;
    absl::Span<const absl::Span<float>> slots;
  };

  virtual ~ShardValues() = default;

  // At the first view: makes the shard's blocks, at their initial values, and returns which they
  // are. InvalidArgument if the view does not place them; ResourceExhausted if memory does not hold
  // them.
  virtual absl::StatusOr<Range> Open(const proto::View& view) = 0;
  // In its place, at the first view of a term that goes on with the blocks of the one before, as
  // they are: lets go of payloads that were not used. FailedPrecondition if the view does not place
  // these blocks.
  virtual absl::StatusOr<Range> GoOn(const proto::View& view) = 0;

  // Values in a block, and in a payload for it.
  virtual size_t BlockSize(int64_t block) const = 0;
  // The optimizer's, of each parameter.
  virtual size_t slots() const = 0;

  // A payload arrives with `frame`. `values` are borrowed until EndArrival, which copies them if
  // the payload has not been used or released by then.
  virtual PayloadId Arrive(const Frame& frame, const ReceivedValues& values) = 0;
  virtual void EndArrival() = 0;
  virtual void Release(PayloadId payload) = 0;

  // Whether changes take time: then each is made when shard_event::ChangeDue says so.
  virtual bool TakesTime(int64_t /*block*/) { return false; }

  // See shard_action.h.
  virtual void Sum(const shard_action::Sum& sum) = 0;
  virtual Block Apply(const shard_action::Apply& apply) = 0;
  virtual void Skip(const shard_action::Skip& skip) = 0;
  // Adds the payload's squares to `squares`; or adds nothing and returns the place in the flat
  // vector of its first value that is not finite.
  virtual std::optional<int64_t> Measure(const shard_action::Measure& measure,
                                         SumOfSquares* squares) = 0;

  // The parameters of a block on their way out; completes the header of `frame`, which they follow.
  virtual Payload Read(const shard_action::Send& send, Frame* frame) = 0;
  // The block as it is, to be kept: its parameters, then its slots.
  virtual std::vector<Payload> Copy(int64_t block) = 0;
  // Overwrites the parameters (slot 0) or a slot of the optimizer (1...) before the first update.
  virtual void Restore(int64_t block, uint32_t slot, const ReceivedValues& values) = 0;
};

}  // namespace rubato

#endif  // RUBATO_SERVER_SHARD_SHARD_VALUES_H_
