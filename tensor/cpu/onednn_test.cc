// What oneDNN computes, against double precision by the other library.
#include "tensor/cpu/onednn.h"

#include <cmath>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tensor/cpu/gemm.h"

namespace rubato {
namespace {

using Doubles = std::vector<double>;
using Floats = std::vector<float>;

// Floats, so that both precisions have the same operands.
Doubles Draw(int64_t n, uint64_t key) {
  RandomStream stream(key);
  Doubles values(n);
  for (double& value : values) value = static_cast<float>(stream.Uniform(-1, 1));
  return values;
}

Floats Rounded(const Doubles& values, int64_t offset = 0) {
  Floats result(offset);
  result.insert(result.end(), values.begin(), values.end());
  return result;
}

Doubles Magnitudes(Doubles values) {
  for (double& value : values) value = std::abs(value);
  return values;
}

// Sums of `terms` products whose magnitudes add up to `magnitudes`, in any order.
void ExpectNear(absl::Span<const float> found, const Doubles& expected, const Doubles& magnitudes,
                int64_t terms) {
  ASSERT_EQ(found.size(), expected.size());
  double worst = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const double bound = terms * std::numeric_limits<float>::epsilon() * magnitudes[i];
    const double error = std::abs(found[i] - expected[i]);
    ASSERT_LE(error, bound) << "value " << i << ", expected " << expected[i];
    worst = std::max(worst, error / bound);
  }
  EXPECT_GT(worst, 0) << "not a single value was rounded: was it computed in float32?";
}

class OneDnnTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (OneDnnSignature(OneDnnIsa()).empty()) {
      GTEST_SKIP() << "oneDNN computes nothing on this processor";
    }
  }
};

TEST_F(OneDnnTest, ProductsAreTheSumsOfProducts) {
  if (OneDnnIsa() != Isa::kAvx512) GTEST_SKIP() << "products are OpenBLAS's without AVX-512";
  const int64_t m = 67, n = 129, k = 131, gap = 3;
  ASSERT_TRUE(OneDnnTakes(OneDnnIsa(), m, n, k));
  for (const Transpose ta : {Transpose::kNo, Transpose::kYes}) {
    for (const Transpose tb : {Transpose::kNo, Transpose::kYes}) {
      for (const float beta : {0.0f, 1.0f}) {
        const int64_t lda = gap + (ta == Transpose::kYes ? m : k);
        const int64_t ldb = gap + (tb == Transpose::kYes ? k : n), ldc = gap + n;
        const Doubles a = Draw(lda * std::max(m, k), 1), b = Draw(ldb * std::max(n, k), 2);
        const Doubles c = Draw(ldc * m, 3);
        const auto in_double = [&](Doubles a, Doubles b, Doubles c) {
          Gemm(ta, tb, m, n, k, 0.5, a.data(), lda, b.data(), ldb, double{beta}, c.data(), ldc);
          return c;
        };
        const auto in_float = [&](int64_t offset) {
          const Floats as = Rounded(a, offset), bs = Rounded(b, offset);
          Floats cs = Rounded(c, offset);
          Gemm(ta, tb, m, n, k, 0.5f, as.data() + offset, lda, bs.data() + offset, ldb, beta,
               cs.data() + offset, ldc);
          return Floats(cs.begin() + offset, cs.end());
        };
        const Floats found = in_float(0);
        ExpectNear(found, in_double(a, b, c),
                   in_double(Magnitudes(a), Magnitudes(b), Magnitudes(c)), k + 2);
        // Wherever the operands lie.
        EXPECT_EQ(in_float(1), found);
        EXPECT_EQ(in_float(5), found);
      }
    }
  }
}

struct ConvolutionCase {
  Convolution convolution;
  int64_t n;
};

// y or, backward, the gradients by x, weight and bias, one behind the other.
template <typename T>
std::vector<T> Convolve(const ConvolutionCase& test, bool backward, bool has_bias,
                        const std::vector<T>& x, const std::vector<T>& weight,
                        const std::vector<T>& bias, const std::vector<T>& dy) {
  const Convolution& c = test.convolution;
  std::vector<T> scratch(ConvolutionScratch(c, test.n));
  const Shape shape = {test.n, c.in_channels, c.window.height, c.window.width};
  const ConstTensorRef xs = ConstTensorRef(x).Reshaped(shape);
  std::vector<T> out(backward ? x.size() + weight.size() + (has_bias ? bias.size() : 0) : dy.size(),
                     T(77));
  if (!backward) {
    Conv2d(c, xs, weight, has_bias ? ConstTensorRef(bias) : ConstTensorRef(), out, scratch);
    return out;
  }
  const int64_t inputs = x.size(), weights = weight.size();
  const TensorRef all(out);
  const TensorRef dbias = has_bias ? all.Slice(inputs + weights, {c.out_channels}) : TensorRef();
  Conv2dBackward(c, xs, weight, dy, all.Slice(0, {inputs}), all.Slice(inputs, {weights}), dbias,
                 scratch);
  // Without a gradient by x the others are the same.
  std::vector<T> others(out.size() - inputs);
  const TensorRef rest(others);
  Conv2dBackward(c, xs, weight, dy, TensorRef(), rest.Slice(0, {weights}),
                 has_bias ? rest.Slice(weights, {c.out_channels}) : TensorRef(), scratch);
  EXPECT_EQ(others, std::vector<T>(out.begin() + inputs, out.end()));
  return out;
}

