#include "worker/step/evaluator.h"

#include <cstdlib>

#include "common/base/status_matchers.h"
#include "gtest/gtest.h"
#include "worker/step/test_gpus.h"

namespace rubato {
namespace {

TEST(EvaluationBatch, IsOnAGpuNoMoreThanTrainingTakes) {
  const ComputeDevice cpu;
  EXPECT_EQ(EvaluationBatch(10000, cpu, 16), 250);
  EXPECT_EQ(EvaluationBatch(100, cpu, 16), 100);
  proto::Device device;
  device.set_type(proto::Device::TYPE_CUDA);
  setenv(kTestGpuVariable, "emulated", 1);
  const absl::StatusOr<ComputeDevice> gpu = ComputeDevice::Choose(device);
  unsetenv(kTestGpuVariable);
  RUBATO_ASSERT_OK(gpu);
  EXPECT_EQ(EvaluationBatch(10000, *gpu, 16), 16);
  EXPECT_EQ(EvaluationBatch(10000, *gpu, 4096), 250);
  EXPECT_EQ(EvaluationBatch(10, *gpu, 16), 10);
}

}  // namespace
}  // namespace rubato
