// Several GPUs of one worker, each with a thread, over a CUDA runtime of the tests' own: its rules
// hold for each thread, and a failure tells which GPU it was.
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tensor/cuda/fake_cublas.h"
#include "tensor/cuda/fake_cuda.h"
#include "tensor/cuda/run_apart.h"
#include "worker/step/lanes_on_fakes.h"

namespace rubato {
namespace {

using ::testing::MatchesRegex;

class CudaLanesTest : public ::testing::Test {
 protected:
  CudaLanesTest() {
    TheFakeCuda() = FakeCuda();
    ResetFakeCublas();
  }
};

TEST_F(CudaLanesTest, KeepTheRulesOfTheirThreadsAndGiveBackAll) {
  for (int repetition = 0; repetition < 10; ++repetition) {
    const int64_t launches = TheFakeCuda().launches;
    RUBATO_EXPECT_OK(TrainLanes());
    EXPECT_GT(TheFakeCuda().launches - launches, 100);
    EXPECT_EQ(TheFakeCuda().live, 0);
    EXPECT_EQ(TheFakeCublas().live, 0);
    EXPECT_TRUE(TheFakeCublas().violations.empty());
  }
}

// What is registered is so for both GPUs, once: parameters and each buffer of gradients. Where it
// is refused, all of it is copied, with one warning.
TEST_F(CudaLanesTest, RegisterTheHostsMemoryOnceForAllGpus) {
  const auto count = [](const char* call) {
    const std::vector<std::string>& calls = TheFakeCuda().calls;
    return std::count(calls.begin(), calls.end(), call);
  };
  int64_t copied = -1;
  RUBATO_EXPECT_OK(TrainLanes(
      nullptr, [] {}, &copied));
  EXPECT_EQ(copied, 0);
  EXPECT_EQ(count("cudaHostRegister"), 3);
  EXPECT_EQ(count("cudaHostUnregister"), 3);

  TheFakeCuda().refuses_memory = true;
  testing::internal::CaptureStderr();
  RUBATO_EXPECT_OK(TrainLanes(
      nullptr, [] {}, &copied));
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, MatchesRegex("warning: on the GPU: [^\n]*cudaError801.\n"));
  EXPECT_GT(copied, 0);
  EXPECT_EQ(count("cudaHostUnregister"), 3);
  EXPECT_EQ(TheFakeCuda().live, 0);
}

// What a process of its own says whose call number `call` fails, and how it ends.
Ended TrainWith(int64_t call, cudaError_t error) {
  return RunApart([&] {
    TheFakeCuda().fails_at = call;
    TheFakeCuda().error = error;
    TheFakeCuda().stays = true;
    return TrainLanes().ok() ? 0 : 3;
  });
}

// In the midst of steps, whichever thread makes the call.
TEST_F(CudaLanesTest, AFailureEndsTheProcessWithOneSentenceThatNamesTheGpu) {
  int64_t begin = 0;
  RUBATO_ASSERT_OK(
      TrainLanes(nullptr, [&] { begin = static_cast<int64_t>(TheFakeCuda().calls.size()); }));
  const int64_t end = static_cast<int64_t>(TheFakeCuda().calls.size());
  int told[2] = {};
  for (int64_t call = begin; call < begin + (end - begin) / 2; call += 7) {
    const auto [code, said] = TrainWith(call, cudaErrorIllegalAddress);
    EXPECT_EQ(code, 1) << "call " << call;
    EXPECT_THAT(said, MatchesRegex("error: on GPU [01]: .* failed: .*\n")) << "call " << call;
    ++told[said.size() > 14 && said[14] == '1'];
  }
  EXPECT_GT(told[0], 0);
  EXPECT_GT(told[1], 0);
}

}  // namespace
}  // namespace rubato
