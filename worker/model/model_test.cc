#include "worker/model/model.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <new>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/random.h"
#include "common/base/status_matchers.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"

namespace {
int allocations = 0;
}  // namespace

// Counts this program's allocations. Not inlined: GCC would take malloc and delete for a mismatch.
__attribute__((noinline)) void* operator new(size_t size) {
  ++allocations;
  void* memory = std::malloc(size);
  if (memory == nullptr) std::abort();
  return memory;
}
__attribute__((noinline)) void operator delete(void* memory) noexcept { std::free(memory); }
__attribute__((noinline)) void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace rubato {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

proto::Model Parse(const std::string& text) {
  proto::Model model;
  RUBATO_CHECK(google::protobuf::TextFormat::ParseFromString(text, &model));
  return model;
}

// Of examples (2, 3), 3 classes.
proto::Model Mlp() {
  return Parse(
      "layers { flatten {} } layers { linear { out_features: 5 } } layers { relu {} }"
      "layers { linear { out_features: 4 bias: false } } layers { relu {} }"
      "layers { linear { out_features: 3 } }");
}

template <typename T>
std::vector<T> Draw(int64_t n, uint64_t key) {
  RandomStream stream(key);
  std::vector<T> values(n);
  for (T& value : values) value = stream.Uniform(-1, 1);
  return values;
}

constexpr auto kIgnore = [](int64_t) {};

TEST(Model, ParametersAreNamedAsInASequential) {
  absl::StatusOr<proto::Layout> layout = LayoutOf(Mlp(), {2, 3}, {3});
  RUBATO_ASSERT_OK(layout);
  std::vector<std::string> found;
  for (const proto::Parameter& parameter : layout->parameters()) {
    found.push_back(parameter.name() + " " + ShapeText(parameter.shape()));
  }
  EXPECT_THAT(found, ElementsAre("1.weight (5, 6)", "1.bias (5,)", "3.weight (4, 5)",
                                 "5.weight (3, 4)", "5.bias (3,)"));
  auto model = Model::Create(Mlp(), {2, 3}, {3}, 8);
  RUBATO_ASSERT_OK(model);
  EXPECT_EQ((*model)->layout().SerializeAsString(), layout->SerializeAsString());
  EXPECT_EQ((*model)->parameter_count(), 30 + 5 + 20 + 12 + 3);
}

TEST(Model, ALayerThatDoesNotFitIsNamed) {
  const auto error = [](const std::string& layers, absl::Span<const int64_t> shape) {
    return std::string(LayoutOf(Parse(layers), shape, {10}).status().message());
  };
  EXPECT_EQ(error("layers { linear { out_features: 10 } }", {1, 28, 28}),
            "model.layers[0] (linear): input has shape (1, 28, 28); expected one dimension: put "
            "flatten before it");
  EXPECT_EQ(error("layers { flatten {} } layers { linear { out_features: 5 } }", {1, 28, 28}),
            "model.layers[1] (linear): the last layer gives 5 values; the data has 10 classes");
  EXPECT_EQ(error("layers { flatten {} } layers {}", {4}),
            "model.layers[1]: no kind of layer is given");
  EXPECT_EQ(error("layers { flatten {} } layers { relu {} }", {20}),
            "model.layers: no layer has parameters; nothing to train");
  EXPECT_EQ(error("", {20}), "model.layers: no layer has parameters; nothing to train");
  EXPECT_EQ(LayoutOf(Parse(""), {20}, {10}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Model::Create(Parse("layers { linear { out_features: 5 } }"), {20}, {10}, 1),
              IsError(absl::StatusCode::kInvalidArgument, HasSubstr("the data has 10 classes")));
}

TEST(Model, AnEmbeddingHasARowForEverySymbolOfTheData) {
  const auto error = [](const std::string& layers, int64_t symbols) {
    Objective objective{40};
    objective.places = 16;
    objective.symbols = symbols;
    return std::string(LayoutOf(Parse(layers), {16}, objective).status().message());
  };
  const std::string embedding = "layers { embedding { embedding_dim: 8 num_embeddings: 10 } } ";
  const std::string head = "layers { linear { out_features: 40 } }";
  EXPECT_EQ(error(embedding + head, 10), "");
  EXPECT_EQ(error(embedding + head, 40),
            "model.layers[0] (embedding): num_embeddings: found 10, expected at least 40: the "
            "data's values are numbers from 0 to 39, of a text its characters");
  EXPECT_EQ(error(embedding + head, 0),
            "model.layers[0] (embedding): found data whose values are not all whole numbers from 0 "
            "on, expected such: each takes a row");
  EXPECT_EQ(error("layers { flatten {} } " + embedding + head, 10), "");
  EXPECT_EQ(error("layers { relu {} } " + embedding + head, 10),
            "model.layers[1] (embedding): found a layer before it, expected none but flatten: it "
            "takes whole numbers of the data");
}

TEST(Model, GradientIsThatOfCentralDifferences) {
  // Of the examples drawn here, no preactivation comes near the kink of relu: the check below of
  // the tolerance would fail.
  const int64_t n = 4;
  auto model = Model::Create(Mlp(), {2, 3}, {3}, n, DType::kFloat64);
  RUBATO_ASSERT_OK(model);
  const std::vector<double> features = Draw<double>(n * 6, 21);
  const std::vector<int32_t> labels = {0, 2, 1, 2};
  std::vector<double> parameters = Draw<double>((*model)->parameter_count(), 22);
  std::vector<double> gradient(parameters.size(), 77);
  const BatchResult result =
      (*model)->Gradient(parameters, features, {labels}, /*key=*/0, TensorRef(gradient), kIgnore);
  EXPECT_EQ(result.samples, n);

  double greatest = 0;
  for (double g : gradient) greatest = std::max(greatest, std::abs(g));
  const auto loss_at = [&](size_t i, double value) {
    const double kept = std::exchange(parameters[i], value);
    const double loss = (*model)->Evaluate(parameters, features, {labels}).loss_sum;
    parameters[i] = kept;
    return loss;
  };
  for (size_t i = 0; i < parameters.size(); ++i) {
    const auto difference = [&](double h) {
      return (loss_at(i, parameters[i] + h) - loss_at(i, parameters[i] - h)) / (2 * h);
    };
    // The error of a difference is a rounding of the loss over h, and a term in h^2, of which
    // that of the double step has three times more besides its own.
    const double h = 1e-4;
    const double near = difference(h), far = difference(2 * h);
    const double rounding =
        50 * std::numeric_limits<double>::epsilon() * std::max(1.0, result.loss_sum) / h;
    const double tolerance = std::abs(far - near) + rounding;
    ASSERT_LT(tolerance, 1e-6 * greatest) << "parameter " << i;
    EXPECT_NEAR(gradient[i], near, tolerance) << "parameter " << i;
  }
}

TEST(Model, GradientOfSquaredErrorIsThatOfCentralDifferences) {
  const int64_t n = 4;
  auto model =
      Model::Create(Parse("layers { flatten {} } layers { linear { out_features: 5 } }"
                          "layers { tanh {} } layers { dropout { p: 0 } } layers { gelu {} }"
                          "layers { linear { out_features: 3 } } layers { sigmoid {} }"),
                    {2, 3}, {3, proto::Loss::NAME_MSE}, n, DType::kFloat64);
  RUBATO_ASSERT_OK(model);
  const std::vector<double> features = Draw<double>(n * 6, 21);
  const std::vector<float> values = Draw<float>(n * 3, 23);
  std::vector<double> parameters = Draw<double>((*model)->parameter_count(), 22);
  std::vector<double> gradient(parameters.size(), 77);
  const BatchResult result =
      (*model)->Gradient(parameters, features, {{}, values}, 0, TensorRef(gradient), kIgnore);
  EXPECT_EQ(result.samples, n);
  EXPECT_EQ(result.correct, 0);
  const auto loss_at = [&](size_t i, double value) {
    const double kept = std::exchange(parameters[i], value);
    const double loss = (*model)->Evaluate(parameters, features, {{}, values}).loss_sum;
    parameters[i] = kept;
    return loss;
  };
  for (size_t i = 0; i < parameters.size(); ++i) {
    const auto difference = [&](double h) {
      return (loss_at(i, parameters[i] + h) - loss_at(i, parameters[i] - h)) / (2 * h);
    };
    // Richardson's: errors of the fourth order in h, and roundings over h.
    EXPECT_NEAR(gradient[i], (4 * difference(1e-3) - difference(2e-3)) / 3, 1e-10)
        << "parameter " << i;
  }
}

TEST(Model, SquaredErrorWantsAsManyOutputsAsTargets) {
  const auto error = [](const std::string& layers, int64_t values) {
    return std::string(
        LayoutOf(Parse(layers), {4}, {values, proto::Loss::NAME_MSE}).status().message());
  };
  EXPECT_EQ(error("layers { linear { out_features: 3 } }", 1),
            "model.layers[0] (linear): the last layer gives 3 values; the data has 1 target value");
  EXPECT_EQ(error("layers { linear { out_features: 1 } }", 2),
            "model.layers[0] (linear): the last layer gives 1 value; the data has 2 target values");
}

TEST(Model, DropoutIsNothingInEvaluation) {
  const auto create = [](const std::string& dropout) {
    return Model::Create(Parse(absl::StrCat("layers { flatten {} } ", dropout,
                                            "layers { linear { out_features: 5 } }", dropout,
                                            "layers { linear { out_features: 3 } }")),
                         {2, 3}, {3}, 4);
  };
  auto with = create("layers { dropout {} }"), without = create("");
  RUBATO_ASSERT_OK(with);
  RUBATO_ASSERT_OK(without);
  const std::vector<float> parameters = Draw<float>((*with)->parameter_count(), 1);
  const std::vector<float> features = Draw<float>(4 * 6, 2);
  const std::vector<int32_t> labels = {0, 1, 2, 0};
  std::vector<float> gradient(parameters.size());
  const double trained =
      (*with)->Gradient(parameters, features, {labels}, 1, TensorRef(gradient), kIgnore).loss_sum;
  const BatchResult expected = (*without)->Evaluate(parameters, features, {labels});
  EXPECT_NE(trained, expected.loss_sum);
  for (int repeat = 0; repeat < 2; ++repeat) {
    const BatchResult found = (*with)->Evaluate(parameters, features, {labels});
    EXPECT_EQ(found.loss_sum, expected.loss_sum);
    EXPECT_EQ(found.correct, expected.correct);
  }
  const auto values = [&](Model& model) {
    const auto logits = model.Logits(parameters, features).values<float>();
    return std::vector<float>(logits.begin(), logits.end());
  };
  EXPECT_EQ(values(**with), values(**without));
}

TEST(Model, LayersDrawApart) {
  // The gradient by a weight is 0 where its input was dropped, by either layer.
  constexpr int64_t kWidth = 4000;
  auto model = Model::Create(Parse("layers { dropout {} } layers { dropout {} }"
                                   "layers { linear { out_features: 1 bias: false } }"),
                             {kWidth}, {1, proto::Loss::NAME_MSE}, 1);
  RUBATO_ASSERT_OK(model);
  const std::vector<float> ones(kWidth, 1), target = {-1};
  std::vector<float> gradient(kWidth);
  (*model)->Gradient(ones, ones, {{}, target}, /*key=*/5, TensorRef(gradient), kIgnore);
  const int64_t kept = kWidth - std::count(gradient.begin(), gradient.end(), 0.0f);
  EXPECT_NEAR(kept, kWidth / 4, 5 * std::sqrt(kWidth * 0.25 * 0.75));
}

TEST(Model, GradientIsReadyFromTheLastLayerToTheFirst) {
  auto model = Model::Create(Mlp(), {2, 3}, {3}, 4);
  RUBATO_ASSERT_OK(model);
  const std::vector<float> parameters = Draw<float>((*model)->parameter_count(), 1);
  const std::vector<float> features = Draw<float>(4 * 6, 2);
  std::vector<float> expected(parameters.size());
  (*model)->Gradient(parameters, features, {{0, 1, 2, 0}}, /*key=*/0, TensorRef(expected), kIgnore);

  // What has been said to be ready is final, and can be used and destroyed.
  std::vector<float> gradient(parameters.size(), 77), taken(parameters.size());
  std::vector<int64_t> begins;
  int64_t end = parameters.size();
  (*model)->Gradient(parameters, features, {{0, 1, 2, 0}}, /*key=*/0, TensorRef(gradient),
                     [&](int64_t begin) {
                       begins.push_back(begin);
                       for (int64_t i = begin; i < end; ++i)
                         taken[i] = std::exchange(gradient[i], 1e30f);
                       end = begin;
                     });
  EXPECT_THAT(begins, ElementsAre(55, 35, 0));
  EXPECT_EQ(taken, expected);
}

TEST(Model, ASmallerBatchLeavesNothingOfALargerOne) {
  auto used = Model::Create(Mlp(), {2, 3}, {3}, 4), fresh = Model::Create(Mlp(), {2, 3}, {3}, 1);
  RUBATO_ASSERT_OK(used);
  RUBATO_ASSERT_OK(fresh);
  const std::vector<float> parameters = Draw<float>((*used)->parameter_count(), 1);
  const std::vector<float> features = Draw<float>(4 * 6, 2), one = Draw<float>(6, 3);
  std::vector<float> gradient(parameters.size()), expected(parameters.size());
  (*used)->Gradient(parameters, features, {{0, 1, 2, 0}}, /*key=*/0, TensorRef(gradient), kIgnore);
  const BatchResult a =
      (*used)->Gradient(parameters, one, {{1}}, /*key=*/0, TensorRef(gradient), kIgnore);
  const BatchResult b =
      (*fresh)->Gradient(parameters, one, {{1}}, /*key=*/0, TensorRef(expected), kIgnore);
  EXPECT_EQ(a.loss_sum, b.loss_sum);
  EXPECT_EQ(gradient, expected);
}

TEST(Model, EvaluateAndGradientSeeTheSameLoss) {
  auto model = Model::Create(Mlp(), {2, 3}, {3}, 4);
  RUBATO_ASSERT_OK(model);
  const std::vector<float> parameters = Draw<float>((*model)->parameter_count(), 1);
  const std::vector<float> features = Draw<float>(4 * 6, 2);
  std::vector<float> gradient(parameters.size());
  const BatchResult trained = (*model)->Gradient(parameters, features, {{0, 1, 2, 0}}, /*key=*/0,
                                                 TensorRef(gradient), kIgnore);
  const BatchResult evaluated = (*model)->Evaluate(parameters, features, {{0, 1, 2, 0}});
  EXPECT_EQ(trained.loss_sum, evaluated.loss_sum);
  EXPECT_EQ(trained.correct, evaluated.correct);
  EXPECT_EQ((*model)->Logits(parameters, features).shape(), (Shape{4, 3}));
}

TEST(Model, AStepAllocatesNothing) {
  auto model = Model::Create(Parse("layers { flatten {} } layers { linear { out_features: 5 } }"
                                   "layers { gelu {} } layers { dropout {} }"
                                   "layers { linear { out_features: 3 } }"),
                             {2, 3}, {3}, 4);
  RUBATO_ASSERT_OK(model);
  const std::vector<float> parameters = Draw<float>((*model)->parameter_count(), 1);
  const std::vector<float> features = Draw<float>(4 * 6, 2);
  std::vector<float> gradient(parameters.size());
  const int before = allocations;
  (*model)->Gradient(parameters, features, {{0, 1, 2, 0}}, /*key=*/0, TensorRef(gradient), kIgnore);
  (*model)->Evaluate(parameters, features, {{0, 1, 2, 0}});
  EXPECT_EQ(allocations, before);
}

}  // namespace
}  // namespace rubato
