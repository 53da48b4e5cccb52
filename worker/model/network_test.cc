// Layers and compositions of them, by way of the graph and its memory, against PyTorch and against
// differences.
#include "worker/model/network.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_matchers.h"
#include "gtest/gtest.h"
#include "tests/golden.h"
#include "worker/model/network_cases.h"

namespace rubato {
namespace {

std::unique_ptr<Network> Make(const std::string& text, absl::Span<const int64_t> shape,
                              int64_t max_batch, DType dtype) {
  absl::StatusOr<Graph> graph = BuildGraph(Parse(text), shape, /*classes=*/0);
  RUBATO_CHECK(graph.ok());
  auto network = Network::Create(*std::move(graph), max_batch, dtype, Purpose::kInputGradient);
  RUBATO_CHECK(network.ok());
  return *std::move(network);
}

template <typename T>
void Compute(Network& network, Call<T>& call) {
  call.dparameters.assign(call.parameters.size(), 77);
  const ConstTensorRef y =
      network.Forward(call.parameters, call.x, /*training=*/true, /*key=*/3, call.dparameters);
  call.y.assign(y.values<T>().begin(), y.values<T>().end());
  const absl::Span<T> dy = network.output_gradient().values<T>();
  ASSERT_EQ(dy.size(), call.dy.size());
  std::copy(call.dy.begin(), call.dy.end(), dy.begin());
  const ConstTensorRef dx = network.Backward(call.parameters, call.dparameters, [](int64_t) {});
  call.dx.assign(dx.values<T>().begin(), dx.values<T>().end());
}

template <typename T>
void ExpectPyTorchs(const Case& c) {
  const absl::Span<const int64_t> shape = absl::MakeSpan(c.shape).subspan(1);
  const std::unique_ptr<Network> reference = Make(c.text, shape, c.shape[0], DType::kFloat64);
  // Larger than the batch, so that what lies in memory is not where the batch would put it.
  const std::unique_ptr<Network> network = Make(c.text, shape, c.shape[0] + 2, DTypeOf<T>());
  const Tolerance<T> tolerance([&](Call<double>& call) { Compute(*reference, call); }, c.call);
  Call<T> call = Convert<T>(c.call);
  Compute(*network, call);
  ExpectNear(call.y, c.call.y, tolerance.y, "y");
  if (!c.call.dx.empty()) ExpectNear(call.dx, c.call.dx, tolerance.dx, "dx");
  const size_t trainable = c.call.dparameters.size();
  ExpectNear(std::vector<T>(call.dparameters.begin(), call.dparameters.begin() + trainable),
             c.call.dparameters, tolerance.dparameters, "dparameters");
  if (c.running.empty()) return;

  // What the batch adds to the averages, and evaluation by them.
  const proto::Layout& layout = network->graph().layout;
  const double momentum = layout.parameters(layout.parameters_size() - 1).average();
  for (size_t i = 0; i < c.running.size(); ++i) {
    T& value = call.parameters[trainable + i];
    const double measured = call.dparameters[trainable + i] / static_cast<double>(c.shape[0]);
    value += static_cast<T>(momentum * (measured - value));
    ASSERT_NEAR(value, c.running[i],
                10 * std::numeric_limits<T>::epsilon() * (1 + std::abs(c.running[i])))
        << "buffer " << i;
  }
  const ConstTensorRef y = network->Forward(call.parameters, call.x, false, 0, TensorRef());
  ExpectNear(std::vector<T>(y.values<T>().begin(), y.values<T>().end()), c.evaluated, tolerance.y,
             "evaluation");
}

TEST(Network, AgreesWithPyTorch) {
  const Golden golden("compositions.safetensors");
  int cases = 0;
  for (const auto& [name, text] : golden.metadata()) {
    if (absl::StartsWith(text, "loss")) continue;
    SCOPED_TRACE(name);
    ++cases;
    const Case c = Read(golden, name);
    ExpectPyTorchs<double>(c);
    ExpectPyTorchs<float>(c);
  }
  EXPECT_EQ(cases, 66);
}

// The scalar whose gradient Backward gives.
double Sum(Network& network, Call<double> call) {
  Compute(network, call);
  double sum = 0;
  for (size_t i = 0; i < call.y.size(); ++i) sum += call.y[i] * call.dy[i];
  return sum;
}

// A case beside the goldens, with operands drawn here.
Case Draw(const std::string& text, const std::vector<int64_t>& shape) {
  const auto draw = [](int64_t n, uint64_t key) {
    RandomStream stream(key);
    std::vector<double> values(n);
    for (double& value : values) value = stream.Uniform(-1, 1);
    return values;
  };
  Case c{text, shape, {}, {}, {}};
  const std::unique_ptr<Network> network =
      Make(text, absl::MakeSpan(shape).subspan(1), shape[0], DType::kFloat64);
  const Graph& graph = network->graph();
  c.call.x = draw(SizeOf(shape), 31);
  c.call.parameters = draw(graph.trainable, 32);
  c.call.dparameters.resize(graph.trainable);
  c.call.dx.resize(c.call.x.size());
  c.call.dy = draw(shape[0] * SizeOf(graph.shapes.back()), 33);
  return c;
}

// What a sum rounds to over a step, and the error of the differences' formula.
double ToleranceOf(const Call<double>& call, double h, const std::vector<double>& gradient) {
  double terms = 0;
  for (size_t i = 0; i < call.y.size(); ++i) terms += std::abs(call.y[i] * call.dy[i]);
  return 40 * std::numeric_limits<double>::epsilon() * terms / h + 1e-7 * Greatest(gradient);
}

// Calls check(sum_at, gradient, tolerance) for each value of x, unless it holds indices, and of the
// parameters: sum_at(step) is the sum with that value moved.
template <typename Check>
void ForEachOperand(const Case& c, double h, Check check) {
  const std::unique_ptr<Network> network =
      Make(c.text, absl::MakeSpan(c.shape).subspan(1), c.shape[0], DType::kFloat64);
  Call<double> call = c.call;
  Compute(*network, call);
  const auto visit = [&](std::vector<double> Call<double>::*operand,
                         const std::vector<double>& gradient, size_t count, const char* what) {
    const double tolerance = ToleranceOf(call, h, gradient);
    for (size_t i = 0; i < count; ++i) {
      SCOPED_TRACE(absl::StrCat(what, "[", i, "]"));
      const auto sum_at = [&](double step) {
        Call<double> moved = call;
        (moved.*operand)[i] += step;
        return Sum(*network, moved);
      };
      check(sum_at, gradient[i], tolerance);
      if (::testing::Test::HasFatalFailure()) return;
    }
  };
  if (!c.call.dx.empty()) visit(&Call<double>::x, call.dx, call.x.size(), "dx");
  visit(&Call<double>::parameters, call.dparameters, c.call.dparameters.size(), "dparameters");
}

void ExpectCentralDifferences(const Case& c) {
  const double h = 2e-4;
  ForEachOperand(c, h, [&](const auto& sum_at, double gradient, double tolerance) {
    const auto difference = [&](double step) {
      return (sum_at(step) - sum_at(-step)) / (2 * step);
    };
    // Richardson's.
    ASSERT_NEAR(gradient, (4 * difference(h) - difference(2 * h)) / 3, tolerance);
  });
}

// Where a relu's input is 0, or a pool's two greatest are equal, there is no derivative: values to
// the left and to the right show that. Adds up how many operands were looked at and passed over.
void ExpectOneSidedDifferences(const Case& c, int64_t* looked_at, int64_t* passed_over) {
  const double h = 1e-5;
  ForEachOperand(c, h, [&](const auto& sum_at, double gradient, double tolerance) {
    const double here = sum_at(0);
    const auto slope = [&](double step) {
      return (4 * sum_at(step) - 3 * here - sum_at(2 * step)) / (2 * step);
    };
    const double left = slope(-h), right = slope(h);
    ++*looked_at;
    if (std::abs(left - right) > tolerance) {
      ++*passed_over;
      return;
    }
    ASSERT_NEAR(gradient, (left + right) / 2, tolerance);
  });
}

bool HasKinks(const std::string& text) {
  return absl::StrContains(text, "max_pool") || absl::StrContains(text, "relu");
}

TEST(Network, GradientsAreThoseOfCentralDifferences) {
  const Golden golden("compositions.safetensors");
  int cases = 0;
  for (const auto& [name, text] : golden.metadata()) {
    if (absl::StartsWith(text, "loss") || HasKinks(text)) continue;
    SCOPED_TRACE(name);
    ++cases;
    ExpectCentralDifferences(Read(golden, name));
  }
  EXPECT_EQ(cases, 57);
  // What is dropped is a function of the call's key, so it stands still while an operand moves.
  for (const char* text :
       {"layers { dropout { p: 0.3 } }", "layers { position_embedding {} }",
        "layers { transformer_block { heads: 2 dropout: 0.3 } }",
        "layers { gelu { approximate: APPROXIMATE_TANH } } layers { sigmoid {} }"}) {
    SCOPED_TRACE(text);
    ExpectCentralDifferences(Draw(text, {2, 5, 6}));
  }
}

TEST(Network, GradientsBesideKinksAreThoseOfDifferencesToEitherSide) {
  const Golden golden("compositions.safetensors");
  int cases = 0;
  int64_t looked_at = 0, passed_over = 0;
  for (const auto& [name, text] : golden.metadata()) {
    if (!HasKinks(text)) continue;
    SCOPED_TRACE(name);
    ++cases;
    ExpectOneSidedDifferences(Read(golden, name), &looked_at, &passed_over);
  }
  EXPECT_EQ(cases, 9);
  ExpectOneSidedDifferences(Draw("layers { relu {} }", {3, 7}), &looked_at, &passed_over);
  ExpectOneSidedDifferences(
      Draw("layers { conv2d { out_channels: 3 kernel_size: 3 } } layers { relu {} } "
           "layers { max_pool2d { kernel_size: 2 } } layers { flatten {} } "
           "layers { linear { out_features: 4 } }",
           {2, 2, 8, 6}),
      &looked_at, &passed_over);
  EXPECT_LE(passed_over, looked_at / 100) << "of " << looked_at;
}

}  // namespace
}  // namespace rubato
