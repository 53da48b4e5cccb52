// Convolutions' graphs, as the cuDNN that is installed takes them (described_gpus.h). No kernel of
// it is run; what the graphs compute is computed from their descriptors, operation by operation.
#include "tensor/cuda/cudnn_convolution.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "common/base/random.h"
#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tensor/cuda/described_gpus.h"
#include "tensor/cuda/numbers.h"
#include "tensor/cuda/recorded_cudnn.h"
#include "tensor/kernel_set.h"

namespace rubato {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class CudnnConvolutionTest : public LibraryOnDescribedGpusTest<CudnnConvolution> {
 protected:
  // Operands are nowhere: the recorded library runs nothing.
  static void Run(CudnnConvolution& convolution, const Convolution& c, int64_t n,
                  ConvolutionPass pass) {
    alignas(256) char memory[256];
    convolution.Convolve({c, DType::kBFloat16, n, pass, memory, memory, memory,
                          reinterpret_cast<float*>(memory), memory});
  }
};

struct Subject {
  const char* name;
  Convolution convolution;
  int64_t n;
};

Convolution Of(int64_t in, int64_t out, int64_t side, int64_t kernel = 3, int64_t stride = 1,
               int64_t groups = 1) {
  return {{side, side, kernel, stride, kernel / 2}, in, out, groups};
}

// The kinds of resnet18's, resnet20's and cnn's; batches that are small, and the last of a
// training set's.
std::vector<Subject> Taken() {
  return {{"resnet18, first stage", Of(64, 64, 32), 256},
          {"resnet18, between stages", Of(64, 128, 32, 3, 2), 256},
          {"resnet18, beside these", Of(64, 128, 32, 1, 2), 37},
          {"resnet18, last stage", Of(512, 512, 4), 256},
          {"resnet20, one example", Of(16, 32, 32, 3, 2), 1},
          {"cnn", {{13, 13, 3, 1, 0}, 32, 64, 1}, 64}};
}

TEST_F(CudnnConvolutionTest, HasPlansForEveryModelOnEveryGpu) {
  for (const DescribedGpu& gpu : kDescribedGpus) {
    const auto convolution = For(gpu);
    for (const Subject& subject : Taken()) {
      ASSERT_TRUE(CudnnTakes(subject.convolution));
      const DType dtype = subject.n % 2 == 0 ? DType::kBFloat16 : DType::kFloat16;
      const auto plans = convolution->MakePlans(subject.convolution, dtype, subject.n, kAny);
      RUBATO_EXPECT_OK(plans) << gpu.name << ", " << subject.name;
    }
  }
}

// All that the presets and the jobs in configs have, but what is products. Gradients by weights are
// chosen and not compiled, which would take a second each.
TEST_F(CudnnConvolutionTest, HasPlansForEveryConvolutionOfThePresets) {
  std::vector<Convolution> all = {{{13, 13, 3, 1, 0}, 32, 64, 1},   // cnn
                                  {{14, 14, 3, 1, 1}, 32, 64, 1}};  // configs/fashion_cnn.yaml
  // resnet18 on 32x32 and 224x224, and resnet20; at sides in which the first stage begins.
  for (const auto& [channels, stages, first] :
       {std::tuple(64, 4, 8), std::tuple(64, 4, 56), std::tuple(16, 3, 32)}) {
    int64_t in = channels, side = first;
    for (int stage = 0; stage < stages; ++stage, in *= 2, side /= 2) {
      all.push_back(Of(in, in, side));
      if (stage == stages - 1) break;
      all.push_back(Of(in, 2 * in, side, 3, 2));
      all.push_back(Of(in, 2 * in, side, 1, 2));
    }
  }
  const auto convolution = For(kDescribedH100);
  for (const Convolution& c : all) {
    ASSERT_TRUE(CudnnTakes(c));
    for (const int64_t n : {64, 37}) {
      RUBATO_EXPECT_OK(convolution->MakePlans(c, DType::kBFloat16, n, kAny, /*finishes=*/false))
          << c.in_channels << " to " << c.out_channels << " at " << c.window.height << ", kernel "
          << c.window.kernel;
    }
  }
  EXPECT_EQ(all.size(), 2u + 10 + 10 + 7);
}

// Nothing is copied to another order.
TEST_F(CudnnConvolutionTest, WantsNoRoomToCopyWhatHasChannelsLast) {
  for (const DescribedGpu& gpu : kDescribedGpus) {
    const Convolution c = Of(64, 64, 32);
    const auto plans = For(gpu)->MakePlans(c, DType::kBFloat16, 256, kAny);
    RUBATO_ASSERT_OK(plans);
    const int64_t activations = 256 * 64 * 32 * 32 * 2;
    for (const ConvolutionPass pass : {ConvolutionPass::kOutput, ConvolutionPass::kInputGradient}) {
      EXPECT_LT((*plans)->of_pass[static_cast<int>(pass)].workspace, 1024) << gpu.name;
    }
    EXPECT_LT((*plans)->workspace, activations / 4) << gpu.name;
  }
}

TEST_F(CudnnConvolutionTest, GraphsComputeConvolutions) {
  const std::vector<Convolution> all = {{{5, 6, 3, 1, 1}, 8, 16, 1},
                                        {{7, 5, 3, 2, 1}, 16, 8, 1},
                                        {{6, 6, 1, 2, 0}, 8, 8, 1},
                                        {{6, 5, 5, 1, 0}, 8, 8, 1}};
  for (const Convolution& c : all) {
    const auto convolution = For(kDescribedH100);
    const int64_t n = 2, places = c.window.out_plane(), plane = c.window.plane();
    const int64_t bytes = convolution->Workspace(c, DType::kFloat16, n);
    ASSERT_GE(bytes, 0);
    RandomStream stream(1);
    const auto draw = [&](int64_t count) {
      std::vector<double> values(count);
      for (double& value : values) value = Widen(Float16(stream.Uniform(-2, 2)));
      return values;
    };
    const std::vector<double> x = draw(n * c.in_channels * plane);
    const std::vector<double> weight = draw(c.out_channels * c.filter());
    const std::vector<double> dy = draw(n * c.out_channels * places);
    std::vector<double> y(dy.size()), dx(x.size()), dweight(weight.size());
    std::vector<double> scratch(CpuKernels().ConvolutionScratch(c, DType::kFloat64, n));
    const Shape in = {n, c.in_channels, c.window.height, c.window.width};
    const Shape out = {n, c.out_channels, c.window.out_height(), c.window.out_width()};
    CpuKernels().Conv2d(c, ConstTensorRef(x).Reshaped(in), weight, {}, TensorRef(y).Reshaped(out),
                        scratch);
    CpuKernels().Conv2dBackward(c, ConstTensorRef(x).Reshaped(in), weight,
                                ConstTensorRef(dy).Reshaped(out), TensorRef(dx).Reshaped(in),
                                TensorRef(dweight), {}, scratch);

    // Where a GPU has them: channels last.
    struct alignas(256) Aligned {
      Float16 values[512];
    };
    const auto room = [](int64_t count) { return std::vector<Aligned>(count / 512 + 1); };
    const auto last = [&](const std::vector<double>& values, int64_t channels, int64_t of) {
      std::vector<Aligned> result = room(static_cast<int64_t>(values.size()));
      for (size_t i = 0; i < values.size(); ++i) {
        const int64_t place = i % of, channel = i / of % channels, example = i / of / channels;
        result[0].values[(example * of + place) * channels + channel] = Float16(values[i]);
      }
      return result;
    };
    std::vector<Aligned> xs = last(x, c.in_channels, plane), dys = last(dy, c.out_channels, places);
    std::vector<Aligned> ws = last(weight, c.in_channels / c.groups,
                                   c.window.kernel * c.window.kernel),
                         ys = room(dy.size()), dxs = room(x.size());
    std::vector<Aligned> dws = room(2 * dweight.size()), workspace = room(bytes);
    FusedConvolution fused = {c,
                              DType::kFloat16,
                              n,
                              ConvolutionPass::kOutput,
                              xs.data(),
                              ws.data(),
                              ys.data(),
                              reinterpret_cast<float*>(dws.data()),
                              workspace.data()};
    const auto near = [&](const std::vector<Aligned>& found, const std::vector<double>& expected,
                          int64_t channels, int64_t of, const char* what) {
      for (size_t i = 0; i < expected.size(); ++i) {
        const int64_t place = i % of, channel = i / of % channels, example = i / of / channels;
        const double value = Widen(found[0].values[(example * of + place) * channels + channel]);
        ASSERT_NEAR(value, expected[i], 0x1p-10 * std::abs(expected[i]) + 1e-7) << what << ' ' << i;
      }
    };
    convolution->Convolve(fused);
    recorded_->Compute(0, recorded_->operands);
    near(ys, y, c.out_channels, places, "y");
    fused.y = dys.data();
    fused.pass = ConvolutionPass::kWeightGradient;
    convolution->Convolve(fused);
    recorded_->Compute(2, recorded_->operands);
    const int64_t k2 = c.window.kernel * c.window.kernel, filter = c.in_channels / c.groups;
    for (size_t i = 0; i < dweight.size(); ++i) {
      const int64_t k = i % k2, channel = i / k2 % filter, o = i / k2 / filter;
      ASSERT_NEAR(fused.dweight[(o * k2 + k) * filter + channel], dweight[i],
                  1e-6 * std::abs(dweight[i]) + 1e-6)
          << "float32's, unrounded: weight " << i;
    }
    fused.pass = ConvolutionPass::kInputGradient;
    fused.x = dxs.data();
    convolution->Convolve(fused);
    recorded_->Compute(1, recorded_->operands);
    near(dxs, dx, c.in_channels, plane, "dx");
    recorded_->ForgetGraphs();
  }
}

TEST_F(CudnnConvolutionTest, GivesARunTheOperandsOfItsGraph) {
  const auto convolution = For(kDescribedH100);
  const Convolution c = Of(8, 8, 4);
  ASSERT_GE(convolution->Workspace(c, DType::kBFloat16, 3), 0);
  alignas(256) char memory[256];
  FusedConvolution fused = {c,      DType::kBFloat16, 3,      ConvolutionPass::kOutput,
                            memory, memory,           memory, reinterpret_cast<float*>(memory),
                            memory};
  for (int pass = 0; pass < kConvolutionPasses; ++pass) {
    fused.pass = static_cast<ConvolutionPass>(pass);
    convolution->Convolve(fused);
    std::vector<int64_t> given;
    for (const auto& [id, address] : recorded_->operands) given.push_back(id);
    EXPECT_EQ(given, recorded_->OperandsOf(pass));
    EXPECT_EQ(recorded_->workspace, memory);
  }
}

TEST_F(CudnnConvolutionTest, WantsNoMoreForFewerExamples) {
  for (const DescribedGpu& gpu : kDescribedGpus) {
    for (const Subject& subject : {Taken()[1]}) {
      const auto convolution = For(gpu);
      int64_t most = convolution->Workspace(subject.convolution, DType::kBFloat16, 256);
      ASSERT_GE(most, 0);
      for (const int64_t n : {96, 1}) {
        const int64_t bytes = convolution->Workspace(subject.convolution, DType::kBFloat16, n);
        EXPECT_GE(bytes, 0);
        EXPECT_LE(bytes, most) << gpu.name << ", " << subject.name << ", " << n;
        most = bytes;
        for (int pass = 0; pass < kConvolutionPasses; ++pass) {
          Run(*convolution, subject.convolution, n, static_cast<ConvolutionPass>(pass));
        }
      }
    }
  }
}

TEST_F(CudnnConvolutionTest, CompilesGradientsByWeightsWhenTheyAreRun) {
  const auto convolution = For(kDescribedH100);
  auto made = [&, before = int64_t{0}]() mutable {
    return recorded_->plans - std::exchange(before, recorded_->plans);
  };
  const Convolution first = Of(16, 16, 8), second = Of(16, 32, 8);
  constexpr DType kType = DType::kBFloat16;
  EXPECT_GE(convolution->Workspace(first, kType, 8), 0);
  EXPECT_EQ(made(), 3) << "one is compiled at once, to see that it can be";
  EXPECT_GE(convolution->Workspace(second, kType, 8), 0);
  EXPECT_EQ(made(), 2);
  EXPECT_EQ(convolution->Workspace(first, kType, 5), convolution->Workspace(first, kType, 8));
  EXPECT_EQ(made(), 0);
  for (const int again : {0, 1}) {
    Run(*convolution, first, 8, ConvolutionPass::kWeightGradient);
    Run(*convolution, second, 8, ConvolutionPass::kOutput);
    EXPECT_EQ(made(), 0);
    Run(*convolution, first, 5, ConvolutionPass::kOutput);
    EXPECT_EQ(made(), 1 - again) << "and no other pass of that batch";
    Run(*convolution, second, 8, ConvolutionPass::kWeightGradient);
    EXPECT_EQ(made(), 1 - again);
    Run(*convolution, first, 5, ConvolutionPass::kWeightGradient);
    EXPECT_EQ(made(), 1 - again);
  }
}

TEST_F(CudnnConvolutionTest, EndsTheProcessWhenAChosenKernelIsNotMade) {
  const auto convolution = For(kDescribedH100);
  const Convolution first = Of(16, 16, 8), second = Of(16, 32, 8);
  ASSERT_GE(convolution->Workspace(first, DType::kBFloat16, 8), 0);
  ASSERT_GE(convolution->Workspace(second, DType::kBFloat16, 8), 0);
  recorded_->note = CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC;  // of every engine, from now on
  EXPECT_EXIT(Run(*convolution, second, 8, ConvolutionPass::kWeightGradient),
              ::testing::ExitedWithCode(1),
              "^error: on the GPU: convolution of 8 examples, 16 to 32 channels of 8 x 8 places, "
              "kernel 3, stride 1: cuDNN took it, but compiled, engine [0-9]+ is not .*; "
              "device.convolution: products leaves it out\n$");
}

TEST_F(CudnnConvolutionTest, LeavesToOthersWhatCudnnRefuses) {
  const auto convolution = For(kDescribedH100);
  EXPECT_THAT(convolution->used(), IsEmpty());
  testing::internal::CaptureStderr();
  const Convolution first = Of(3, 64, 32), depthwise = Of(64, 64, 16, 3, 1, 64);
  for (const Convolution& c : {first, depthwise, Of(4, 8, 32), Of(8, 4, 32), Of(12, 16, 32)}) {
    EXPECT_FALSE(CudnnTakes(c)) << c.in_channels << " to " << c.out_channels;
    const int64_t calls = recorded_->calls;
    EXPECT_FALSE(convolution->MakePlans(c, DType::kBFloat16, 2, kAny).ok());
    EXPECT_EQ(recorded_->calls, calls) << "nothing is compiled to find that out";
  }
  EXPECT_LT(convolution->Workspace(first, DType::kBFloat16, 256), 0);
  EXPECT_LT(convolution->Workspace(first, DType::kBFloat16, 1), 0);
  EXPECT_LT(convolution->Workspace(depthwise, DType::kBFloat16, 256), 0);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, HasSubstr("warning: on the GPU: convolution of 256 examples, 3 to 64 channels "
                              "of 32 x 32 places, kernel 3, stride 1 is a product of matrices: "
                              "channels are not of a multiple of 8\n"));
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 2) << "once for each: " << said;
  EXPECT_THAT(convolution->used(), IsEmpty());
  EXPECT_GE(convolution->Workspace(Of(16, 16, 8), DType::kBFloat16, 2), 0);
  EXPECT_THAT(convolution->used(), HasSubstr("cuDNN 9."));
}

