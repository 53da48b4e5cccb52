#include "worker/model/loss_scaler.h"

#include "gtest/gtest.h"

namespace rubato {
namespace {

// Expected values by hand, from the rule that torch.cuda.amp.GradScaler documents.
TEST(LossScaler, HalvesAfterAnOverflowAndDoublesAfter2000GoodSteps) {
  LossScaler scaler;
  EXPECT_EQ(scaler.scale(), 65536);
  scaler.OnStep(true);
  EXPECT_EQ(scaler.scale(), 32768);
  scaler.OnStep(true);
  EXPECT_EQ(scaler.scale(), 16384);
  for (int i = 0; i < 1999; ++i) scaler.OnStep(false);
  EXPECT_EQ(scaler.scale(), 16384);
  scaler.OnStep(false);
  EXPECT_EQ(scaler.scale(), 32768);
}

TEST(LossScaler, AnOverflowBeginsTheCountAnew) {
  LossScaler scaler;
  for (int i = 0; i < 1999; ++i) scaler.OnStep(false);
  scaler.OnStep(true);
  for (int i = 0; i < 1999; ++i) scaler.OnStep(false);
  EXPECT_EQ(scaler.scale(), 32768);
  scaler.OnStep(false);
  EXPECT_EQ(scaler.scale(), 65536);
}

TEST(LossScaler, StaysWithinWhatFloat32AndItsInverseHold) {
  LossScaler scaler;
  for (int i = 0; i < 100; ++i) scaler.OnStep(true);
  EXPECT_EQ(scaler.scale(), 1);
  for (int i = 0; i < 100 * 2000; ++i) scaler.OnStep(false);
  EXPECT_EQ(scaler.scale(), 0x1p64);
}

}  // namespace
}  // namespace rubato
