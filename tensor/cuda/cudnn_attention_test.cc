// Attention's graphs, as the cuDNN that is installed takes them: plans are made for GPUs that are
// only described, over a driver that has none (fake_driver.cc). No kernel of it is run; what the
// graphs compute is computed from their descriptors, operation by operation.
#include "tensor/cuda/cudnn_attention.h"

#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "common/base/random.h"
#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tensor/cuda/described_gpus.h"
#include "tensor/cuda/numbers.h"
#include "tensor/kernel_set.h"

namespace rubato {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using CudnnAttentionTest = LibraryOnDescribedGpusTest<CudnnAttention>;

Attention Of(int64_t heads, int64_t places, int64_t size, bool causal = true,
             DType dtype = DType::kBFloat16) {
  return {heads, places, heads * size, causal, dtype};
}

// gpu_check's char_gpt, GPT-2's own, and a small one.
TEST_F(CudnnAttentionTest, HasPlansForEveryModelOnEveryGpu) {
  struct Subject {
    Attention attention;
    int64_t n;
  };
  const std::vector<Subject> subjects = {{Of(12, 1024, 64), 16},
                                         {Of(12, 1024, 64, false, DType::kFloat16), 32},
                                         {Of(2, 40, 16, true, DType::kFloat16), 3}};
  for (const DescribedGpu& gpu : kDescribedGpus) {
    const auto attention = For(gpu);
    for (const Subject& subject : subjects) {
      const auto plans = attention->MakePlans(subject.attention, subject.n, kAny);
      RUBATO_ASSERT_OK(plans) << gpu.name;
      if (subject.attention.places != 1024) continue;
      // Blackwell's own engine keeps the gradient by scores on the chip.
      const int64_t workspace = (*plans)->backward.workspace;
      if (gpu.version / 100 == 10) {
        EXPECT_EQ((*plans)->backward.engine, 5);
        EXPECT_LT(workspace, 1 << 20);
      } else {
        const int64_t rows = subject.n * subject.attention.heads * 1024;
        EXPECT_NEAR(workspace, rows * 2 * 1024, 1024) << gpu.name;
        EXPECT_NEAR((*plans)->workspace, CudnnAttentionWorkspace(subject.attention, subject.n),
                    2048);
      }
    }
  }
}

// The preset's own heads, at configs/char_gpt.yaml's context and at a long one; a whole batch of
// each, and a last one.
TEST_F(CudnnAttentionTest, HasPlansForThePresetsHeads) {
  const auto attention = For(kDescribedH100);
  for (const int64_t places : {64, 1024}) {
    for (const int64_t n : {16, 5}) {
      RUBATO_EXPECT_OK(attention->MakePlans(Of(4, places, 32), n, kAny)) << n << " of " << places;
    }
  }
}

// Its numbers, in float64 beside the CPU's kernels, which PyTorch's numbers hold; what is an
// operand of a half float is rounded.
TEST_F(CudnnAttentionTest, GraphsComputeAttention) {
  const int64_t n = 2, heads = 3, places = 7, size = 8, channels = heads * size;
  for (const bool causal : {false, true}) {
    const auto attention = For(kDescribedH100);
    const Attention a = Of(heads, places, size, causal);
    const auto plans = attention->MakePlans(a, n, kAny);
    RUBATO_ASSERT_OK(plans);
    RandomStream stream(1);
    std::vector<BFloat16> x(n * places * 3 * channels), dx(x.size()), y(n * places * channels),
        dy(y.size());
    for (BFloat16& value : x) value = BFloat16(stream.Uniform(-2, 2));
    for (BFloat16& value : dy) value = BFloat16(stream.Uniform(-2, 2));
    std::vector<float> statistics(n * heads * places);
    std::vector<char> workspace((*plans)->workspace);
    const auto wide = [](const std::vector<BFloat16>& values) {
      std::vector<double> result;
      for (BFloat16 value : values) result.push_back(Widen(value));
      return result;
    };
    const std::vector<double> xs = wide(x), dys = wide(dy);
    std::vector<double> ys(y.size()), p(n * heads * places * places), dxs(x.size()),
        scratch(places * places);
    const Shape in = {n, places, 3 * channels}, out = {n, places, channels};
    CpuKernels().ScaledDotProductAttention(heads, causal, ConstTensorRef(xs).Reshaped(in),
                                           TensorRef(ys).Reshaped(out), p, {});
    CpuKernels().ScaledDotProductAttentionBackward(
        heads, causal, ConstTensorRef(xs).Reshaped(in), ConstTensorRef(ys).Reshaped(out), p,
        ConstTensorRef(dys).Reshaped(out), TensorRef(dxs).Reshaped(in), scratch);

    FusedAttention fused = {a,       n,       x.data(),        y.data(), statistics.data(),
                            nullptr, nullptr, workspace.data()};
    attention->Attend(fused);
    recorded_->Compute(2, recorded_->operands);
    for (size_t i = 0; i < y.size(); ++i) {
      ASSERT_NEAR(Widen(y[i]), ys[i], 0x1p-8 * std::abs(ys[i]) + 1e-6) << "y " << i;
    }
    for (size_t i = 0; i < statistics.size(); ++i) {
      double greatest = 0;  // of the row's probabilities: that of its greatest score
      for (int64_t j = 0; j < places; ++j) greatest = std::max(greatest, p[i * places + j]);
      double score = -1e300;
      const int64_t row = i % places, head = i / places % heads, example = i / places / heads;
      for (int64_t j = 0; j < (causal ? row + 1 : places); ++j) {
        double dot = 0;
        for (int64_t c = 0; c < size; ++c) {
          const double* const at = &xs[example * places * 3 * channels + head * size + c];
          dot += at[row * 3 * channels] * at[j * 3 * channels + channels];
        }
        score = std::max(score, dot / std::sqrt(static_cast<double>(size)));
      }
      ASSERT_NEAR(statistics[i], score - std::log(greatest), 1e-5) << "statistics " << i;
    }
    fused.dy = dy.data();
    fused.dx = dx.data();
    attention->Attend(fused);
    recorded_->Compute(3, recorded_->operands);
    for (size_t i = 0; i < dx.size(); ++i) {  // y's rounding moves the sums
      ASSERT_NEAR(Widen(dx[i]), dxs[i], 0x1p-8 * std::abs(dxs[i]) + 0.03) << "dx " << i;
    }
    recorded_->ForgetGraphs();
  }
}

TEST_F(CudnnAttentionTest, GivesARunTheOperandsOfItsGraphAndRoomOfItsOwn) {
  const auto attention = For(kDescribedH100);
  const Attention a = Of(2, 64, 16);
  const int64_t n = 3, bytes = attention->Workspace(a, n);
  ASSERT_GT(bytes, 0);
  std::vector<BFloat16> x(n * 64 * 96), y(n * 64 * 32);
  std::vector<float> statistics(n * 2 * 64);
  std::vector<char> workspace(bytes);
  FusedAttention fused = {a,       n,       x.data(),        y.data(), statistics.data(),
                          nullptr, nullptr, workspace.data()};
  for (const int graph : {0, 1}) {
    attention->Attend(fused);
    std::vector<int64_t> given;
    for (const auto& [id, address] : recorded_->operands) given.push_back(id);
    EXPECT_EQ(given, recorded_->OperandsOf(graph));
    const auto at = [](const void* address) { return reinterpret_cast<intptr_t>(address); };
    EXPECT_EQ(at(recorded_->workspace) % 256, 0);
    const auto sums = recorded_->operands.find(static_cast<int64_t>(AttentionOperand::kSums));
    EXPECT_EQ(sums != recorded_->operands.end(), graph == 1);
    if (graph == 1) {
      EXPECT_GE(at(sums->second), at(workspace.data()));
      EXPECT_GE(at(recorded_->workspace), at(sums->second) + n * 2 * 64 * 4);
    }
    const auto plans = attention->MakePlans(a, n, kAny);
    RUBATO_ASSERT_OK(plans);
    EXPECT_LE(at(recorded_->workspace) +
                  std::max((*plans)->forward.workspace, (*plans)->backward.workspace),
              at(workspace.data()) + bytes);
    fused.dy = y.data();
    fused.dx = x.data();
  }
}

TEST_F(CudnnAttentionTest, WantsNoMoreForFewerExamples) {
  const auto attention = For(kDescribedH100);
  const Attention a = Of(2, 64, 16);
  const int64_t most = attention->Workspace(a, 8);
  ASSERT_GT(most, 0);
  EXPECT_EQ(attention->Workspace(a, 8), most);
  EXPECT_LT(attention->Workspace(a, 3), most);
  EXPECT_THAT(attention->used(), HasSubstr("cuDNN 9."));
}

TEST_F(CudnnAttentionTest, LeavesToOthersWhatCudnnRefuses) {
  const auto attention = For(kDescribedH100);
  testing::internal::CaptureStderr();
  EXPECT_LT(attention->Workspace(Of(2, 64, 12), 3), 0);
  EXPECT_LT(attention->Workspace(Of(1, 64, 512), 3), 0);
  EXPECT_LT(attention->Workspace(Of(1, 64, 512), 2), 0);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, HasSubstr("warning: on the GPU: attention of 3 examples, 2 heads of 12 "
                              "channels, 64 places is products and a softmax: heads are not of a "
                              "multiple of 8 channels\n"));
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 2) << "once for each: " << said;
  EXPECT_THAT(attention->used(), IsEmpty());
}

