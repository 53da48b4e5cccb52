// Several GPUs of one worker that add their sums up themselves, each with a thread, over a CUDA
// runtime and an NCCL of the tests' own.
#include <cstdint>
#include <functional>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tensor/cuda/fake_cublas.h"
#include "tensor/cuda/fake_cuda.h"
#include "tensor/cuda/fake_nccl.h"
#include "tensor/cuda/nccl_exchange.h"
#include "tensor/cuda/run_apart.h"
#include "worker/step/lanes_on_fakes.h"

namespace rubato {
namespace {

using ::testing::IsEmpty;
using ::testing::MatchesRegex;

constexpr int64_t kUnits = 3, kParameterBytes = (6 * 8 + 8 + 8 * 3 + 3) * 4;

absl::StatusOr<std::unique_ptr<Exchange>> ByNccl() { return OpenNcclExchange({0, 1}); }

// Numbers of calls of CUDA's and of NCCL's.
struct Calls {
  int64_t cuda = 0, nccl = 0;
};
Calls CallsSoFar() {
  return {static_cast<int64_t>(TheFakeCuda().calls.size()),
          static_cast<int64_t>(TheFakeNccl().calls.size())};
}

class NcclLanesTest : public ::testing::Test {
 protected:
  NcclLanesTest() {
    TheFakeCuda() = FakeCuda();
    ResetFakeCublas();
    ResetFakeNccl();
  }
};

TEST_F(NcclLanesTest, KeepTheRulesOfTheirThreadsAndGiveBackAll) {
  for (int repetition = 0; repetition < 10; ++repetition) {
    RUBATO_EXPECT_OK(TrainLanes(&ByNccl));
    EXPECT_EQ(TheFakeCuda().live, 0);
    EXPECT_EQ(TheFakeCublas().live, 0);
    EXPECT_EQ(TheFakeNccl().live, 0);
    EXPECT_TRUE(TheFakeCublas().violations.empty());
    EXPECT_THAT(TheFakeNccl().violations, IsEmpty());
  }
}

// Straight from and to memory that is registered for both.
TEST_F(NcclLanesTest, CopyNothingOnTheHostWhereItIsRegistered) {
  int64_t copied = -1;
  RUBATO_EXPECT_OK(TrainLanes(
      &ByNccl, [] {}, &copied));
  EXPECT_EQ(copied, 0);
  TheFakeCuda().refuses_memory = true;
  RUBATO_EXPECT_OK(TrainLanes(
      &ByNccl, [] {}, &copied));
  EXPECT_EQ(copied, 2 * kUnits * kParameterBytes);
}

// Parameters and sums cross a link once in all, and not once for each GPU.
TEST_F(NcclLanesTest, EachGpuSendsAndReceivesItsSliceAlone) {
  RUBATO_EXPECT_OK(TrainLanes());
  const int64_t up = TheFakeCuda().bytes_up, down = TheFakeCuda().bytes_down;
  TheFakeCuda() = FakeCuda();
  RUBATO_EXPECT_OK(TrainLanes(&ByNccl));
  constexpr int64_t kTrial = 2 * 2 * 64 * 4;  // up; down come what was sent and what was received
  EXPECT_EQ(up - TheFakeCuda().bytes_up, kUnits * kParameterBytes - kTrial);
  // Copies in recordings are counted when they are recorded: of the third unit, by the host, none.
  // With a sum that is added no further on a GPU comes a flag, whether it is finite.
  constexpr int64_t kFlag = 8;
  EXPECT_EQ(down - TheFakeCuda().bytes_down,
            2 * (kUnits - 1) * (kParameterBytes + kFlag) - kUnits * kParameterBytes - 2 * kTrial);
  EXPECT_EQ(TheFakeNccl().exchanges, 2 + 2 * kUnits);
}

// What a process of its own says that something is done to, and how it ends.
Ended TrainWith(const std::function<void()>& harm) {
  return RunApart([&] {
    ResetFakeNccl();
    harm();
    return TrainLanes(&ByNccl).ok() ? 0 : 3;
  });
}

// In the midst of steps, whichever thread makes the call.
TEST_F(NcclLanesTest, AFailureEndsTheProcessWithOneSentenceThatNamesTheGpu) {
  Calls begin;
  RUBATO_ASSERT_OK(TrainLanes(&ByNccl, [&] { begin = CallsSoFar(); }));
  const int64_t end = CallsSoFar().cuda;
  int told[2] = {};
  for (int64_t call = begin.cuda; call < begin.cuda + (end - begin.cuda) / 2; call += 7) {
    const auto [code, said] = TrainWith([&] {
      TheFakeCuda().fails_at = call;
      TheFakeCuda().error = cudaErrorIllegalAddress;
      TheFakeCuda().stays = true;
    });
    EXPECT_EQ(code, 1) << "call " << call;
    EXPECT_THAT(said, MatchesRegex("error: on GPU [01]: .* failed: .*\n")) << "call " << call;
    ++told[said.size() > 14 && said[14] == '1'];
  }
  EXPECT_GT(told[0], 0);
  EXPECT_GT(told[1], 0);
}

TEST_F(NcclLanesTest, AFailureOfNcclsEndsTheProcessWithOneSentenceThatNamesTheGpu) {
  Calls begin;
  RUBATO_ASSERT_OK(TrainLanes(&ByNccl, [&] { begin = CallsSoFar(); }));
  const int64_t end = CallsSoFar().nccl - 4;  // without those of its end
  EXPECT_EQ(end - begin.nccl, 2 * kUnits * 4);
  // Of a group: its begin, a call for each GPU, its end.
  constexpr const char* kParts[] = {"", "GPU 0's part of ", "GPU 1's part of ", ""};
  for (int64_t call = begin.nccl; call < end; ++call) {
    for (int error = 1; error < ncclNumResults; ++error) {
      const auto [code, said] = TrainWith([&] {
        TheFakeNccl().fails_at = call;
        TheFakeNccl().error = static_cast<ncclResult_t>(error);
      });
      EXPECT_EQ(code, 1) << "call " << call;
      EXPECT_EQ(said, absl::StrCat("error: on the GPUs: ", kParts[(call - begin.nccl) % 4],
                                   "an exchange among GPUs 0, 1 failed: a failure of the test's, "
                                   "more of it (NCCL)\n"))
          << "call " << call;
    }
  }
}

}  // namespace
}  // namespace rubato
