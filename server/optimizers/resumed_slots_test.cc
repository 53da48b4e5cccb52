#include "server/optimizers/resumed_slots.h"

#include <string>

#include "gtest/gtest.h"
#include "proto/checkpoint.pb.h"
#include "proto/cluster.pb.h"
#include "proto/job.pb.h"

namespace rubato {
namespace {

proto::Job WithMomentum() {
  proto::Job job;
  job.mutable_optimizer()->set_name(proto::Optimizer::NAME_SGD);
  job.mutable_optimizer()->set_learning_rate(0.1);
  job.mutable_optimizer()->set_momentum(0.9);
  return job;
}

// After 30 steps, of which two were skipped.
proto::Manifest Checkpoint(const std::string& slot) {
  proto::Manifest manifest;
  if (!slot.empty()) manifest.add_slots(slot);
  for (int block = 0; block < 3; ++block) {
    proto::BlockState* state = manifest.add_blocks();
    state->set_block(block);
    state->set_version(30);
    state->set_samples(28 * 64);
    state->set_skipped(2);
  }
  return manifest;
}

TEST(MatchSlotsTest, TakesThoseOfTheSameOptimizer) {
  proto::Manifest manifest = Checkpoint("momentum_buffer");
  const std::string before = manifest.DebugString();
  EXPECT_EQ(*MatchSlots(WithMomentum(), &manifest), "");
  EXPECT_EQ(manifest.DebugString(), before);
}

// A rule's first update differs from its others: Adam corrects its moments by their number,
// momentum takes the gradient without dampening.
TEST(MatchSlotsTest, OfAnotherItTakesNothingAndItsNextUpdateIsTheFirst) {
  for (const std::string slot : {"", "sum"}) {
    proto::Manifest manifest = Checkpoint(slot);
    const absl::StatusOr<std::string> note = MatchSlots(WithMomentum(), &manifest);
    ASSERT_TRUE(note.ok());
    EXPECT_EQ(*note, "the optimizer begins anew: the checkpoint holds " +
                         (slot.empty() ? "nothing" : slot) +
                         " for it, and this job's servers keep momentum_buffer");
    EXPECT_EQ(manifest.slots_size(), 0);
    for (const proto::BlockState& block : manifest.blocks()) {
      EXPECT_EQ(block.skipped(), 30);
      EXPECT_EQ(block.version(), 30);
      EXPECT_EQ(block.samples(), 28 * 64) << "by which the learning rate goes";
    }
  }
}

}  // namespace
}  // namespace rubato
