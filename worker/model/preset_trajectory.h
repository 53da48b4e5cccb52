// Twenty steps of training of models by name, against PyTorch's in float64: for tests.
#ifndef RUBATO_WORKER_MODEL_PRESET_TRAJECTORY_H_
#define RUBATO_WORKER_MODEL_PRESET_TRAJECTORY_H_

#include <algorithm>
#include <cmath>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "common/job/completion.h"
#include "common/job/report.h"
#include "common/space/initialize.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "tests/golden.h"
#include "worker/model/model.h"

namespace rubato {

inline proto::Model ParseModel(const std::string& text) {
  proto::Model model;
  RUBATO_CHECK(google::protobuf::TextFormat::ParseFromString(text, &model));
  Report report;
  Complete(&model, &report);
  RUBATO_CHECK(report.ToStatus().ok());
  return model;
}

// Of resnet20 the golden file has no beginning, which is what seed 6 draws, and of the end all
// buffers and these.
inline bool IsKept(const std::string& model, const proto::Parameter& parameter) {
  static const char* const kKept[] = {"conv1.weight",
                                      "bn1.weight",
                                      "layer1.2.bn2.bias",
                                      "layer2.0.downsample.0.weight",
                                      "layer3.0.downsample.1.bias",
                                      "fc.weight",
                                      "fc.bias"};
  return model != "resnet20" || parameter.average() > 0 ||
         std::find(std::begin(kKept), std::end(kKept), parameter.name()) != std::end(kKept);
}

template <typename T>
std::vector<T> Read(const Golden& golden, const std::string& prefix,
                    const proto::Parameter& parameter) {
  EXPECT_EQ(golden.Shape(prefix + parameter.name()),
            std::vector<int64_t>(parameter.shape().begin(), parameter.shape().end()));
  return golden.Values<T>(prefix + parameter.name());
}

template <typename T>
std::vector<T> Begin(const Golden& golden, const proto::Layout& layout, const std::string& model) {
  std::vector<T> flat;
  for (const proto::Parameter& parameter : layout.parameters()) {
    std::vector<float> values(SizeOf(parameter.shape()));
    if (model == "resnet20") {
      InitializeRange(parameter, /*seed=*/6, 0, absl::MakeSpan(values));
    } else {
      values = Read<float>(golden, model + "/", parameter);
    }
    flat.insert(flat.end(), values.begin(), values.end());
  }
  return flat;
}

// The norm of the difference from PyTorch's end over the norm of that.
template <typename T>
double DifferenceAtTheEnd(const Golden& golden, const proto::Layout& layout,
                          const std::string& model, const std::vector<T>& parameters) {
  double squares = 0, difference = 0;
  auto value = parameters.begin();
  for (const proto::Parameter& parameter : layout.parameters()) {
    const int64_t size = SizeOf(parameter.shape());
    if (IsKept(model, parameter)) {
      const std::vector<float> end = Read<float>(golden, model + "/end/", parameter);
      for (int64_t i = 0; i < size; ++i) {
        squares += double{end[i]} * end[i];
        difference += (double{value[i]} - end[i]) * (double{value[i]} - end[i]);
      }
    }
    value += size;
  }
  return std::sqrt(difference / squares);
}

struct Tolerances {
  double loss, end;  // relative
};

// Sees the gradients of a trajectory's steps.
struct Watch {
  virtual ~Watch() = default;
  virtual void Before(size_t) {}
  virtual void After(size_t) {}
};

// Trains the model of tests/goldens/preset_trajectories.safetensors that is called `name`, which
// make(config, shape of an example, objective, batch) makes, on values of type T.
template <typename T, typename Make>
void ExpectPyTorchsTrajectory(const Golden& golden, const std::string& name, int micro_batches,
                              const Tolerances& tolerances, Make make, Watch* watch) {
  const std::vector<int64_t> shape = golden.Shape(name + "/features");
  const int64_t batches = shape[0], n = shape[1], part = n / micro_batches;
  const std::vector<int64_t> example(shape.begin() + 2, shape.end());
  const std::vector<T> features = golden.Values<T>(name + "/features");
  const std::vector<int32_t> labels = golden.Values<int32_t>(name + "/labels");
  const int64_t places = static_cast<int64_t>(labels.size()) / (batches * n);
  Objective objective = {*std::max_element(labels.begin(), labels.end()) + 1};
  objective.places = places;
  absl::StatusOr<std::unique_ptr<Model>> model =
      make(ParseModel(golden.metadata().at(name)), example, objective, part);
  ASSERT_TRUE(model.ok()) << model.status();
  const proto::Layout& layout = (*model)->layout();
  std::vector<T> parameters = Begin<T>(golden, layout, name);
  const T rate = golden.Values<T>(name + "/rate")[0];
  std::vector<T> gradient(parameters.size()), sum(parameters.size()), slot(parameters.size());
  const std::vector<double> losses = golden.Values<double>(name + "/losses");
  for (size_t step = 0; step < losses.size(); ++step) {
    const int64_t first = static_cast<int64_t>(step) % batches * n;
    double loss = 0;
    std::fill(sum.begin(), sum.end(), T(0));
    for (int i = 0; i < micro_batches; ++i) {
      const int64_t at = first + i * part, values = (*model)->example_size();
      const auto ready = [](int64_t) {};
      watch->Before(step);
      loss +=
          (*model)
              ->Gradient(parameters, absl::MakeSpan(features).subspan(at * values, part * values),
                         {absl::MakeSpan(labels).subspan(at * places, part * places), {}}, 0,
                         TensorRef(gradient), ready)
              .loss_sum;
      watch->After(step);
      for (size_t k = 0; k < sum.size(); ++k) sum[k] += gradient[k];
    }
    EXPECT_NEAR(loss / n, losses[step], tolerances.loss * losses[step]) << "step " << step;
    size_t k = 0;
    for (; static_cast<int64_t>(k) < (*model)->trainable_count(); ++k) {
      slot[k] = T(0.9) * slot[k] + sum[k] / static_cast<T>(n);
      parameters[k] -= rate * slot[k];
    }
    for (; k < sum.size(); ++k) {  // running statistics
      parameters[k] += T(0.1) * (sum[k] / static_cast<T>(n) - parameters[k]);
    }
  }
  EXPECT_LE(DifferenceAtTheEnd(golden, layout, name, parameters), tolerances.end);
}

}  // namespace rubato

#endif  // RUBATO_WORKER_MODEL_PRESET_TRAJECTORY_H_
