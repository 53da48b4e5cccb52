// Every layer against PyTorch, and against differences.
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/random.h"
#include "common/base/status_matchers.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "tests/golden.h"
#include "worker/model/layers/build.h"

namespace rubato {
namespace {

using ::testing::HasSubstr;

proto::Layer Parse(const std::string& text) {
  proto::Layer layer;
  RUBATO_CHECK(google::protobuf::TextFormat::ParseFromString(text, &layer));
  return layer;
}

// The operands of a layer's two methods; the values that they give.
template <typename T>
struct Call {
  std::vector<T> parameters, x, dy;
  std::vector<T> y, dx, dparameters;
};

// Runs both methods, over results that hold something else before.
template <typename T>
void Compute(Layer& layer, int64_t n, Call<T>& call) {
  const Shape in = BatchOf(n, layer.input_shape()), out = BatchOf(n, layer.output_shape());
  call.y.assign(SizeOf(out), 77);
  call.dx.assign(SizeOf(in), 77);
  call.dparameters.assign(call.parameters.size(), 77);
  const ConstTensorRef x = ConstTensorRef(call.x).Reshaped(in);
  const TensorRef y = TensorRef(call.y).Reshaped(out);
  std::vector<T> saved(layer.saved_size(CpuKernels(), DTypeOf<T>(), n)),
      scratch(layer.scratch_size(CpuKernels(), DTypeOf<T>(), n, {}));
  const uint64_t key = 7;
  LayerContext context;
  context.training = true;
  context.key = &key;
  context.saved = saved;
  context.scratch = scratch;
  layer.Forward(context, call.parameters, x, y);
  layer.Backward(context, call.parameters, x, y, ConstTensorRef(call.dy).Reshaped(out),
                 TensorRef(call.dx).Reshaped(in), call.dparameters);
}

std::vector<double> Abs(std::vector<double> values) {
  for (double& value : values) value = std::abs(value);
  return values;
}

// The values and, for each, the sum of the magnitudes of the terms that it is a sum of: a layer of
// sums and products gives it by itself, of its operands' magnitudes.
struct Reference {
  explicit Reference(Layer& layer, int64_t n, const Call<double>& call) {
    magnitudes.parameters = Abs(call.parameters);
    magnitudes.x = Abs(call.x);
    magnitudes.dy = Abs(call.dy);
    Compute(layer, n, magnitudes);
  }
  Call<double> magnitudes;
};

template <typename T>
void ExpectNear(const std::vector<T>& found, const std::vector<double>& expected,
                const std::vector<double>& magnitudes, const char* what) {
  ASSERT_EQ(found.size(), expected.size()) << what;
  // A sum of k terms is off by at most about k/2 + 1 roundings of its terms' magnitudes; these
  // sums have at most 33 terms, and the reference its own error.
  const double roundings = 20 * std::numeric_limits<T>::epsilon();
  for (size_t i = 0; i < found.size(); ++i) {
    ASSERT_NEAR(found[i], expected[i], roundings * magnitudes[i]) << what << "[" << i << "]";
  }
}

template <typename T>
Call<T> Convert(const Call<double>& call) {
  const auto to = [](const std::vector<double>& v) { return std::vector<T>(v.begin(), v.end()); };
  return {to(call.parameters), to(call.x), to(call.dy), {}, {}, {}};
}

TEST(Layers, AgreeWithPyTorch) {
  const Golden golden("layers.safetensors");
  int cases = 0;
  for (const auto& [name, settings] : golden.metadata()) {
    if (settings == "loss" || absl::StartsWith(settings, "regression ")) continue;
    SCOPED_TRACE(name);
    ++cases;
    const std::vector<int64_t> shape = golden.Shape(name + ".x");
    absl::StatusOr<std::unique_ptr<Layer>> layer =
        BuildLayer(Parse(settings), absl::MakeSpan(shape).subspan(1));
    RUBATO_ASSERT_OK(layer);
    Call<double> expected;
    for (const proto::Parameter& parameter : (*layer)->parameters()) {
      for (const auto& [prefix, values] :
           {std::pair(".", &expected.parameters), std::pair(".d", &expected.dparameters)}) {
        const std::string tensor = absl::StrCat(name, prefix, parameter.name());
        EXPECT_EQ(golden.Shape(tensor),
                  std::vector<int64_t>(parameter.shape().begin(), parameter.shape().end()));
        const std::vector<double> v = golden.Values<double>(tensor);
        values->insert(values->end(), v.begin(), v.end());
      }
    }
    expected.x = golden.Values<double>(name + ".x");
    expected.y = golden.Values<double>(name + ".y");
    expected.dy = golden.Values<double>(name + ".dy");
    expected.dx = golden.Values<double>(name + ".dx");
    const std::vector<int64_t> out = golden.Shape(name + ".y");
    EXPECT_EQ(BatchOf(shape[0], (*layer)->output_shape()), Shape(out.begin(), out.end()));

    Reference reference(**layer, shape[0], expected);
    if ((*layer)->parameters().empty()) {
      // Derivatives are up to 1.13, and pass through 0 by a difference of numbers about 1.
      reference.magnitudes.dx = reference.magnitudes.dy;
    }
    const auto compare = [&](auto call) {
      Compute(**layer, shape[0], call);
      ExpectNear(call.y, expected.y, reference.magnitudes.y, "y");
      ExpectNear(call.dx, expected.dx, reference.magnitudes.dx, "dx");
      ExpectNear(call.dparameters, expected.dparameters, reference.magnitudes.dparameters,
                 "dparameters");
    };
    compare(Convert<double>(expected));
    compare(Convert<float>(expected));
  }
  EXPECT_EQ(cases, 16);
}

// The scalar whose gradient Backward gives.
double Sum(Layer& layer, int64_t n, Call<double> call) {
  Compute(layer, n, call);
  double sum = 0;
  for (size_t i = 0; i < call.y.size(); ++i) sum += call.y[i] * call.dy[i];
  return sum;
}

TEST(Layers, GradientsAreThoseOfCentralDifferences) {
  for (const char* settings :
       {"flatten {}", "relu {}", "dropout { p: 0.3 }", "linear { out_features: 5 bias: true }",
        "linear { out_features: 3 bias: false }"}) {
    SCOPED_TRACE(settings);
    const proto::Layer config = Parse(settings);
    const Shape input = config.has_linear() ? Shape{7} : Shape{2, 3, 2};
    absl::StatusOr<std::unique_ptr<Layer>> layer = BuildLayer(config, input);
    RUBATO_ASSERT_OK(layer);
    const int64_t n = 3;
    constexpr uint64_t kSeed = 11;
    RandomStream stream(kSeed);
    // No value within the differences' reach of 0, where relu has no derivative.
    const auto draw = [&](int64_t count) {
      std::vector<double> values(count);
      for (double& value : values) {
        value = stream.Uniform(0.1f, 1) * (stream.Below(2) == 0 ? 1 : -1);
      }
      return values;
    };
    Call<double> call;
    int64_t parameters = 0;
    for (const proto::Parameter& p : (*layer)->parameters()) parameters += SizeOf(p.shape());
    call.parameters = draw(parameters);
    call.x = draw(n * SizeOf(input));
    call.dy = draw(n * SizeOf((*layer)->output_shape()));
    Compute(**layer, n, call);

    // All of these are linear in each operand alone, so that differences have rounding errors
    // only: of the sum's terms, over the step.
    const Reference reference(**layer, n, call);
    const double magnitude = Sum(**layer, n, reference.magnitudes);
    const double h = 0.01;
    const double tolerance = 20 * std::numeric_limits<double>::epsilon() * magnitude / h;
    ASSERT_LT(tolerance, 1e-9);
    const auto check = [&](std::vector<double> Call<double>::*operand,
                           const std::vector<double>& gradient, const char* what) {
      for (size_t i = 0; i < gradient.size(); ++i) {
        Call<double> up = call, down = call;
        (up.*operand)[i] += h;
        (down.*operand)[i] -= h;
        const double difference = (Sum(**layer, n, up) - Sum(**layer, n, down)) / (2 * h);
        ASSERT_NEAR(gradient[i], difference, tolerance) << what << "[" << i << "]";
      }
    };
    check(&Call<double>::x, call.dx, "dx");
    check(&Call<double>::parameters, call.dparameters, "dparameters");
  }
}

TEST(Layers, GradientsOfSmoothLayersAreThoseOfCentralDifferences) {
  for (const char* settings :
       {"gelu {}", "gelu { approximate: APPROXIMATE_TANH }", "tanh {}", "sigmoid {}"}) {
    SCOPED_TRACE(settings);
    absl::StatusOr<std::unique_ptr<Layer>> layer = BuildLayer(Parse(settings), {5, 7});
    RUBATO_ASSERT_OK(layer);
    RandomStream stream(12);
    Call<double> call;
    for (int i = 0; i < 3 * 35; ++i) {
      call.x.push_back(stream.Uniform(-4, 4));
      call.dy.push_back(stream.Uniform(-1, 1));
    }
    Compute(**layer, 3, call);
    for (size_t i = 0; i < call.x.size(); ++i) {
      const auto difference = [&](double h) {
        Call<double> up = call, down = call;
        up.x[i] += h;
        down.x[i] -= h;
        Compute(**layer, 3, up);
        Compute(**layer, 3, down);
        return call.dy[i] * (up.y[i] - down.y[i]) / (2 * h);
      };
      // Richardson's: what is left is of the fourth order in h, and roundings over h.
      const double h = 1e-3;
      ASSERT_NEAR(call.dx[i], (4 * difference(h) - difference(2 * h)) / 3, 1e-11)
          << "at " << call.x[i];
    }
  }
}

TEST(Layers, DropoutDrawsByItsKeyAndOnlyInTraining) {
  absl::StatusOr<std::unique_ptr<Layer>> layer = BuildLayer(Parse("dropout { p: 0.25 }"), {500});
  RUBATO_ASSERT_OK(layer);
  RandomStream stream(13);
  std::vector<float> x(1000);
  for (float& value : x) value = stream.Uniform(1, 2);
  const auto run = [&](bool training, uint64_t key, bool backward) {
    LayerContext context;
    context.training = training;
    context.key = &key;
    std::vector<float> y(x.size(), 77);
    const ConstTensorRef xs = ConstTensorRef(x).Reshaped({2, 500});
    const TensorRef ys = TensorRef(y).Reshaped({2, 500});
    if (backward) {
      (*layer)->Backward(context, {}, xs, xs, xs, ys, {});
    } else {
      (*layer)->Forward(context, {}, xs, ys);
    }
    return y;
  };
  const std::vector<float> y = run(true, 1, false);
  int kept = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    if (y[i] == 0) continue;
    ++kept;
    EXPECT_FLOAT_EQ(y[i], x[i] / 0.75f);
  }
  EXPECT_NEAR(kept, 750, 70);  // five standard deviations of a binomial
  EXPECT_EQ(run(true, 1, false), y);
  EXPECT_EQ(run(true, 1, true), y) << "Backward draws what Forward drew";
  EXPECT_NE(run(true, 2, false), y);
  EXPECT_EQ(run(false, 1, false), x);
  EXPECT_EQ(run(false, 1, true), x);
}

TEST(Layers, ADropoutOfEverythingIsRefused) {
  EXPECT_THAT(
      BuildLayer(Parse("dropout { p: 1 }"), {4}),
      IsError(absl::StatusCode::kInvalidArgument, "p: found 1; expected at least 0 and below 1"));
}

TEST(Layers, TheInputsGradientIsLeftOutWhereItIsNotAsked) {
  absl::StatusOr<std::unique_ptr<Layer>> layer = BuildLayer(Parse("linear {out_features: 1}"), {2});
  RUBATO_ASSERT_OK(layer);
  const std::vector<float> parameters = {1, 2, 3}, x = {4, 5}, y = {17}, dy = {2};
  std::vector<float> dparameters(3);
  (*layer)->Backward(LayerContext(), parameters, ConstTensorRef(x).Reshaped({1, 2}),
                     ConstTensorRef(y).Reshaped({1, 1}), ConstTensorRef(dy).Reshaped({1, 1}),
                     TensorRef(), dparameters);
  EXPECT_EQ(dparameters, (std::vector<float>{8, 10, 2}));
}

TEST(Layers, LinearIsDrawnAsPyTorchDraws) {
  absl::StatusOr<std::unique_ptr<Layer>> layer =
      BuildLayer(Parse("linear {out_features: 3}"), {16});
  RUBATO_ASSERT_OK(layer);
  ASSERT_EQ((*layer)->parameters().size(), 2u);
  for (const proto::Parameter& parameter : (*layer)->parameters()) {
    EXPECT_EQ(parameter.init().uniform_bound(), 0.25) << parameter.name();
  }
}

TEST(Layers, ALinearLayerTakesOneDimensionOnly) {
  EXPECT_THAT(
      BuildLayer(Parse("linear {out_features: 3}"), {1, 28, 28}),
      IsError(absl::StatusCode::kInvalidArgument,
              "input has shape (1, 28, 28); expected one dimension: put flatten before it"));
}

TEST(Layers, ALinearLayerNeedsFeatures) {
  EXPECT_THAT(BuildLayer(Parse("linear {out_features: 0}"), {4}),
              IsError(absl::StatusCode::kInvalidArgument, HasSubstr("out_features: found 0")));
}

TEST(Layers, ALayerWithoutKindIsRefused) {
  EXPECT_THAT(BuildLayer(proto::Layer(), {4}),
              IsError(absl::StatusCode::kInvalidArgument, "no kind of layer is given"));
}

}  // namespace
}  // namespace rubato
