#include "worker/step/compute_device.h"

#include <cstdlib>

#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tensor/cuda/cuda_device.h"
#include "worker/step/test_gpus.h"

namespace rubato {
namespace {

using ::testing::_;
using ::testing::ElementsAre;
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
  const auto chosen = ComputeDevice::Choose(Of(proto::Device::TYPE_CPU));
  RUBATO_ASSERT_OK(chosen);
  EXPECT_TRUE(chosen->is_cpu());
  EXPECT_EQ(chosen->note(), "");
  EXPECT_THAT(chosen->numerics(), StartsWith("cpu, OpenBLAS"));
  EXPECT_EQ(*chosen->Open(), nullptr);
}

TEST(ComputeDevice, WithoutAGpuCudaIsRefusedAndAutoTakesTheCpu) {
  if (CountGpus().ok()) GTEST_SKIP() << "there is a GPU";
  EXPECT_THAT(
      ComputeDevice::Choose(Of(proto::Device::TYPE_CUDA)),
      IsError(absl::StatusCode::kFailedPrecondition,
              "device.type: found cuda, but " + std::string(CountGpus().status().message())));
  const auto chosen = ComputeDevice::Choose(Of(proto::Device::TYPE_AUTO));
  RUBATO_ASSERT_OK(chosen);
  EXPECT_TRUE(chosen->is_cpu());
  EXPECT_EQ(chosen->note(), "computes on the CPU: " + std::string(CountGpus().status().message()));
}

TEST(ComputeDevice, AGpuIsTaken) {
  if (!CountGpus().ok()) GTEST_SKIP() << CountGpus().status().message();
  for (const auto type : {proto::Device::TYPE_AUTO, proto::Device::TYPE_CUDA}) {
    const auto chosen = ComputeDevice::Choose(Of(type, proto::Device::PRECISION_BF16));
    RUBATO_ASSERT_OK(chosen);
    EXPECT_THAT(chosen->numerics(), StartsWith("cuda, bf16, "));
    RUBATO_EXPECT_OK(chosen->Open());
  }
}

TEST(ComputeDevice, PrecisionIsTheGpus) {
  const auto cpu =
      ComputeDevice::Choose(Of(proto::Device::TYPE_CPU, proto::Device::PRECISION_BF16));
  RUBATO_ASSERT_OK(cpu);
  EXPECT_EQ(cpu->dtype(), DType::kFloat32);
  EXPECT_EQ(cpu->note(), "in float32, because device.precision: bf16 is for GPUs");
  setenv(kTestGpuVariable, "emulated", 1);
  const auto gpu =
      ComputeDevice::Choose(Of(proto::Device::TYPE_CUDA, proto::Device::PRECISION_FP16));
  unsetenv(kTestGpuVariable);
  RUBATO_ASSERT_OK(gpu);
  EXPECT_EQ(gpu->dtype(), DType::kFloat16);
  EXPECT_THAT(gpu->numerics(), HasSubstr("cuda, fp16"));
  EXPECT_NE(*gpu->Open(), nullptr);
}

// One number is kept of a row of scores, or all; and results are named by who computed them.
TEST(ComputeDevice, AttentionIsInOnePieceInHalfFloatsUnlessProductsAreAskedFor) {
  const int64_t rows = 3 * 2 * 8;
  using Device = proto::Device;
  const auto kept = [&](Device::Attention attention, Device::Precision precision) {
    Device device = Of(Device::TYPE_CUDA, precision);
    device.set_attention(attention);
    setenv(kTestGpuVariable, "emulated", 1);
    const auto chosen = ComputeDevice::Choose(device);
    unsetenv(kTestGpuVariable);
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
  EXPECT_EQ(kept(Device::ATTENTION_AUTO, Device::PRECISION_BF16), rows * 4);
  EXPECT_EQ(kept(Device::ATTENTION_AUTO, Device::PRECISION_FP16), rows * 4);
  EXPECT_EQ(kept(Device::ATTENTION_PRODUCTS, Device::PRECISION_BF16), rows * 8 * 2);
  EXPECT_EQ(kept(Device::ATTENTION_AUTO, Device::PRECISION_TF32), rows * 8 * 4);
}

// Likewise: whether the device asks for workspace tells, and results are named by who computed
// them.
TEST(ComputeDevice, ConvolutionsAreInOnePieceInHalfFloatsUnlessProductsAreAskedFor) {
  using Device = proto::Device;
  setenv(kTestGpuVariable, "emulated", 1);
  const auto is_fused = [&](Device::Convolution convolution, Device::Precision precision) {
    Device device = Of(Device::TYPE_CUDA, precision);
    device.set_convolution(convolution);
    const auto chosen = ComputeDevice::Choose(device);
    RUBATO_EXPECT_OK(chosen);
    const auto opened = chosen->Open();
    RUBATO_EXPECT_OK(opened);
    EXPECT_EQ((*opened)->fused_by(), "") << "before a convolution is asked for";
    const Convolution layer = {{8, 8, 3, 1, 1}, 16, 16, 1};
    (*opened)->kernels().ConvolutionScratch(layer, chosen->dtype(), 2);
    return !(*opened)->fused_by().empty();
  };
  EXPECT_TRUE(is_fused(Device::CONVOLUTION_AUTO, Device::PRECISION_BF16));
  EXPECT_TRUE(is_fused(Device::CONVOLUTION_AUTO, Device::PRECISION_FP16));
  EXPECT_FALSE(is_fused(Device::CONVOLUTION_PRODUCTS, Device::PRECISION_BF16));
  EXPECT_FALSE(is_fused(Device::CONVOLUTION_AUTO, Device::PRECISION_FLOAT32));
  unsetenv(kTestGpuVariable);
}

TEST(ComputeDevice, SeveralGpusExchangeUnlessTheHostIsToAdd) {
  proto::Device config = Of(proto::Device::TYPE_CUDA);
  setenv(kTestGpuVariable, "emulated:2", 1);
  EXPECT_FALSE(ComputeDevice::Choose(config, {0, 1})->exchanges());
  EXPECT_TRUE(ComputeDevice::Choose(config, {0, 2})->exchanges());
  EXPECT_EQ((*ComputeDevice::Choose(config, {0, 2})->OpenExchange(2))->gpus(), 2);
  config.set_exchange(proto::Device::EXCHANGE_HOST);
  EXPECT_FALSE(ComputeDevice::Choose(config, {0, 2})->exchanges());
  unsetenv(kTestGpuVariable);
}

TEST(ComputeDevice, EachWorkerOfAHostHasAGpuOfItsOwnAsFarAsTheyGo) {
  EXPECT_THAT(*GpusOf({0, 1}, 4), ElementsAre(0));
  EXPECT_THAT(*GpusOf({3, 1}, 4), ElementsAre(3));
  EXPECT_THAT(*GpusOf({5, 1}, 4), ElementsAre(1));
  EXPECT_THAT(*GpusOf({7, 1}, 1), ElementsAre(0));
}

TEST(ComputeDevice, WorkersWithSeveralGpusShareNone) {
  EXPECT_THAT(*GpusOf({0, 4}, 8), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(*GpusOf({1, 4}, 8), ElementsAre(4, 5, 6, 7));
  EXPECT_THAT(*GpusOf({1, 3}, 8), ElementsAre(3, 4, 5));
  EXPECT_THAT(GpusOf({2, 3}, 8),
              IsError(absl::StatusCode::kFailedPrecondition,
                      "cluster.gpus_per_worker: found 3, so that 3 workers of a host take 9 GPUs, "
                      "and there are 8"));
  EXPECT_THAT(GpusOf({0, 2}, 1),
              IsError(absl::StatusCode::kFailedPrecondition,
                      "cluster.gpus_per_worker: found 2, so that a worker takes 2 GPUs, and there "
                      "is 1"));
  EXPECT_THAT(GpusOf({2000000000, 64}, 8),
              IsError(absl::StatusCode::kFailedPrecondition, HasSubstr("128000000064 GPUs")));
  // What is left, if there is one.
  EXPECT_THAT(*GpusOf({2, 3, true}, 8), ElementsAre(6, 7));
  EXPECT_THAT(GpusOf({3, 3, true}, 8), IsError(absl::StatusCode::kFailedPrecondition, _));
}

class TestGpusTest : public ::testing::Test {
 protected:
  void SetUp() override { setenv(kTestGpuVariable, "emulated:8", 1); }
  void TearDown() override {
    unsetenv(kTestGpuVariable);
    unsetenv(kTestGpuFailsVariable);
  }
};

TEST_F(TestGpusTest, SeveralAreTaken) {
  const auto chosen = ComputeDevice::Choose(Of(proto::Device::TYPE_CUDA), {1, 4});
  RUBATO_ASSERT_OK(chosen);
  EXPECT_EQ(chosen->gpus(), 4);
  EXPECT_THAT(chosen->note(), StartsWith("computes on GPUs 4, 5, 6, 7 of 8, emulated by "));
  for (int i = 0; i < 4; ++i) EXPECT_NE(*chosen->Open(i), nullptr);
  EXPECT_THAT(ComputeDevice::Choose(Of(proto::Device::TYPE_AUTO), {2, 4}),
              IsError(absl::StatusCode::kFailedPrecondition, HasSubstr("12 GPUs")));
  const auto cpu =
      ComputeDevice::Choose(Of(proto::Device::TYPE_CPU, proto::Device::PRECISION_BF16), {2, 4});
  RUBATO_ASSERT_OK(cpu);
  EXPECT_EQ(cpu->gpus(), 0);
  EXPECT_EQ(cpu->note(),
            "in float32, because device.precision: bf16 is for GPUs; without "
            "cluster.gpus_per_worker: 4, which is for GPUs");
}

TEST_F(TestGpusTest, OneThatDoesNotWorkIsLeftOutByAWorkerThatIsStartedAgain) {
  setenv(kTestGpuFailsVariable, "5:1:/", 1);
  auto first = ComputeDevice::Choose(Of(proto::Device::TYPE_CUDA), {1, 4});
  auto again = ComputeDevice::Choose(Of(proto::Device::TYPE_CUDA), {1, 4, true});
  RUBATO_ASSERT_OK(first);
  RUBATO_ASSERT_OK(again);
  const absl::Status why = again->Open(1).status();
  EXPECT_FALSE(why.ok());
  EXPECT_FALSE(first->LeaveOut(1, why));
  EXPECT_TRUE(again->LeaveOut(1, why));
  EXPECT_THAT(again->note(), StartsWith("computes on GPUs 4, 6, 7 of 8, emulated by "));
  EXPECT_THAT(again->warnings(), ElementsAre(HasSubstr("leaves GPU 5 out: ")));
  RUBATO_EXPECT_OK(again->Open(1));
  EXPECT_TRUE(again->LeaveOut(0, why));
  EXPECT_TRUE(again->LeaveOut(0, why));
  EXPECT_FALSE(again->LeaveOut(0, why)) << "the last one";
}

}  // namespace
}  // namespace rubato
