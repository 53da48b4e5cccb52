// What is asked of CUDA's runtime by a model's steps, and what becomes of its failures.
#include "tensor/cuda/cuda_device.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tensor/cuda/fake_cublas.h"
#include "tensor/cuda/fake_cuda.h"
#include "worker/model/model.h"
#include "worker/model/preset_trajectory.h"

namespace rubato {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kBatch = 4;

absl::StatusOr<std::unique_ptr<Model>> Open(int gpu, absl::Duration patience = kGpuPatience) {
  absl::StatusOr<std::unique_ptr<Device>> device =
      OpenGpu(gpu, ProductPrecision::kFloat32, patience);
  if (!device.ok()) return device.status();
  const proto::Model model = ParseModel(
      "layers { linear { out_features: 8 } } layers { relu {} } layers { dropout { p: 0.5 } } "
      "layers { linear { out_features: 3 } }");
  return Model::Create(model, {5}, {3}, kBatch, DType::kBFloat16, Purpose::kTraining,
                       *std::move(device));
}

void Step(Model& model) {
  const std::vector<float> features(kBatch * 5), parameters(model.parameter_count());
  const std::vector<int32_t> labels(kBatch);
  std::vector<float> gradient(parameters.size());
  model.Gradient(parameters, features, {labels, {}}, /*key=*/1, TensorRef(absl::MakeSpan(gradient)),
                 [](int64_t) {});
}

// The second step is recorded, the third is the recording.
absl::Status Train(int64_t* calls_before_the_end = nullptr) {
  absl::StatusOr<std::unique_ptr<Model>> model = Open(1);
  if (!model.ok()) return model.status();
  for (int i = 0; i < 3; ++i) Step(**model);
  if (calls_before_the_end != nullptr) {
    *calls_before_the_end = static_cast<int64_t>(TheFakeCuda().calls.size());
  }
  return absl::OkStatus();
}

class CudaDeviceTest : public ::testing::Test {
 protected:
  CudaDeviceTest() {
    fake_ = FakeCuda();
    ResetFakeCublas();
  }

  FakeCuda& fake_ = TheFakeCuda();
};

TEST_F(CudaDeviceTest, GivesBackAllThatItTook) {
  RUBATO_ASSERT_OK(Train());
  EXPECT_GT(fake_.launches, 10);
  EXPECT_EQ(fake_.live, 0);
  EXPECT_TRUE(TheFakeCublas().violations.empty());
}

// Kernels that come first, in a thread whose GPU was another's a moment ago.
TEST_F(CudaDeviceTest, LaunchesOnItsOwnGpu) {
  auto first = OpenGpu(0, ProductPrecision::kFloat32),
       second = OpenGpu(1, ProductPrecision::kFloat32);
  RUBATO_ASSERT_OK(first);
  RUBATO_ASSERT_OK(second);
  void* const memory = *(*first)->Allocate(256);
  (*second)->Synchronize();
  (*first)->kernels().SetToZero(TensorRef::At(memory, DType::kFloat32, {64}));
  EXPECT_EQ(fake_.launches, 1);
}

// What a call of CUDA's answers once in its life is told in one sentence, or is a Status.
TEST_F(CudaDeviceTest, TellsEveryFailureInOneSentence) {
  int64_t before_the_end = 0;
  RUBATO_ASSERT_OK(Train(&before_the_end));
  const std::vector<std::string> calls = fake_.calls;
  ASSERT_GT(before_the_end, 100);
  for (const cudaError_t error : {cudaErrorUnknown, cudaErrorMemoryAllocation}) {
    for (int64_t i = 0; i < static_cast<int64_t>(calls.size()); ++i) {
      if (error == cudaErrorMemoryAllocation && !absl::StrContains(calls[i], "Malloc")) continue;
      int ends[2];
      ASSERT_EQ(pipe(ends), 0);
      const pid_t child = fork();
      if (child == 0) {
        dup2(ends[1], STDERR_FILENO);
        close(ends[1]);
        fake_.calls.clear();
        fake_.error = error;
        fake_.fails_at = i;
        const absl::Status status = Train();
        if (!status.ok())
          std::fprintf(stderr, "error: %s\n", std::string(status.message()).c_str());
        _exit(status.ok() ? 0 : 1);
      }
      close(ends[1]);
      std::string said;
      char part[512];
      for (ssize_t n; (n = read(ends[0], part, sizeof part)) > 0;) said.append(part, n);
      close(ends[0]);
      int ended = 0;
      ASSERT_EQ(waitpid(child, &ended, 0), child);
      SCOPED_TRACE(testing::Message() << calls[i] << ", call " << i << ", said: " << said);
      ASSERT_TRUE(WIFEXITED(ended));
      if (i >= before_the_end) {
        EXPECT_EQ(WEXITSTATUS(ended), 0) << "destructors are exempt";
        continue;
      }
      EXPECT_EQ(WEXITSTATUS(ended), 1);
      EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1);
      EXPECT_TRUE(absl::StartsWith(said, "error: "));
      EXPECT_TRUE(absl::StrContains(said, " failed: a failure of the test's") ||
                  absl::StrContains(said, "no memory for"));
    }
  }
}

// A GPU is lost: everything fails from then on, and there may be no driver any more.
TEST_F(CudaDeviceTest, IsDestroyedWithoutAWordAfterAFailure) {
  absl::StatusOr<std::unique_ptr<Model>> model = Open(1);
  RUBATO_ASSERT_OK(model);
  Step(**model);
  fake_.fails_at = static_cast<int64_t>(fake_.calls.size());
  fake_.stays = true;
  EXPECT_EXIT(
      {
        model->reset();
        _exit(0);
      },
      ::testing::ExitedWithCode(0), "^$");
  fake_.fails_at = -1;
}

TEST_F(CudaDeviceTest, GivesUpOnAGpuThatHangs) {
  absl::StatusOr<std::unique_ptr<Model>> model = Open(1, absl::ZeroDuration());
  RUBATO_ASSERT_OK(model);
  EXPECT_EXIT(
      {
        fake_.hangs = true;
        Step(**model);
      },
      ::testing::ExitedWithCode(1), "^error: on the GPU: a step has not moved for .*hangs.*\n$");
  auto device = OpenGpu(0, ProductPrecision::kFloat32, absl::ZeroDuration());
  RUBATO_ASSERT_OK(device);
  EXPECT_EXIT(
      {
        fake_.hangs = true;
        (*device)->Synchronize();
      },
      ::testing::ExitedWithCode(1), "^error: on the GPU: a step has not moved for .*hangs.*\n$");
}

// Libraries load their code when it is first called, after the model has its memory.
TEST_F(CudaDeviceTest, LeavesRoomForWhatCudaTakesLater) {
  fake_.memory_bytes = int64_t{500} << 20;
  EXPECT_THAT(Open(0), IsError(absl::StatusCode::kResourceExhausted,
                               HasSubstr("beside 0.50 GiB that its libraries take")));
  fake_.memory_bytes = int64_t{600} << 20;
  RUBATO_EXPECT_OK(Open(0));
}

TEST_F(CudaDeviceTest, NamesTheLibraryThatIsThere) {
  const absl::StatusOr<std::string> model = GpuModel(0);
  RUBATO_ASSERT_OK(model);
  EXPECT_EQ(*model, "Fake, cuBLAS 0.0.0");
}

}  // namespace
}  // namespace rubato
