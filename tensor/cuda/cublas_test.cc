// What is asked of cublasLt, and what is made of its answers.
#include "tensor/cuda/cublas.h"

#include <cmath>
#include <vector>

#include "common/base/random.h"
#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tensor/cuda/fake_cublas.h"
#include "tensor/half_float.h"

namespace rubato {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr auto kNo = CUBLAS_STATUS_NOT_SUPPORTED;
constexpr auto kYes = CUBLAS_STATUS_SUCCESS;

class CublasTest : public ::testing::Test {
 protected:
  CublasTest() {
    ResetFakeCublas();
    RandomStream stream(1);
    for (size_t i = 0; i < kValues; ++i) {
      values_[i] = BFloat16(stream.Uniform(-1, 1));
      floats_[i] = stream.Uniform(-1, 1);
    }
    handle_ = *CublasHandle::Create(ProductPrecision::kFloat32, workspace_);
  }
  ~CublasTest() override { EXPECT_THAT(fake_.violations, IsEmpty()); }

  // (5, 7) by (7, 6) in bfloat16, with results, a bias and factors that begin so many values from
  // an aligned address.
  Product Small(int c = 0, int bias = 0, int a = 0, int b = 0) {
    Product p(Transpose::kNo, Transpose::kNo, 5, 6, 7);
    p.a = MatrixAt(values_ + a, 7);
    p.b = MatrixAt(values_ + 128 + b, 6);
    p.c = MatrixAt(values_ + 256 + c, 6);
    p.bias = values_ + 512 + bias;
    return p;
  }
  bool Multiply(const Product& product) { return handle_->Multiply(product, nullptr); }

  static constexpr size_t kValues = 2048;
  alignas(256) BFloat16 values_[kValues];
  alignas(256) float floats_[kValues];
  alignas(256) char workspace_[256];
  FakeCublas& fake_ = TheFakeCublas();
  std::unique_ptr<CublasHandle> handle_;
};

// By rows here, by columns there, with all that moves an element: against a sum by pencil.
TEST_F(CublasTest, AsksForTheProductThatIsMeant) {
  for (const Transpose ta : {Transpose::kNo, Transpose::kYes}) {
    for (const Transpose tb : {Transpose::kNo, Transpose::kYes}) {
      const bool a_turned = ta == Transpose::kYes, b_turned = tb == Transpose::kYes;
      const std::vector<float> before(floats_, floats_ + kValues);
      const int64_t m = 3, n = 4, k = 5, pitch = 9, distance = 50;
      Product p(ta, tb, m, n, k);
      p.a = MatrixAt(values_ + 3, pitch, distance);
      p.b = MatrixAt(values_ + 300, pitch, distance);
      p.c = MatrixAt(floats_ + 1, pitch, distance);
      p.bias = floats_ + 500;
      p.alpha = 0.5;
      p.beta = 2;
      p.count = 2;
      ASSERT_TRUE(Multiply(p));
      for (int64_t i = 0; i < 2; ++i) {
        for (int64_t row = 0; row < m; ++row) {
          for (int64_t column = 0; column < n; ++column) {
            double sum = 0;
            for (int64_t j = 0; j < k; ++j) {
              const int64_t a = a_turned ? j * pitch + row : row * pitch + j;
              const int64_t b = b_turned ? column * pitch + j : j * pitch + column;
              sum += static_cast<double>(static_cast<float>(values_[3 + i * distance + a])) *
                     static_cast<float>(values_[300 + i * distance + b]);
            }
            const int64_t at = 1 + i * distance + row * pitch + column;
            EXPECT_NEAR(floats_[at], 0.5 * sum + 2 * before[at] + before[500 + column], 1e-6);
          }
        }
      }
    }
  }
}

TEST_F(CublasTest, AsksOnceForEachShape) {
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(Multiply(Small()));
  EXPECT_EQ(fake_.questions.size(), 1u);
}

// Half types end at 2 bytes: whoever was chosen for 16 must not be given them. cuBLAS's A is our b.
TEST_F(CublasTest, ChoosesByTheAlignmentOfEveryOperandAndOfTheBias) {
  ASSERT_TRUE(Multiply(Small()));
  ASSERT_TRUE(Multiply(Small(/*c=*/1)));
  ASSERT_TRUE(Multiply(Small(0, /*bias=*/1)));
  ASSERT_TRUE(Multiply(Small(0, 0, /*a=*/1)));
  ASSERT_TRUE(Multiply(Small(0, 0, 0, /*b=*/1)));
  ASSERT_EQ(fake_.questions.size(), 5u);
  EXPECT_THAT(fake_.questions[0].preference.alignments, ElementsAre(256, 256, 256, 256));
  EXPECT_THAT(fake_.questions[1].preference.alignments, ElementsAre(256, 256, 2, 2));
  EXPECT_THAT(fake_.questions[2].preference.alignments, ElementsAre(256, 256, 256, 256));
  EXPECT_THAT(fake_.questions[3].preference.alignments, ElementsAre(256, 2, 256, 256));
  EXPECT_THAT(fake_.questions[4].preference.alignments, ElementsAre(2, 256, 256, 256));
  std::vector<uint64_t> biases;
  for (const FakeCublas::Question& question : fake_.questions) {
    biases.push_back(question.bias_alignment);
  }
  EXPECT_THAT(biases, ElementsAre(256, 256, 2, 256, 256));
}

TEST_F(CublasTest, HasSumsCutAndAddedInFloat32Alone) {
  ASSERT_TRUE(Multiply(Small()));
  EXPECT_EQ(fake_.questions[0].preference.reductions,
            static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  EXPECT_EQ(fake_.questions[0].description.compute, CUBLAS_COMPUTE_32F);
  EXPECT_EQ(fake_.questions[0].description.scale, CUDA_R_32F);
}

TEST_F(CublasTest, UsesTheFirstResultWhoseStateIsGood) {
  fake_.states = {kNo, kYes, kYes};
  fake_.products = {kYes, kYes, kYes};
  ASSERT_TRUE(Multiply(Small()));
  EXPECT_GT(fake_.questions[0].wanted, 1);
  EXPECT_THAT(fake_.used, ElementsAre(1));
}

TEST_F(CublasTest, TriesTheNextAlgorithmAndKeepsTheOneThatWorks) {
  fake_.states = {kYes, kYes, kYes};
  fake_.products = {kNo, CUBLAS_STATUS_INVALID_VALUE, kYes};
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(Multiply(Small()));
  EXPECT_THAT(fake_.used, ElementsAre(0, 1, 2, 2));
}

TEST_F(CublasTest, SaysWhenThereIsNoAlgorithm) {
  fake_.states = {};
  EXPECT_FALSE(Multiply(Small(0)));
  fake_.states = {kNo, kNo};
  EXPECT_FALSE(Multiply(Small(1)));
  fake_.states = {kYes};
  fake_.products = {kNo};
  EXPECT_FALSE(Multiply(Small(2)));
  fake_.products = {kYes};
  // As for a matrix of one row or column, before CUDA 12.
  fake_.heuristic = CUBLAS_STATUS_INVALID_VALUE;
  EXPECT_FALSE(Multiply(Small(3, 2)));
  EXPECT_FALSE(Multiply(Small(3, 2))) << "nor later";
}

TEST_F(CublasTest, EndsTheProcessWhenAProductFails) {
  fake_.products = {CUBLAS_STATUS_EXECUTION_FAILED};
  EXPECT_EXIT(Multiply(Small()), ::testing::ExitedWithCode(1),
              "^error: on the GPU: a product failed: it failed to run \\(cuBLAS\\)\n$");
}

}  // namespace
}  // namespace rubato