// Whatever call fails while plans are made: there are none, or of another engine; and nothing of
// them is left.
TEST_F(CudnnAttentionTest, HasNoPlansWhateverCallFails) {
  const auto attention = For(kDescribedH100);
  const Attention a = Of(1, 64, 16);
  RUBATO_ASSERT_OK(attention->MakePlans(a, 1, kAny));
  const int64_t calls = recorded_->calls;
  EXPECT_GT(calls, 300);
  EXPECT_EQ(recorded_->live, 0);
  int refusals = 0;
  constexpr int64_t kStride = 61;  // of all calls, so many are left out: each time plans are made
  for (int64_t call = 0; call < calls; call += kStride) {
    recorded_->calls = 0;
    recorded_->fails_at = call;
    recorded_->error =
        call % 2 == 0 ? CUDNN_STATUS_INTERNAL_ERROR : CUDNN_STATUS_NOT_SUPPORTED_SHAPE;
    const auto plans = attention->MakePlans(a, 1, kAny);
    if (!plans.ok()) {
      ++refusals;
      EXPECT_THAT(std::string(plans.status().message()),
                  AnyOf(HasSubstr("CUDNN_STATUS_INTERNAL_ERROR"),
                        HasSubstr("CUDNN_STATUS_NOT_SUPPORTED_SHAPE")));
    }
  }
  EXPECT_EQ(recorded_->live, 0);
  EXPECT_GT(refusals, calls / kStride * 2 / 3);
}

