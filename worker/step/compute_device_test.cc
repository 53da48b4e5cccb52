#include "worker/step/compute_device.h"

#include <cstdlib>

#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tensor/cuda/cuda_device.h"

namespace rubato {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

proto::Device Of(proto::Device::Type type,
                 proto::Device::Precision precision = proto::Device::PRECISION_FLOAT32) {
  proto::Device device;
  device.set_type(type);
  device.set_precision(precision);
  return device;
}

TEST(ComputeDevice, TheCpuIsTakenWithoutALookAtGpus) {
  const auto chosen = ComputeDevice::Choose(Of(proto::Device::TYPE_CPU), 0);
  RUBATO_ASSERT_OK(chosen);
  EXPECT_TRUE(chosen->is_cpu());
  EXPECT_EQ(chosen->note(), "");
  EXPECT_THAT(chosen->numerics(), StartsWith("cpu, OpenBLAS"));
  EXPECT_EQ(*chosen->Open(), nullptr);
}

TEST(ComputeDevice, WithoutAGpuCudaIsRefusedAndAutoTakesTheCpu) {
  if (CountGpus().ok()) GTEST_SKIP() << "there is a GPU";
  EXPECT_THAT(
      ComputeDevice::Choose(Of(proto::Device::TYPE_CUDA), 0),
      IsError(absl::StatusCode::kFailedPrecondition,
              "device.type: found cuda, but " + std::string(CountGpus().status().message())));
  const auto chosen = ComputeDevice::Choose(Of(proto::Device::TYPE_AUTO), 0);
  RUBATO_ASSERT_OK(chosen);
  EXPECT_TRUE(chosen->is_cpu());
  EXPECT_EQ(chosen->note(), "computes on the CPU: " + std::string(CountGpus().status().message()));
}

TEST(ComputeDevice, AGpuIsTaken) {
  if (!CountGpus().ok()) GTEST_SKIP() << CountGpus().status().message();
  for (const auto type : {proto::Device::TYPE_AUTO, proto::Device::TYPE_CUDA}) {
    const auto chosen = ComputeDevice::Choose(Of(type, proto::Device::PRECISION_BF16), 0);
    RUBATO_ASSERT_OK(chosen);
    EXPECT_THAT(chosen->numerics(), StartsWith("cuda, bf16, "));
    RUBATO_EXPECT_OK(chosen->Open());
  }
}

TEST(ComputeDevice, PrecisionIsTheGpus) {
  const auto cpu =
      ComputeDevice::Choose(Of(proto::Device::TYPE_CPU, proto::Device::PRECISION_BF16), 0);
  RUBATO_ASSERT_OK(cpu);
  EXPECT_EQ(cpu->dtype(), DType::kFloat32);
  EXPECT_EQ(cpu->note(), "in float32, because device.precision: bf16 is for GPUs");
  setenv(kTestGpuVariable, "emulated", 1);
  const auto gpu =
      ComputeDevice::Choose(Of(proto::Device::TYPE_CUDA, proto::Device::PRECISION_FP16), 0);
  unsetenv(kTestGpuVariable);
  RUBATO_ASSERT_OK(gpu);
  EXPECT_EQ(gpu->dtype(), DType::kFloat16);
  EXPECT_THAT(gpu->numerics(), HasSubstr("cuda, fp16"));
  EXPECT_NE(*gpu->Open(), nullptr);
}

// One number is kept of a row of scores, or all; and results are named by who computed them.
TEST(ComputeDevice, AttentionIsInOnePieceInHalfFloatsUnlessProductsAreAskedFor) {
  const int64_t rows = 3 * 2 * 8;
  const auto choose = [](const char* attention, proto::Device::Precision precision) {
    setenv(kTestGpuVariable, "emulated", 1);
    setenv(kAttentionVariable, attention, 1);
    const auto chosen = ComputeDevice::Choose(Of(proto::Device::TYPE_CUDA, precision), 0);
    unsetenv(kTestGpuVariable);
    unsetenv(kAttentionVariable);
    return chosen;
  };
  const auto kept = [&](const char* attention, proto::Device::Precision precision) {
    const auto chosen = choose(attention, precision);
    RUBATO_EXPECT_OK(chosen);
    const auto opened = chosen->Open();
    RUBATO_EXPECT_OK(opened);
    const Attention layer = {2, 8, 16, true, chosen->dtype()};
    const int64_t values = (*opened)->kernels().MemoryOf(layer, 3).saved;
    EXPECT_EQ((*opened)->fused_by().empty(), values == rows * 8);
    const std::string numerics = chosen->numerics((*opened)->fused_by());
    EXPECT_EQ(numerics == chosen->numerics(), (*opened)->fused_by().empty());
    return values * BytesOf(chosen->dtype());
  };
  using Device = proto::Device;
  EXPECT_EQ(kept("auto", Device::PRECISION_BF16), rows * 4);
  EXPECT_EQ(kept("auto", Device::PRECISION_FP16), rows * 4);
  EXPECT_EQ(kept("products", Device::PRECISION_BF16), rows * 8 * 2);
  EXPECT_EQ(kept("auto", Device::PRECISION_TF32), rows * 8 * 4);
  EXPECT_THAT(choose("flash", Device::PRECISION_BF16),
              IsError(absl::StatusCode::kInvalidArgument,
                      HasSubstr("RUBATO_ATTENTION: found flash, expected auto or products")));
}

TEST(ComputeDevice, EachWorkerOfAHostHasAGpuOfItsOwnAsFarAsTheyGo) {
  EXPECT_EQ(GpuOf(0, 4), 0);
  EXPECT_EQ(GpuOf(3, 4), 3);
  EXPECT_EQ(GpuOf(5, 4), 1);
  EXPECT_EQ(GpuOf(7, 1), 0);
}

}  // namespace
}  // namespace rubato