TEST_F(OneDnnTest, ConvolutionsAreThoseOfDoublePrecision) {
  // Height, width, kernel, stride, padding; channels in and out, groups; examples.
  const ConvolutionCase cases[] = {
      {{{9, 7, 3, 1, 0}, 16, 16, 1}, 3},   {{{9, 7, 3, 1, 1}, 32, 16, 1}, 1},
      {{{8, 11, 3, 2, 1}, 16, 48, 1}, 2},  {{{7, 7, 5, 1, 2}, 20, 28, 1}, 2},
      {{{6, 6, 2, 2, 0}, 64, 24, 1}, 5},   {{{5, 4, 3, 1, 2}, 8, 40, 1}, 2},
      {{{6, 5, 3, 1, 1}, 32, 64, 2}, 2},   {{{7, 9, 3, 1, 1}, 48, 24, 3}, 1},
      {{{6, 7, 3, 1, 1}, 32, 32, 32}, 3},  {{{8, 8, 5, 2, 2}, 9, 9, 9}, 2},
      {{{4, 4, 3, 1, 1}, 512, 512, 1}, 1}, {{{3, 3, 3, 3, 0}, 16, 16, 1}, 2},
  };
  for (const ConvolutionCase& test : cases) {
    const Convolution& c = test.convolution;
    ASSERT_TRUE(OneDnnTakes(OneDnnIsa(), c));
    for (const bool has_bias : {false, true}) {
      const Window& w = c.window;
      SCOPED_TRACE(absl::StrCat(w.height, "x", w.width, ", kernel ", w.kernel, ", ", c.in_channels,
                                " to ", c.out_channels, ", groups ", c.groups,
                                has_bias ? ", bias" : ""));
      const Doubles x = Draw(test.n * c.in_channels * w.plane(), 1);
      const Doubles weight = Draw(c.out_channels * c.filter(), 2), bias = Draw(c.out_channels, 3);
      const Doubles dy = Draw(test.n * c.out_channels * w.out_plane(), 4);
      for (const bool backward : {false, true}) {
        // What sums the most terms is the gradient by a weight or by x.
        const int64_t terms =
            1 + (backward ? std::max(test.n * w.out_plane(),
                                     c.out_channels / c.groups * w.kernel * w.kernel)
                          : c.filter());
        const auto in_float = [&] {
          return Convolve(test, backward, has_bias, Rounded(x), Rounded(weight), Rounded(bias),
                          Rounded(dy));
        };
        const Floats found = in_float();
        ExpectNear(found, Convolve(test, backward, has_bias, x, weight, bias, dy),
                   Convolve(test, backward, has_bias, Magnitudes(x), Magnitudes(weight),
                            Magnitudes(bias), Magnitudes(dy)),
                   terms);
        // In another thread, which makes its own plan of it.
        Floats again;
        std::thread([&] { again = in_float(); }).join();
        EXPECT_EQ(again, found);
      }
    }
  }
}

TEST_F(OneDnnTest, TakesWhatItIsFasterAt) {
  const Isa isa = OneDnnIsa();
  EXPECT_EQ(OneDnnTakes(isa, 64, 512, 784), isa == Isa::kAvx512);
  EXPECT_FALSE(OneDnnTakes(isa, 64, 10, 256));
  EXPECT_FALSE(OneDnnTakes(Isa::kGeneric, 64, 512, 784));
  EXPECT_FALSE(OneDnnTakes(isa, Convolution{{28, 28, 3, 1, 1}, 1, 32, 1}));
  EXPECT_FALSE(OneDnnTakes(isa, Convolution{{28, 28, 1, 1, 0}, 64, 64, 1}));
  EXPECT_FALSE(OneDnnTakes(isa, Convolution{{28, 28, 3, 1, 1}, 32, 32, 8}));
  EXPECT_FALSE(OneDnnTakes(isa, Convolution{{28, 28, 3, 1, 1}, 17, 19, 1}));
  EXPECT_FALSE(OneDnnTakes(isa, Convolution{{28, 28, 3, 1, 3}, 32, 32, 1}));
  EXPECT_FALSE(OneDnnTakes(Isa::kGeneric, Convolution{{28, 28, 3, 1, 1}, 32, 32, 1}));
  EXPECT_THAT(MatMulSignature(), ::testing::MatchesRegex("OpenBLAS .*, oneDNN [0-9.]+ avx.*"));
}

}  // namespace
}  // namespace rubato