TEST_F(CudnnConvolutionTest, UsesNoEngineThatIsLessThanExactOrTheSameEachTime) {
  const auto convolution = For(kDescribedH100);
  const Convolution c = Of(16, 16, 8);
  for (const auto note :
       {CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC, CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS,
        CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION, CUDNN_NUMERICAL_NOTE_FFT,
        CUDNN_NUMERICAL_NOTE_WINOGRAD, CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4,
        CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6, CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13}) {
    recorded_->note = note;
    EXPECT_THAT(convolution->MakePlans(c, DType::kBFloat16, 2, kAny),
                IsError(absl::StatusCode::kUnimplemented,
                        HasSubstr("is not deterministic, or less exact than float32")))
        << note;
  }
  recorded_->note = CUDNN_NUMERICAL_NOTE_TENSOR_CORE;
  RUBATO_EXPECT_OK(convolution->MakePlans(c, DType::kBFloat16, 2, kAny));
}

// Whatever call fails while plans are made: there are none, or of another engine; and nothing of
// them is left.
TEST_F(CudnnConvolutionTest, HasNoPlansWhateverCallFails) {
  const auto convolution = For(kDescribedH100);
  const Convolution c = Of(16, 16, 8);
  RUBATO_ASSERT_OK(convolution->MakePlans(c, DType::kBFloat16, 2, kAny));
  const int64_t calls = recorded_->calls;
  EXPECT_GT(calls, 100);
  EXPECT_EQ(recorded_->live, 0);
  int refusals = 0;
  constexpr int64_t kStride = 13;  // of all calls, so many are left out: each time plans are made
  for (int64_t call = 0; call < calls; call += kStride) {
    recorded_->calls = 0;
    recorded_->fails_at = call;
    recorded_->error =
        call % 2 == 0 ? CUDNN_STATUS_INTERNAL_ERROR : CUDNN_STATUS_NOT_SUPPORTED_SHAPE;
    const auto plans = convolution->MakePlans(c, DType::kBFloat16, 2, kAny);
    if (plans.ok()) continue;
    ++refusals;
    EXPECT_THAT(std::string(plans.status().message()),
                AnyOf(HasSubstr("CUDNN_STATUS_INTERNAL_ERROR"),
                      HasSubstr("CUDNN_STATUS_NOT_SUPPORTED_SHAPE")));
  }
  EXPECT_EQ(recorded_->live, 0);
  EXPECT_GT(refusals, calls / kStride / 2);
}

TEST_F(CudnnConvolutionTest, EndsTheProcessWhenARunFails) {
  const auto convolution = For(kDescribedH100);
  const Convolution c = Of(8, 8, 4);
  ASSERT_GE(convolution->Workspace(c, DType::kBFloat16, 1), 0);
  alignas(256) char memory[256];
  const FusedConvolution fused = {
      c, DType::kBFloat16, 1, ConvolutionPass::kOutput, memory, memory, memory, nullptr, memory};
  recorded_->run = CUDNN_STATUS_EXECUTION_FAILED;
  EXPECT_EXIT(
      convolution->Convolve(fused), ::testing::ExitedWithCode(1),
      "^error: on the GPU: a convolution failed: CUDNN_STATUS_EXECUTION_FAILED.*\\(cuDNN\\)\n$");
}

}  // namespace
}  // namespace rubato
