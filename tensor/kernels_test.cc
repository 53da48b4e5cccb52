#include "tensor/kernels.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "common/base/isa.h"
#include "common/base/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tensor/attention.h"
#include "tensor/convolution.h"
#include "tensor/normalization.h"

namespace rubato {
namespace {

using ::testing::ElementsAre;
using ::testing::MatchesRegex;

// Uniform in [-1, 1).
template <typename T>
std::vector<T> Draw(int64_t n, uint64_t key) {
  RandomStream stream(key);
  std::vector<T> values(n);
  for (T& value : values) value = stream.Uniform(-1, 1);
  return values;
}

template <typename T>
void ExpectSumsOfProducts() {
  const int64_t m = 7, n = 5, k = 33;
  for (Transpose ta : {Transpose::kNo, Transpose::kYes}) {
    for (Transpose tb : {Transpose::kNo, Transpose::kYes}) {
      const bool ya = ta == Transpose::kYes, yb = tb == Transpose::kYes;
      const std::vector<T> a = Draw<T>(m * k, 1), b = Draw<T>(k * n, 2);
      std::vector<T> c(m * n, 77);  // must be overwritten
      MatMul(ConstTensorRef(a).Reshaped(ya ? Shape{k, m} : Shape{m, k}), ta,
             ConstTensorRef(b).Reshaped(yb ? Shape{n, k} : Shape{k, n}), tb,
             TensorRef(c).Reshaped({m, n}));
      for (int64_t i = 0; i < m; ++i) {
        for (int64_t j = 0; j < n; ++j) {
          double sum = 0, magnitude = 0;
          for (int64_t l = 0; l < k; ++l) {
            const double product =
                double{ya ? a[l * m + i] : a[i * k + l]} * double{yb ? b[j * k + l] : b[l * n + j]};
            sum += product;
            magnitude += std::abs(product);
          }
          EXPECT_NEAR(c[i * n + j], sum, k * std::numeric_limits<T>::epsilon() * magnitude);
        }
      }
    }
  }
}

template <typename T>
struct Kernels : ::testing::Test {};
using Types = ::testing::Types<float, double>;
TYPED_TEST_SUITE(Kernels, Types);

TYPED_TEST(Kernels, MatMulIsTheSumOfProducts) { ExpectSumsOfProducts<TypeParam>(); }

TYPED_TEST(Kernels, MatMulsKernelsCanBeFixed) {
  for (Isa isa : {Isa::kGeneric, Isa::kAvx2, Isa::kAvx512}) {
    if (isa > DetectIsa()) continue;
    const std::string cores[] = {"Prescott", "Haswell", "SkylakeX"};
    FixMatMulKernels(isa);
    EXPECT_THAT(MatMulSignature(), MatchesRegex("OpenBLAS [0-9.]+ " + cores[static_cast<int>(isa)] +
                                                "(, oneDNN [0-9.]+ avx.*)?"));
    ExpectSumsOfProducts<TypeParam>();
  }
}

TYPED_TEST(Kernels, AddBiasAddsToEveryRow) {
  const std::vector<TypeParam> bias = {1, 2, 3};
  std::vector<TypeParam> y = {10, 20, 30, 40, 50, 60};
  AddBias(bias, TensorRef(y).Reshaped({2, 3}));
  EXPECT_THAT(y, ElementsAre(11, 22, 33, 41, 52, 63));
}

TYPED_TEST(Kernels, ColumnSumsSumEachColumn) {
  for (int64_t rows : {1, 2, 3, 4, 5, 64, 67}) {
    for (int64_t columns : {1, 15, 16, 17, 53}) {
      // Whole numbers: any order gives the exact sum.
      std::vector<TypeParam> x = Draw<TypeParam>(rows * columns, rows), sums(columns, 77);
      for (TypeParam& value : x) value = std::round(100 * value);
      ColumnSums(ConstTensorRef(x).Reshaped({rows, columns}), sums);
      for (int64_t j = 0; j < columns; ++j) {
        TypeParam sum = 0;
        for (int64_t i = 0; i < rows; ++i) sum += x[i * columns + j];
        EXPECT_EQ(sums[j], sum) << rows << " rows, column " << j << " of " << columns;
      }
    }
  }
}

TYPED_TEST(Kernels, ReluKeepsWhatIsPositiveAndWhatIsNaN) {
  const std::vector<TypeParam> x = {-1, 0, 2, std::numeric_limits<TypeParam>::quiet_NaN()};
  const std::vector<TypeParam> dy = {5, 6, 7, 8};
  std::vector<TypeParam> y(4), dx(4);
  Relu(x, y);
  EXPECT_THAT(absl::MakeSpan(y).first(3), ElementsAre(0, 0, 2));
  EXPECT_TRUE(std::isnan(y[3]));
  ReluBackward(y, dy, dx);
  EXPECT_THAT(dx, ElementsAre(0, 0, 7, 8));
}

TYPED_TEST(Kernels, ReluMayWriteOverItsInput) {
  std::vector<TypeParam> x = Draw<TypeParam>(37, 1), dy = Draw<TypeParam>(37, 2), y(37), dx(37);
  Relu(x, y);
  ReluBackward(y, dy, dx);
  Relu(x, x);
  ReluBackward(x, dy, dy);
  EXPECT_EQ(x, y);
  EXPECT_EQ(dy, dx);
}

// What the functions are is tested beside them; here, that the kernels apply them.
TYPED_TEST(Kernels, ActivationsAndTheirGradientsAreElementwise) {
  using T = TypeParam;
  const std::vector<T> x = {-2, -0.5, 0, 0.25, 3}, dy = {1, 2, 3, -4, 5};
  std::vector<T> y(5), dx(5);
  const auto expect = [&](auto value, auto derivative, const char* what) {
    for (int i = 0; i < 5; ++i) {
      const double rounding = 4 * std::numeric_limits<T>::epsilon();
      EXPECT_NEAR(y[i], value(double{x[i]}), rounding * 3) << what << " of " << x[i];
      EXPECT_NEAR(dx[i], dy[i] * derivative(double{x[i]}), rounding * 5) << what << " of " << x[i];
    }
  };
  const auto sigmoid = [](double x) { return 1 / (1 + std::exp(-x)); };
  Sigmoid(x, y);
  SigmoidBackward(y, dy, dx);
  expect(
      sigmoid, [&](double x) { return sigmoid(x) * sigmoid(-x); }, "sigmoid");
  Tanh(x, y);
  TanhBackward(y, dy, dx);
  const auto tanh = [](double x) { return std::tanh(x); };
  expect(
      tanh, [](double x) { return 1 / (std::cosh(x) * std::cosh(x)); }, "tanh");
  GeluWithDerivative(GeluForm::kExact, x, y, dx);
  Multiply(dx, dy, dx);
  const auto normal = [](double x) { return 0.5 * (1 + std::erf(x / std::sqrt(2.0))); };
  expect([&](double x) { return x * normal(x); },
         [&](double x) { return normal(x) + x * std::exp(-x * x / 2) / std::sqrt(2 * M_PI); },
         "gelu");
  GeluWithDerivative(GeluForm::kTanh, x, y, dx);
  Multiply(dx, dy, dx);
  const auto inner = [](double x) { return std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x); };
  expect([&](double x) { return 0.5 * x * (1 + std::tanh(inner(x))); },
         [&](double x) {
           const double c = std::cosh(inner(x));
           return 0.5 * (1 + std::tanh(inner(x))) +
                  0.5 * x / (c * c) * std::sqrt(2 / M_PI) * (1 + 3 * 0.044715 * x * x);
         },
         "gelu by tanh");
}

TYPED_TEST(Kernels, DropoutKeepsWhatTheDrawsSayAndScalesIt) {
  for (int64_t n : {1, 3, 63, 64, 65, 200}) {
    for (double p : {0.0, 0.3, 0.5, 0.999}) {
      const std::vector<TypeParam> x = Draw<TypeParam>(n, 1);
      std::vector<TypeParam> y(n, 77);
      Dropout(/*key=*/n, p, x, y);
      for (int64_t i = 0; i < n; ++i) {
        const bool kept = RandomBits(n, i) >= p * 0x1p32;
        EXPECT_EQ(y[i], x[i] * (kept ? static_cast<TypeParam>(1 / (1 - p)) : 0)) << p << " " << i;
      }
    }
  }
}

TYPED_TEST(Kernels, DropoutKeepsTheShareThatItShould) {
  const int64_t n = 1000000;
  const std::vector<TypeParam> x(n, 1);
  std::vector<TypeParam> y(n);
  for (double p : {0.1, 0.5, 0.9}) {
    int64_t kept = 0, both = 0;
    double sum = 0;
    Dropout(Key(3, "test"), p, x, y);
    for (int64_t i = 0; i < n; ++i) {
      kept += y[i] != 0;
      both += i > 0 && y[i] != 0 && y[i - 1] != 0;
      sum += y[i];
    }
    // Within five standard deviations of a binomial; neighbours fall independently.
    const double keep = 1 - p;
    EXPECT_NEAR(kept, n * keep, 5 * std::sqrt(n * keep * p));
    EXPECT_NEAR(both, n * keep * keep, 10 * std::sqrt(n * keep * keep * (1 - keep * keep)));
    EXPECT_NEAR(sum / n, 1, 5 * std::sqrt(p / keep / n));
  }
}

// Of each form what a distance costs, and the derivative.
struct RegressionCase {
  RegressionOptions options;
  double (*cost)(double d);
  double (*slope)(double d);
};

const RegressionCase kRegressions[] = {
    {{RegressionForm::kSquared}, [](double d) { return d * d; }, [](double d) { return 2 * d; }},
    {{RegressionForm::kAbsolute},
     [](double d) { return std::abs(d); },
     [](double d) { return d == 0 ? 0 : std::copysign(1.0, d); }},
    {{RegressionForm::kHuber, 0.5},
     [](double d) { return std::abs(d) < 0.5 ? d * d / 2 : 0.5 * std::abs(d) - 0.125; },
     [](double d) { return std::abs(d) < 0.5 ? d : std::copysign(0.5, d); }},
};

TYPED_TEST(Kernels, ARegressionsLossIsASumOverAllValues) {
  for (const RegressionCase& regression : kRegressions) {
    for (int64_t n : {1, 15, 16, 17, 100}) {
      std::vector<TypeParam> x = Draw<TypeParam>(n, 1);
      const std::vector<float> t = Draw<float>(n, 2);
      x[n / 2] = t[n / 2];
      std::vector<TypeParam> gradient(n, 77);
      const double sum = RegressionLoss(x, t, regression.options, /*factor=*/0.25, gradient);
      double expected = 0;
      for (int64_t i = 0; i < n; ++i) {
        const double distance = static_cast<double>(x[i]) - t[i];
        expected += regression.cost(distance);
        EXPECT_NEAR(gradient[i], 0.25 * regression.slope(distance),
                    2 * std::numeric_limits<TypeParam>::epsilon());
      }
      EXPECT_NEAR(sum, expected, n * 8 * std::numeric_limits<TypeParam>::epsilon());
    }
  }
}

TYPED_TEST(Kernels, ARegressionThatIsNotANumberIsSaid) {
  const TypeParam nan = std::numeric_limits<TypeParam>::quiet_NaN();
  for (const RegressionCase& regression : kRegressions) {
    const std::vector<TypeParam> x = {1, nan, 2};
    std::vector<TypeParam> gradient(3);
    EXPECT_TRUE(std::isnan(RegressionLoss(x, {1, 1, 1}, regression.options, 1, gradient)));
    EXPECT_TRUE(std::isnan(gradient[1]));
    EXPECT_EQ(gradient[0], 0);
  }
}

TYPED_TEST(Kernels, ALossThatIsNotANumberIsSaid) {
  const TypeParam nan = std::numeric_limits<TypeParam>::quiet_NaN();
  const std::vector<TypeParam> logits = {1, nan, 2, 3};
  std::vector<TypeParam> gradient(4);
  const CrossEntropySums sums =
      SoftmaxCrossEntropy(ConstTensorRef(logits).Reshaped({1, 4}), {0}, gradient);
  EXPECT_TRUE(std::isnan(sums.loss));
  for (TypeParam value : gradient) EXPECT_TRUE(std::isnan(value));
}

// Every kernel of ours on one draw of the given size, its results one after another. `offset`
// values before the operands make them unaligned.
template <typename T>
std::vector<T> RunAll(int64_t rows, int64_t columns, int64_t offset) {
  const int64_t n = rows * columns;
  const Shape shape = {rows, columns};
  std::vector<T> x = Draw<T>(offset + n, 1), dy = Draw<T>(offset + n, 2);
  for (T& value : x) value *= 10;
  const std::vector<T> bias = Draw<T>(offset + columns, 3);
  std::vector<int32_t> labels(rows);
  for (int64_t i = 0; i < rows; ++i) labels[i] = i % columns;
  std::vector<T> all;
  const auto run = [&](int64_t size, auto kernel) {
    std::vector<T> out(offset + size);
    kernel(TensorRef(out).Slice(offset, {size}));
    all.insert(all.end(), out.begin() + offset, out.end());
  };
  const ConstTensorRef xs = ConstTensorRef(x).Slice(offset, shape);
  const ConstTensorRef dys = ConstTensorRef(dy).Slice(offset, shape);
  run(n, [&](TensorRef y) { Relu(xs, y); });
  run(n, [&](TensorRef dx) { ReluBackward(xs, dys, dx); });
  run(n, [&](TensorRef y) { Sigmoid(xs, y); });
  run(n, [&](TensorRef dx) { SigmoidBackward(xs, dys, dx); });
  run(n, [&](TensorRef y) { Tanh(xs, y); });
  run(n, [&](TensorRef dx) { TanhBackward(xs, dys, dx); });
  for (const GeluForm form : {GeluForm::kExact, GeluForm::kTanh}) {
    run(n, [&](TensorRef y) { Gelu(form, xs, y); });
    run(n, [&](TensorRef dx) {
      std::vector<T> y(n);
      GeluWithDerivative(form, xs, y, dx);
      all.insert(all.end(), y.begin(), y.end());
    });
  }
  const ConstTensorRef weight = ConstTensorRef(bias).Slice(offset, {columns});
  std::vector<T> statistics(2 * rows), dweight(columns), dbias(columns);
  run(n, [&](TensorRef y) { LayerNorm(xs, weight, weight, 1e-5, y, statistics); });
  run(n, [&](TensorRef dx) {
    LayerNormBackward(xs, weight, statistics, dys, dx, dweight, dbias);
    all.insert(all.end(), dweight.begin(), dweight.end());
  });
  const ConstTensorRef planes = xs.Reshaped({1, rows, columns});
  const TensorRef no_weight;
  run(n, [&](TensorRef y) { GroupNorm(rows, planes, no_weight, no_weight, 1e-5, y, statistics); });
  run(n, [&](TensorRef dx) {
    GroupNormBackward(rows, planes, no_weight, statistics, dys, dx, no_weight, no_weight);
  });
  run(n, [&](TensorRef y) { AddRow(xs, weight, y); });
  if (columns > 1) {
    for (const Window& window : {Window{rows, columns, 2, 2, 0}, Window{rows, columns, 2, 1, 1}}) {
      run(window.out_plane(), [&](TensorRef y) { MaxPool2d(window, xs, y); });
      std::vector<T> y(window.out_plane()), dy_pool(y);
      MaxPool2d(window, xs, y);
      for (size_t i = 0; i < y.size(); ++i) dy_pool[i] = static_cast<T>(i);
      run(n, [&](TensorRef dx) { MaxPool2dBackward(window, xs, y, dy_pool, dx); });
    }
  }
  run(n, [&](TensorRef y) { Dropout(/*key=*/5, /*p=*/0.3, xs, y); });
  const std::vector<float> targets = Draw<float>(n, 4);
  for (const RegressionCase& regression : kRegressions) {
    run(n, [&](TensorRef gradient) {
      all.push_back(RegressionLoss(xs, targets, regression.options, /*factor=*/0.5, gradient));
    });
  }
  run(columns, [&](TensorRef sums) { ColumnSums(xs, sums); });
  run(n, [&](TensorRef y) {
    Copy(xs, y);
    AddBias(ConstTensorRef(bias).Slice(offset, {columns}), y.Reshaped(shape));
  });
  run(n, [&](TensorRef gradient) {
    const CrossEntropySums sums = SoftmaxCrossEntropy(xs, labels, gradient.Reshaped(shape));
    all.push_back(sums.loss);
    all.push_back(sums.correct);
  });
  run(n, [&](TensorRef gradient) {
    const std::vector<float> weights = Draw<float>(columns, 5);
    const CrossEntropyOptions options = {0.1, -1, 0.5, weights.data(), 3};
    all.push_back(SoftmaxCrossEntropy(xs, labels, options, gradient.Reshaped(shape)).loss);
  });
  return all;
}

TYPED_TEST(Kernels, OwnKernelsGiveEqualBitsAtEveryLevel) {
  const Isa best = DetectIsa();
  if (best == Isa::kGeneric) GTEST_SKIP() << "this processor has one level only";
  for (int64_t columns : {1, 3, 10, 15, 16, 17, 31, 64, 1003}) {
    for (int64_t offset : {0, 1, 3}) {
      SetIsa(Isa::kGeneric);
      const std::vector<TypeParam> expected = RunAll<TypeParam>(13, columns, offset);
      for (Isa isa : {Isa::kAvx2, Isa::kAvx512}) {
        if (isa > best) continue;
        SetIsa(isa);
        const std::vector<TypeParam> found = RunAll<TypeParam>(13, columns, offset);
        ASSERT_EQ(found.size(), expected.size());
        EXPECT_EQ(std::memcmp(found.data(), expected.data(), found.size() * sizeof found[0]), 0)
            << IsaName(isa) << ", " << columns << " columns, offset " << offset;
      }
    }
  }
  SetIsa(best);
}

}  // namespace
}  // namespace rubato
