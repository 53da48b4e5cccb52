// Twenty steps of training, by the model's gradients and the server's optimizer, against PyTorch's
// in float64.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "common/base/kernels.h"
#include "common/base/status_matchers.h"
#include "common/job/completion.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "server/optimizers/parameter_groups.h"
#include "tests/golden.h"
#include "worker/model/model.h"

namespace rubato {
namespace {

template <typename Message>
Message Parse(const std::string& text) {
  Message message;
  RUBATO_CHECK(google::protobuf::TextFormat::ParseFromString(text, &message));
  return message;
}

struct ModelCase {
  const char* name;
  Objective objective;
  const char* layers;
};
const ModelCase kModels[] = {
    {"linear", {10}, "layers { linear { out_features: 10 } }"},
    {"mlp",
     {10},
     "layers { linear { out_features: 24 } } layers { relu {} }"
     "layers { linear { out_features: 10 } }"},
    {"gelu",
     {10},
     "layers { linear { out_features: 24 } } layers { gelu {} }"
     "layers { linear { out_features: 10 } }"},
    {"tanh_mse",
     {3, proto::Loss::NAME_MSE},
     "layers { linear { out_features: 24 } } layers { tanh {} }"
     "layers { linear { out_features: 3 } }"},
    {"deep_mse",
     {3, proto::Loss::NAME_MSE},
     "layers { linear { out_features: 24 } } layers { gelu { approximate: APPROXIMATE_TANH } }"
     "layers { linear { out_features: 24 } } layers { sigmoid {} }"
     "layers { linear { out_features: 3 } }"},
};

// The parameters PREFIX + name of a layout, in its order: the flat vector.
template <typename T>
std::vector<T> Flat(const Golden& golden, const proto::Layout& layout, const std::string& prefix) {
  std::vector<T> flat;
  for (const proto::Parameter& parameter : layout.parameters()) {
    const std::vector<T> values = golden.Values<T>(prefix + parameter.name());
    flat.insert(flat.end(), values.begin(), values.end());
  }
  return flat;
}

struct Batch {
  absl::Span<const float> features;
  Targets targets;
};

// The first `samples` of a batch, which keeps the rest.
Batch TakeFirst(Batch& batch, int64_t samples, int64_t width, const Objective& objective) {
  const auto take = [](auto& span, int64_t count) {
    const auto first = span.first(count);
    span.remove_prefix(count);
    return first;
  };
  Batch first;
  first.features = take(batch.features, samples * width);
  if (IsClassification(objective.loss)) {
    first.targets.labels = take(batch.targets.labels, samples);
  } else {
    first.targets.values = take(batch.targets.values, samples * objective.outputs);
  }
  return first;
}

// The loss and gradient of a batch, summed over its micro-batches, the given numbers of samples.
double SumOverMicroBatches(Model& model, const Objective& objective,
                           absl::Span<const float> parameters, Batch batch,
                           absl::Span<const int> micro_batches, absl::Span<float> sum) {
  double loss = 0;
  std::fill(sum.begin(), sum.end(), 0.0f);
  std::vector<float> gradient(sum.size());
  for (int samples : micro_batches) {
    const Batch part = TakeFirst(batch, samples, model.example_size(), objective);
    loss += model
                .Gradient(parameters, part.features, part.targets, /*key=*/0, TensorRef(gradient),
                          [](int64_t) {})
                .loss_sum;
    Add(sum.data(), gradient.data(), sum.data(), sum.size());
  }
  RUBATO_CHECK(batch.features.empty());
  return loss;
}

double Norm(const std::vector<double>& values) {
  return std::sqrt(std::inner_product(values.begin(), values.end(), values.begin(), 0.0));
}

// Trains MODEL/VARIANT of the golden file with every step cut into the given micro-batches.
void ExpectPyTorchsTrajectory(const Golden& golden, const ModelCase& model_case,
                              const std::string& variant, const std::vector<int>& micro_batches) {
  const std::string model_name = model_case.name;
  const Objective& objective = model_case.objective;
  const std::vector<float> features = golden.Values<float>("features");
  const std::vector<int32_t> labels = golden.Values<int32_t>("labels");
  const std::vector<float> values =
      IsClassification(objective.loss) ? std::vector<float>() : golden.Values<float>("values");
  const std::vector<int64_t> shape = golden.Shape("features");
  const int64_t batches = shape[0], samples = shape[1], width = shape[2];
  auto model =
      Model::Create(Parse<proto::Model>(model_case.layers), {width}, objective, micro_batches[0]);
  RUBATO_ASSERT_OK(model);
  auto config = Parse<proto::Optimizer>(golden.metadata().at(variant));
  Report report;
  Complete(&config, &report);
  const proto::Layout& layout = (*model)->layout();
  absl::StatusOr<Optimizer> optimizer = Optimizer::Create(config);
  RUBATO_ASSERT_OK(optimizer);
  absl::StatusOr<ParameterGroups> groups = ParameterGroups::Create(config, layout);
  RUBATO_ASSERT_OK(groups);

  std::vector<float> parameters = Flat<float>(golden, layout, model_name + "/");
  ASSERT_EQ(static_cast<int64_t>(parameters.size()), (*model)->parameter_count());
  std::vector<float> sum(parameters.size());
  std::vector<std::vector<float>> slots(optimizer->slots().size(), sum);
  const std::vector<absl::Span<float>> slot_spans(slots.begin(), slots.end());
  const std::string prefix = model_name + "/" + variant + "/";
  const std::vector<double> losses = golden.Values<double>(prefix + "losses");
  ASSERT_EQ(losses.size(), 20u);
  for (size_t step = 0; step < losses.size(); ++step) {
    const int64_t begin = step % batches * samples;
    Batch batch = {absl::MakeSpan(features).subspan(begin * width, samples * width), {}};
    if (IsClassification(objective.loss)) {
      batch.targets.labels = absl::MakeSpan(labels).subspan(begin, samples);
    } else {
      batch.targets.values =
          absl::MakeSpan(values).subspan(begin * objective.outputs, samples * objective.outputs);
    }
    const double loss = SumOverMicroBatches(**model, objective, parameters, batch, micro_batches,
                                            absl::MakeSpan(sum));
    EXPECT_NEAR(loss / samples, losses[step], 1e-5 * losses[step]) << "step " << step;
    const auto rate_of = [](double rate) { return static_cast<float>(rate); };
    GroupUpdate update{rate_of};
    update.scale = update.mean_scale = 1.0f / samples;
    update.count = step;
    groups->Apply({0, (*model)->parameter_count()}, update,
                  {parameters, sum, slot_spans, absl::MakeSpan(parameters)});
  }
  // Measured: 0.7e-7 to 1.8e-7.
  const std::vector<double> end = Flat<double>(golden, layout, prefix);
  std::vector<double> difference(end.size());
  for (size_t i = 0; i < end.size(); ++i) difference[i] = parameters[i] - end[i];
  EXPECT_LE(Norm(difference), 1e-6 * Norm(end));
}

TEST(Trajectory, FollowsPyTorch) {
  const Golden golden("trajectories.safetensors");
  ASSERT_EQ(golden.metadata().size(), 4u);
  for (const ModelCase& model_case : kModels) {
    for (const auto& [variant, settings] : golden.metadata()) {
      for (const auto& micro_batches :
           std::vector<std::vector<int>>{{16}, {4, 4, 4, 4}, {6, 5, 5}}) {
        SCOPED_TRACE(absl::StrCat(model_case.name, ", ", variant, " (", settings,
                                  "), micro-batches: ", absl::StrJoin(micro_batches, " + ")));
        ExpectPyTorchsTrajectory(golden, model_case, variant, micro_batches);
      }
    }
  }
}

// The running statistics are the sample-weighted mean of the micro-batches'.
TEST(Trajectory, OfBatchNormOverUnequalMicroBatchesFollowsPyTorch) {
  const Golden golden("trajectories.safetensors");
  const ModelCase model = {"batch_norm",
                           {10},
                           "layers { linear { out_features: 24 } } layers { batch_norm {} } "
                           "layers { tanh {} } layers { linear { out_features: 10 } }"};
  ExpectPyTorchsTrajectory(golden, model, "momentum", {11, 5});
}

TEST(Trajectory, OfEveryOptimizerFollowsPyTorch) {
  const Golden golden("optimizer_trajectories.safetensors");
  constexpr absl::string_view kModel = "model/";
  int cases = 0;
  for (const auto& [key, layers] : golden.metadata()) {
    if (!absl::StartsWith(key, kModel)) continue;
    const std::string model_name = key.substr(kModel.size());
    for (const auto& [variant, settings] : golden.metadata()) {
      if (absl::StartsWith(variant, kModel)) continue;
      SCOPED_TRACE(absl::StrCat(model_name, ", ", variant, " (", settings, ")"));
      ++cases;
      const Objective objective =
          absl::EndsWith(model_name, "_mse") ? Objective{3, proto::Loss::NAME_MSE} : Objective{10};
      ExpectPyTorchsTrajectory(golden, {model_name.c_str(), objective, layers.c_str()}, variant,
                               {4, 4, 4, 4});
    }
  }
  EXPECT_EQ(cases, 6 * 9);
}

}  // namespace
}  // namespace rubato