// As they are declared to the library, which may read 16 bytes at a time.
TEST_F(CudnnAttentionTest, TakesNoOperandThatIsLessAlignedThanItIsDeclared) {
  const auto attention = For(kDescribedH100);
  const Attention a = Of(1, 64, 16);
  ASSERT_GT(attention->Workspace(a, 1), 0);
  alignas(16) BFloat16 x[64 * 48 + 4];
  alignas(16) BFloat16 y[64 * 16 + 4];
  alignas(16) float statistics[64 + 2];
  std::vector<char> workspace(attention->Workspace(a, 1));
  const auto attend = [&](int of_x, int of_y, int of_statistics) {
    attention->Attend(
        {a, 1, x + of_x, y + of_y, statistics + of_statistics, nullptr, nullptr, workspace.data()});
  };
  attend(0, 0, 0);
  EXPECT_DEATH(attend(4, 0, 0), "kOperandAlignment") << "8 bytes on";
  EXPECT_DEATH(attend(0, 4, 0), "kOperandAlignment");
  EXPECT_DEATH(attend(0, 0, 2), "kOperandAlignment");
}

TEST_F(CudnnAttentionTest, EndsTheProcessWhenARunFails) {
  const auto attention = For(kDescribedH100);
  const Attention a = Of(1, 64, 16);
  ASSERT_GT(attention->Workspace(a, 1), 0);
  std::vector<BFloat16> values(64 * 48);
  std::vector<float> statistics(64);
  std::vector<char> workspace(attention->Workspace(a, 1));
  const FusedAttention fused = {a,       1,       values.data(),   values.data(), statistics.data(),
                                nullptr, nullptr, workspace.data()};
  recorded_->run = CUDNN_STATUS_EXECUTION_FAILED;
  EXPECT_EXIT(
      attention->Attend(fused), ::testing::ExitedWithCode(1),
      "^error: on the GPU: attention failed: CUDNN_STATUS_EXECUTION_FAILED.*\\(cuDNN\\)\n$");
}

}  // namespace
}  // namespace rubato
