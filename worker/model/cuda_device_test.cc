// What is asked of CUDA's runtime by a model's steps. Its failures: cuda_failures_test.cc.
#include "tensor/cuda/cuda_device.h"

#include <unistd.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tensor/cuda/fake_cublas.h"
#include "tensor/cuda/fake_cuda.h"
#include "tensor/cuda/fake_cudnn.h"
#include "worker/model/model.h"
#include "worker/model/pages.h"
#include "worker/model/preset_trajectory.h"

namespace rubato {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int64_t kBatch = 4;

absl::StatusOr<std::unique_ptr<Model>> Open(int gpu, absl::Duration patience = kGpuPatience) {
  absl::StatusOr<std::unique_ptr<Device>> device =
      OpenGpu(gpu, ProductPrecision::kFloat32, AttentionForm::kFused, patience);
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

class CudaDeviceTest : public ::testing::Test {
 protected:
  CudaDeviceTest() {
    fake_ = FakeCuda();
    ResetFakeCublas();
    TheFakeCudnn() = FakeCudnn();
    TheFakeCudnn().is_there = true;
  }

  FakeCuda& fake_ = TheFakeCuda();
};

TEST_F(CudaDeviceTest, GivesBackAllThatItTook) {
  {
    absl::StatusOr<std::unique_ptr<Model>> model = Open(1);
    RUBATO_ASSERT_OK(model);
    for (int i = 0; i < 3; ++i) Step(**model);  // as it comes, recorded, the recording
  }
  EXPECT_GT(fake_.launches, 10);
  EXPECT_EQ(fake_.live, 0);
  EXPECT_TRUE(TheFakeCublas().violations.empty());
}

// Pages of others: registered once for all GPUs, whoever comes first, and given back; and where
// that cannot be, all goes on as without, with one warning.
TEST_F(CudaDeviceTest, RegistersTheHostsMemoryIfItCan) {
  const Pages parameters(100), gradient(100);
  const auto count = [&](const char* call) {
    return std::count(fake_.calls.begin(), fake_.calls.end(), call);
  };
  for (const bool fails : {false, true}) {
    fake_ = FakeCuda();
    absl::StatusOr<std::unique_ptr<Model>> model = Open(1), other = Open(0);
    RUBATO_ASSERT_OK(model);
    RUBATO_ASSERT_OK(other);
    testing::internal::CaptureStderr();
    fake_.error = cudaErrorNotSupported;
    // The call behind the choice of the GPU.
    for (const Pages* pages : {&parameters, &gradient}) {
      fake_.fails_at = fails ? static_cast<int64_t>(fake_.calls.size()) + 1 : -1;
      auto pin = (*model)->Pin(pages->memory(), pages->bytes());
      fake_.fails_at = -1;
      EXPECT_EQ(pin == nullptr, fails);
      if (fails) continue;
      auto another = (*other)->Pin(pages->memory(), pages->bytes());
      EXPECT_NE(another, nullptr);
      for (int i = 0; i < 3; ++i) {
        const std::vector<float> features(kBatch * 5);
        const std::vector<int32_t> labels(kBatch);
        const int64_t size = (*model)->parameter_count();
        (*model)->Gradient(ConstTensorRef(parameters.values().first(size)), features, {labels, {}},
                           1, TensorRef(gradient.values().first(size)), [](int64_t) {});
      }
    }
    const std::string said = testing::internal::GetCapturedStderr();
    EXPECT_EQ(said, fails ? "warning: on the GPU: parameters and gradients are copied once more on "
                            "the host: registering 4096 bytes of its memory failed: a failure of "
                            "the test's (cudaError801)\n"
                          : "");
    EXPECT_EQ(count("cudaHostUnregister"), fails ? 0 : 2);
    EXPECT_EQ(count("cudaGraphExecDestroy"), fails ? 0 : 1) << "of the steps to that gradient";
    model->reset();
    other->reset();
    EXPECT_EQ(fake_.live, 0);
  }
}

// What is unregistered is the GPU's no more, in a recording either; and what somebody else has
// registered cannot be registered again.
TEST_F(CudaDeviceTest, UsesNothingThatIsNotRegistered) {
  auto gpu = OpenGpu(1, ProductPrecision::kFloat32);
  RUBATO_ASSERT_OK(gpu);
  void* const memory = *(*gpu)->Allocate(64);
  const Pages host(64);
  const auto copy = [&] { (*gpu)->Upload(Stream::kCompute, host.memory(), memory, 64); };
  EXPECT_EXIT(copy(), ::testing::ExitedWithCode(1),
              "^error: on GPU 1: a copy to the GPU failed: .*cudaError1\\)\n$");
  ASSERT_TRUE((*gpu)->Pin(host.memory(), host.bytes()));
  copy();
  (*gpu)->BeginRecording();
  copy();
  const int recording = (*gpu)->EndRecording();
  (*gpu)->Replay(recording);
  (*gpu)->Unpin(host.memory());
  EXPECT_EXIT((*gpu)->Replay(recording), ::testing::ExitedWithCode(1),
              "^error: on GPU 1: a step failed: .*cudaError700\\)\n$");
  (*gpu)->Forget(recording);

  ASSERT_EQ(cudaHostRegister(host.memory(), host.bytes(), cudaHostRegisterDefault), cudaSuccess);
  testing::internal::CaptureStderr();
  EXPECT_FALSE((*gpu)->Pin(host.memory(), host.bytes()));
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("(cudaError712)\n"));
  ASSERT_EQ(cudaHostUnregister(host.memory()), cudaSuccess);
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

TEST_F(CudaDeviceTest, TellsOfAKernelsOwnGpu) {
  auto first = OpenGpu(0, ProductPrecision::kFloat32),
       second = OpenGpu(1, ProductPrecision::kFloat32);
  RUBATO_ASSERT_OK(first);
  RUBATO_ASSERT_OK(second);
  void* const memory = *(*first)->Allocate(256);
  KernelSet& kernels = (*first)->kernels();
  const std::string calls[] = {"the choice of a GPU", "the start of a kernel"};
  for (int call = 0; call < 2; ++call) {
    EXPECT_EXIT(
        {
          (*second)->Synchronize();
          fake_.fails_at = static_cast<int64_t>(fake_.calls.size()) + call;
          kernels.SetToZero(TensorRef::At(memory, DType::kFloat32, {64}));
        },
        ::testing::ExitedWithCode(1), "^error: on GPU 0: " + calls[call] + " failed: .*\n$");
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
      ::testing::ExitedWithCode(1), "^error: on GPU 1: a step has not moved for .*hangs.*\n$");
  auto device =
      OpenGpu(0, ProductPrecision::kFloat32, AttentionForm::kProducts, absl::ZeroDuration());
  RUBATO_ASSERT_OK(device);
  EXPECT_EXIT(
      {
        fake_.hangs = true;
        (*device)->Synchronize();
      },
      ::testing::ExitedWithCode(1), "^error: on GPU 0: a step has not moved for .*hangs.*\n$");
}

// Libraries load their code when it is first called, after the model has its memory.
TEST_F(CudaDeviceTest, LeavesRoomForWhatCudaTakesLater) {
  fake_.memory_bytes = int64_t{500} << 20;
  EXPECT_THAT(Open(0), IsError(absl::StatusCode::kResourceExhausted,
                               HasSubstr("beside 0.50 GiB that its libraries take")));
  fake_.memory_bytes = int64_t{600} << 20;
  RUBATO_EXPECT_OK(Open(0));
}

// Results of half floats are named by cuDNN's version where attention has been given to it, and
// there alone: its bits are others.
TEST_F(CudaDeviceTest, GivesAttentionToCudnnWhereItIsThereAndTakesIt) {
  struct Found {
    std::string fused_by, fused, said;
    size_t runs;
  };
  const auto find = [](DType dtype, bool is_there, bool refuses) {
    TheFakeCudnn() = {is_there, refuses, {}, {}};
    testing::internal::CaptureStderr();
    Objective objective{3};
    objective.places = 7;
    auto model =
        Model::Create(ParseModel("preset: PRESET_CHAR_GPT blocks: 2 heads: 2 channels: 16"), {7},
                      objective, kBatch, dtype, Purpose::kTraining,
                      *OpenGpu(0, ProductPrecision::kFloat32, AttentionForm::kFused));
    RUBATO_EXPECT_OK(model);
    std::vector<float> features(kBatch * 7), parameters((*model)->parameter_count()),
        gradient(parameters.size());
    const std::vector<int32_t> labels(kBatch * 7);
    (*model)->Gradient(parameters, features, {labels, {}}, 1, TensorRef(gradient), [](int64_t) {});
    Found found = {(*model)->fused_by(), (*model)->fused(), "", TheFakeCudnn().runs.size()};
    found.said = testing::internal::GetCapturedStderr();
    return found;
  };
  const Found fused = find(DType::kBFloat16, true, false);
  EXPECT_EQ(fused.fused_by, "cuDNN 9.0.1");
  EXPECT_EQ(fused.fused, "attention");
  EXPECT_EQ(fused.runs, 4u);
  EXPECT_EQ(fused.said, "");
  const Found absent = find(DType::kBFloat16, false, false);
  EXPECT_EQ(absent.fused_by, "");
  EXPECT_EQ(absent.runs, 0u);
  EXPECT_EQ(absent.said, "warning: on GPU 0: attention is products and a softmax: there is none\n");
  for (const Found& other :
       {find(DType::kBFloat16, true, true), find(DType::kFloat32, true, false)}) {
    EXPECT_EQ(other.fused_by, "");
    EXPECT_EQ(other.fused, "");
    EXPECT_EQ(other.runs, 0u);
  }
}

TEST_F(CudaDeviceTest, SaysNothingOfALibraryOfAttentionThatAModelDoesNotNeed) {
  TheFakeCudnn() = {/*is_there=*/false, false, {}, {}};
  testing::internal::CaptureStderr();
  RUBATO_EXPECT_OK(Model::Create(ParseModel("layers { linear { out_features: 3 } }"), {8},
                                 Objective{3}, kBatch, DType::kBFloat16, Purpose::kTraining,
                                 *OpenGpu(0, ProductPrecision::kFloat32, AttentionForm::kFused)));
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

// Likewise convolutions, if their numbers of channels are multiples of 8; and nothing is said of a
// library that is not needed.
TEST_F(CudaDeviceTest, GivesConvolutionsToCudnnWhereItIsThereAndTakesThem) {
  struct Found {
    std::string fused_by, fused, said;
    std::vector<ConvolutionPass> passes;
  };
  const auto find = [](const std::string& layers, DType dtype, bool is_there, bool refuses,
                       ConvolutionForm form = ConvolutionForm::kFused) {
    TheFakeCudnn() = {is_there, refuses, {}, {}};
    testing::internal::CaptureStderr();
    auto model = Model::Create(
        ParseModel(layers + "layers { flatten {} } layers { linear { out_features: 3 } }"),
        {3, 6, 6}, Objective{3}, kBatch, dtype, Purpose::kTraining,
        *OpenGpu(0, ProductPrecision::kFloat32, AttentionForm::kProducts, kGpuPatience, form));
    RUBATO_EXPECT_OK(model);
    std::vector<float> features(kBatch * 3 * 36), parameters((*model)->parameter_count()),
        gradient(parameters.size());
    const std::vector<int32_t> labels(kBatch);
    (*model)->Gradient(parameters, features, {labels, {}}, 1, TensorRef(gradient), [](int64_t) {});
    Found found = {(*model)->fused_by(), (*model)->fused(), "", {}};
    for (const FusedConvolution& run : TheFakeCudnn().convolutions) {
      found.passes.push_back(run.pass);
    }
    found.said = testing::internal::GetCapturedStderr();
    return found;
  };
  const std::string layer = "layers { conv2d { out_channels: 8 kernel_size: 3 } }";
  const Found fused = find(layer + layer, DType::kBFloat16, true, false);
  EXPECT_EQ(fused.fused_by, "cuDNN 9.0.1");
  EXPECT_EQ(fused.fused, "convolutions");
  EXPECT_THAT(fused.passes, ElementsAre(ConvolutionPass::kOutput, ConvolutionPass::kWeightGradient,
                                        ConvolutionPass::kInputGradient))
      << "of the second one: the first takes three colours";
  EXPECT_EQ(fused.said, "");
  const Found absent = find(layer + layer, DType::kBFloat16, false, false);
  EXPECT_EQ(absent.fused_by, "");
  EXPECT_EQ(absent.said,
            "warning: on GPU 0: convolutions are products of matrices: there is none\n");
  for (const Found& other :
       {find(layer + layer, DType::kBFloat16, true, true),
        find(layer + layer, DType::kFloat32, false, false),
        find("", DType::kBFloat16, false, false),
        find(layer + layer, DType::kBFloat16, true, false, ConvolutionForm::kProducts)}) {
    EXPECT_EQ(other.fused_by, "");
    EXPECT_EQ(other.fused, "");
    EXPECT_THAT(other.passes, IsEmpty());
    EXPECT_EQ(other.said, "");
  }
}

TEST_F(CudaDeviceTest, NamesTheLibraryThatIsThere) {
  const absl::StatusOr<std::string> model = GpuModel(0);
  RUBATO_ASSERT_OK(model);
  EXPECT_EQ(*model, "Fake, cuBLAS 0.0.0");
}

}  // namespace
}  // namespace rubato
