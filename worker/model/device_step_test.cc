// Steps on a device: all of a GPU's own kernels, transfers and orders, by its emulation on the CPU,
// and on a real one where there is one.
#include "worker/model/device_step.h"

#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/random.h"
#include "common/base/status.h"
#include "common/base/status_matchers.h"
#include "common/space/initialize.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tensor/cuda/tested_gpu.h"
#include "tests/golden.h"
#include "worker/model/model.h"
#include "worker/model/pages.h"
#include "worker/model/preset_trajectory.h"

namespace rubato {
namespace {

using ::testing::HasSubstr;

constexpr auto kIgnore = [](int64_t) {};

void SkipIfAbsent(TestedGpu gpu) {
  const std::string absent = WhyAbsent(gpu);
  if (!absent.empty()) GTEST_SKIP() << absent;
}

absl::StatusOr<std::unique_ptr<Model>> OnGpu(TestedGpu gpu, const proto::Model& model,
                                             const std::vector<int64_t>& example,
                                             const Objective& objective, int64_t batch, DType dtype,
                                             const EmulatedDeviceOptions& options = {},
                                             Purpose purpose = Purpose::kTraining) {
  RUBATO_ASSIGN_OR_RETURN(std::unique_ptr<Device> device, OpenTested(gpu, options));
  return Model::Create(model, example, objective, batch, dtype, purpose, std::move(device));
}

template <typename T>
void Follow(TestedGpu gpu, const std::string& name, int micro_batches, const Tolerances& tolerances,
            uint64_t seed) {
  const Golden golden("preset_trajectories.safetensors");
  const auto make = [&](const proto::Model& model, const std::vector<int64_t>& example,
                        const Objective& objective, int64_t batch) {
    EmulatedDeviceOptions options;
    options.seed = seed;
    options.columns = 40000;  // convolutions take some examples at a time
    return OnGpu(gpu, model, example, objective, batch, DTypeOf<T>(), options);
  };
  Watch watch;
  ExpectPyTorchsTrajectory<T>(golden, name, micro_batches, tolerances, make, &watch);
}

class Trajectories : public ::testing::TestWithParam<std::tuple<TestedGpu, const char*>> {
 protected:
  void SetUp() override { SkipIfAbsent(gpu_); }

  const TestedGpu gpu_ = std::get<0>(GetParam());
  const std::string name_ = std::get<1>(GetParam());
};

// Tolerances as on the CPU.
TEST_P(Trajectories, FollowPyTorchInFloat32) {
  const bool jumps = name_ == "resnet20";
  Follow<float>(gpu_, name_, 1, jumps ? Tolerances{1e-4, 1e-4} : Tolerances{1e-5, 2e-6}, 2);
}

// Not of resnet20: its batch norms' statistics are those of the micro-batch.
TEST_P(Trajectories, FollowPyTorchByMicroBatches) {
  if (name_ == "resnet20") return;
  Follow<float>(gpu_, name_, 2, {1e-5, 2e-6}, 3);
}

std::string NameOfModel(const ::testing::TestParamInfo<Trajectories::ParamType>& info) {
  return std::get<1>(info.param);
}

const auto kModels = ::testing::Values("char_gpt", "cnn", "lenet", "resnet20");

INSTANTIATE_TEST_SUITE_P(EmulatedGpu, Trajectories,
                         ::testing::Combine(::testing::Values(TestedGpu::kEmulated), kModels),
                         NameOfModel);
INSTANTIATE_TEST_SUITE_P(Gpu, Trajectories,
                         ::testing::Combine(::testing::Values(TestedGpu::kReal), kModels),
                         NameOfModel);

// float64 is the emulated one's alone.
TEST(ExactTrajectories, FollowPyTorch) {
  for (const char* name : {"char_gpt", "cnn", "lenet", "resnet20"}) {
    SCOPED_TRACE(name);
    Follow<double>(TestedGpu::kEmulated, name, 1, {1e-9, 6e-8}, 1);
  }
  for (const char* name : {"char_gpt", "cnn", "lenet"}) {
    SCOPED_TRACE(name);
    Follow<double>(TestedGpu::kEmulated, name, 2, {1e-9, 6e-8}, 3);
  }
}

struct Problem {
  proto::Model model;
  std::vector<int64_t> example;
  Objective objective;
  std::vector<float> features, parameters;
  std::vector<int32_t> labels;
};

// An MLP with dropout, of `n` random examples.
Problem Mlp(int64_t n, int64_t width = 300) {
  Problem p;
  p.model = ParseModel(absl::StrCat("layers { linear { out_features: ", width,
                                    " } } layers { relu {} }", "layers { dropout { p: 0.5 } }",
                                    "layers { linear { out_features: ", width, " } }",
                                    "layers { gelu {} } layers { linear { out_features: 5 } }"));
  p.example = {20};
  p.objective = {5};
  RandomStream stream(3);
  for (int64_t i = 0; i < n * 20; ++i) p.features.push_back(stream.Uniform(-1, 1));
  for (int64_t i = 0; i < n; ++i) p.labels.push_back(static_cast<int32_t>(stream.Below(5)));
  const int64_t parameters = 20 * width + width + width * width + width + width * 5 + 5;
  const float bound = 1 / std::sqrt(static_cast<float>(width));
  for (int64_t i = 0; i < parameters; ++i) p.parameters.push_back(stream.Uniform(-bound, bound));
  return p;
}

class DeviceStepTest : public ::testing::TestWithParam<TestedGpu> {
 protected:
  void SetUp() override { SkipIfAbsent(GetParam()); }

  static absl::StatusOr<std::unique_ptr<Model>> OnDevice(const Problem& p, int64_t n, DType dtype) {
    return OnGpu(GetParam(), p.model, p.example, p.objective, n, dtype);
  }
};

INSTANTIATE_TEST_SUITE_P(EmulatedGpu, DeviceStepTest, ::testing::Values(TestedGpu::kEmulated));
INSTANTIATE_TEST_SUITE_P(Gpu, DeviceStepTest, ::testing::Values(TestedGpu::kReal));

// Keys, parameters and batches change from step to step, while a recording is the same.
TEST_P(DeviceStepTest, ARecordingReadsEachStepsOwnInputs) {
  const int64_t n = 8;
  const Problem p = Mlp(n);
  auto reference = Model::Create(p.model, p.example, p.objective, n);
  auto model = OnDevice(p, n, DType::kFloat32);
  RUBATO_ASSERT_OK(reference);
  RUBATO_ASSERT_OK(model);
  std::vector<float> parameters = p.parameters, features = p.features;
  std::vector<int32_t> labels = p.labels;
  for (uint64_t step = 0; step < 6; ++step) {
    // Sizes of batches take turns, so that each is recorded.
    const int64_t count = step % 2 == 0 ? n : n - 3;
    const auto run = [&](Model& m, std::vector<float>* gradient) {
      gradient->assign(parameters.size(), 77);
      return m.Gradient(parameters, absl::MakeSpan(features).first(count * 20),
                        {absl::MakeSpan(labels).first(count), {}}, /*key=*/step,
                        TensorRef(*gradient), kIgnore);
    };
    std::vector<float> expected, found;
    const BatchResult e = run(**reference, &expected), f = run(**model, &found);
    EXPECT_NEAR(f.loss_sum, e.loss_sum, 1e-5 * e.loss_sum);
    EXPECT_EQ(f.correct, e.correct);
    EXPECT_EQ(f.judged, e.judged);
    EXPECT_EQ(f.samples, count);
    EXPECT_EQ(f.told, count);
    for (size_t i = 0; i < found.size(); ++i) ASSERT_NEAR(found[i], expected[i], 2e-5) << i;
    for (size_t i = 0; i < parameters.size(); ++i) parameters[i] -= 0.01f * expected[i];
    for (float& value : features) value = -value;
    for (int32_t& label : labels) label = (label + 1) % 5;
  }
}

TEST_P(DeviceStepTest, PartsOfTheGradientLeaveLastOnesFirstAndAreFinal) {
  const Problem p = Mlp(4, 400);  // more than one part
  auto model = OnDevice(p, 4, DType::kFloat32);
  RUBATO_ASSERT_OK(model);
  std::vector<float> whole(p.parameters.size());
  for (int run = 0; run < 3; ++run) {
    std::vector<float> gradient(p.parameters.size(), 77);
    std::vector<int64_t> begins;
    (*model)->Gradient(
        p.parameters, p.features, {p.labels, {}}, 1, TensorRef(gradient), [&](int64_t begin) {
          if (begin > 0) {
            EXPECT_EQ(gradient[begin - 1], 77);
          }
          if (run > 0) {
            EXPECT_TRUE(
                std::equal(gradient.begin() + begin, gradient.end(), whole.begin() + begin));
          }
          begins.push_back(begin);
        });
    EXPECT_GE(begins.size(), 2u);
    EXPECT_TRUE(std::is_sorted(begins.rbegin(), begins.rend()));
    EXPECT_EQ(begins.back(), 0);
    whole = gradient;
  }
}

TEST_P(DeviceStepTest, ParametersAreSentWhenTheyAreNew) {
  const Problem p = Mlp(4);
  auto model = OnDevice(p, 4, DType::kFloat32);
  RUBATO_ASSERT_OK(model);
  std::vector<float> parameters = p.parameters;
  const auto loss = [&] {
    return (*model)->Evaluate(parameters, p.features, {p.labels, {}}).loss_sum;
  };
  const double first = loss();
  parameters[0] += 1;
  const double second = loss();
  EXPECT_NE(second, first) << "sent each time as long as nothing is said";
  (*model)->OnNewParameters();
  EXPECT_EQ(loss(), second);
  parameters[0] += 1;
  EXPECT_EQ(loss(), second);
  (*model)->OnNewParameters();
  EXPECT_NE(loss(), second);
}

// While parameters arrive, each part crosses when it is there; and nothing is left of a call that
// was told not to wait, at whichever part: of a step as it comes, as it is recorded, and of the
// recording.
TEST_P(DeviceStepTest, WaitsForParametersPartByPart) {
  const Problem p = Mlp(4, 400);
  auto whole = OnDevice(p, 4, DType::kFloat32), model = OnDevice(p, 4, DType::kFloat32);
  RUBATO_ASSERT_OK(whole);
  RUBATO_ASSERT_OK(model);
  std::vector<float> expected(p.parameters.size()), gradient(p.parameters.size());
  const double loss =
      (*whole)
          ->Gradient(p.parameters, p.features, {p.labels, {}}, 1, TensorRef(expected), kIgnore)
          .loss_sum;
  for (int step = 0; step < 3; ++step) {
    std::optional<BatchResult> result;
    for (int64_t last = 1; !result.has_value(); ++last) {
      std::vector<float> arriving(p.parameters.size(), NAN);
      int64_t there = 0, asked = 0;
      const auto arrive = [&](Range values) {
        EXPECT_EQ(values.begin, there) << "first ones first";
        std::copy(p.parameters.begin() + values.begin, p.parameters.begin() + values.end,
                  arriving.begin() + values.begin);
        there = values.end;
        return ++asked != last;
      };
      (*model)->OnNewParameters();
      result = (*model)->Gradient(arriving, p.features, {p.labels, {}}, 1, TensorRef(gradient),
                                  kIgnore, arrive);
      ASSERT_EQ(result.has_value(), last == 5) << "four parts, in two segments of forward";
    }
    EXPECT_EQ(result->loss_sum, loss);
    EXPECT_EQ(gradient, expected);
  }
}

// Parameters and gradients in memory that the device reads and writes by itself, in more places
// than one and until it is unpinned: the same values, and nothing is copied on the host.
TEST_P(DeviceStepTest, CopiesNothingOnTheHostWhereMemoryIsPinned) {
  const Problem p = Mlp(4, 400);
  const int64_t size = static_cast<int64_t>(p.parameters.size());
  auto model = OnDevice(p, 4, DType::kFloat32);
  RUBATO_ASSERT_OK(model);
  const Pages parameters(size), gradients[2] = {Pages(size), Pages(size)};
  std::copy(p.parameters.begin(), p.parameters.end(), parameters.values().begin());
  const auto run = [&](const Pages& gradient, uint64_t key) {
    std::fill(gradient.values().begin(), gradient.values().end(), 77.0f);
    (*model)->OnNewParameters();
    (*model)->Gradient(ConstTensorRef(parameters.values()), p.features, {p.labels, {}}, key,
                       TensorRef(gradient.values()), kIgnore);
    return std::vector<float>(gradient.values().begin(), gradient.values().end());
  };
  std::vector<std::vector<float>> expected;
  for (uint64_t key = 0; key < 8; ++key) expected.push_back(run(gradients[0], key));
  int64_t copied = (*model)->copied_bytes();
  EXPECT_EQ(copied, 8 * 2 * size * 4) << "to and fro";
  {
    const auto pin = (*model)->Pin(parameters.memory(), parameters.bytes());
    ASSERT_NE(pin, nullptr);
    const auto to = (*model)->Pin(gradients[0].memory(), gradients[0].bytes());
    ASSERT_NE(to, nullptr);
    for (uint64_t key = 0; key < 8; ++key) {
      auto other = (*model)->Pin(gradients[1].memory(), gradients[1].bytes());
      EXPECT_EQ(run(gradients[0], key), expected[key]);
      EXPECT_EQ(run(gradients[1], key), expected[key]);
      if (key % 4 == 3) other = nullptr;  // and later anew
    }
    EXPECT_EQ((*model)->copied_bytes(), copied);
  }
  EXPECT_EQ(run(gradients[0], 0), expected[0]);
  EXPECT_EQ((*model)->copied_bytes(), copied + 2 * size * 4);
}

// Tolerances: each value passes some ten roundings of 2^-8 or 2^-11, and where they move a relu's
// input over 0 its gradient jumps.
TEST_P(DeviceStepTest, HalfFloatsComeNearFloat32) {
  const Problem p = Mlp(16);
  auto reference = Model::Create(p.model, p.example, p.objective, 16);
  RUBATO_ASSERT_OK(reference);
  std::vector<float> expected(p.parameters.size());
  const double loss =
      (*reference)
          ->Gradient(p.parameters, p.features, {p.labels, {}}, 9, TensorRef(expected), kIgnore)
          .loss_sum;
  double norm = 0;
  for (float value : expected) norm += double{value} * value;
  for (const auto& [dtype, rounding] :
       {std::make_pair(DType::kBFloat16, 0x1p-8), std::make_pair(DType::kFloat16, 0x1p-11)}) {
    auto model = OnDevice(p, 16, dtype);
    RUBATO_ASSERT_OK(model);
    for (int run = 0; run < 3; ++run) {
      std::vector<float> gradient(p.parameters.size());
      const BatchResult result = (*model)->Gradient(p.parameters, p.features, {p.labels, {}}, 9,
                                                    TensorRef(gradient), kIgnore);
      EXPECT_NEAR(result.loss_sum, loss, 10 * rounding * loss);
      double difference = 0;
      for (size_t i = 0; i < gradient.size(); ++i) {
        difference += std::pow(double{gradient[i]} - expected[i], 2);
      }
      EXPECT_LT(std::sqrt(difference / norm), 25 * rounding) << DTypeName(dtype);
      EXPECT_GT(std::sqrt(difference / norm), rounding / 10) << "in float32?";
    }
  }
}

// Of scores one number a row is kept, and gradients are as near to float32's. Batches are those
// that memory was planned for, and smaller ones.
TEST_P(DeviceStepTest, FusedAttentionComesNearFloat32InLessMemory) {
  const int64_t n = 3, places = 64, classes = 5;
  const proto::Model config = ParseModel("preset: PRESET_CHAR_GPT blocks: 2 heads: 2 channels: 32");
  Objective objective{classes};
  objective.places = places;
  auto reference = Model::Create(config, {places}, objective, n);
  RUBATO_ASSERT_OK(reference);
  RandomStream stream(5);
  std::vector<float> features(n * places), parameters((*reference)->parameter_count());
  std::vector<int32_t> labels(n * places);
  for (float& value : features) value = static_cast<float>(stream.Below(classes));
  for (int32_t& label : labels) label = static_cast<int32_t>(stream.Below(classes));
  for (float& value : parameters) value = stream.Uniform(-0.2f, 0.2f);
  for (const auto& [dtype, rounding] :
       {std::make_pair(DType::kBFloat16, 0x1p-8), std::make_pair(DType::kFloat16, 0x1p-11)}) {
    EmulatedDeviceOptions options;
    auto products = OnGpu(GetParam(), config, {places}, objective, n, dtype, options);
    options.attention = AttentionForm::kFused;
    auto fused = OnGpu(GetParam(), config, {places}, objective, n, dtype, options);
    RUBATO_ASSERT_OK(products);
    RUBATO_ASSERT_OK(fused);
    const bool is_fused = !(*fused)->fused_by().empty();  // of cuDNN, where that is there
    EXPECT_TRUE(is_fused || GetParam() == TestedGpu::kReal);
    EXPECT_EQ((*products)->fused_by(), "");
    const int64_t probabilities = 2 * n * 2 * places * places * BytesOf(dtype);
    if (is_fused) {
      EXPECT_LT((*fused)->memory_bytes(), (*products)->memory_bytes() - probabilities / 2);
    }
    for (const int64_t batch : {n, n, n, int64_t{1}}) {
      const absl::Span<const float> some(features.data(), batch * places);
      const absl::Span<const int32_t> few(labels.data(), batch * places);
      std::vector<float> expected(parameters.size()), gradient(parameters.size());
      (*reference)->Gradient(parameters, some, {few, {}}, 9, TensorRef(expected), kIgnore);
      (*fused)->Gradient(parameters, some, {few, {}}, 9, TensorRef(gradient), kIgnore);
      double difference = 0, norm = 0;
      for (size_t i = 0; i < gradient.size(); ++i) {
        difference += std::pow(double{gradient[i]} - expected[i], 2);
        norm += double{expected[i]} * expected[i];
      }
      EXPECT_LT(std::sqrt(difference / norm), 25 * rounding) << DTypeName(dtype) << ' ' << batch;
    }
  }
}

// As near to float32's gradients as convolutions that are products; of resnet20, both are far.
// Batches are those that memory was planned for, and smaller ones.
TEST_P(DeviceStepTest, FusedConvolutionsAreAsNearToFloat32AsProducts) {
  struct Subject {
    const char* model;
    std::vector<int64_t> example;
  };
  const int64_t n = 3;
  for (const Subject& subject :
       {Subject{"preset: PRESET_CNN", {1, 12, 12}}, Subject{"preset: PRESET_LENET", {1, 28, 28}},
        Subject{"preset: PRESET_RESNET20", {3, 16, 16}}}) {
    SCOPED_TRACE(subject.model);
    const proto::Model config = ParseModel(subject.model);
    const Objective objective{5};
    auto reference = Model::Create(config, subject.example, objective, n);
    RUBATO_ASSERT_OK(reference);
    RandomStream stream(5);
    std::vector<float> features(n * SizeOf(subject.example));
    std::vector<float> parameters((*reference)->parameter_count());
    std::vector<int32_t> labels(n);
    for (float& value : features) value = stream.Uniform(-1, 1);
    for (int32_t& label : labels) label = static_cast<int32_t>(stream.Below(5));
    int64_t begin = 0;
    for (const proto::Parameter& parameter : (*reference)->layout().parameters()) {
      const int64_t size = SizeOf(parameter.shape());
      InitializeRange(parameter, /*seed=*/6, 0, absl::MakeSpan(parameters).subspan(begin, size));
      begin += size;
    }
    for (const auto& [dtype, rounding] :
         {std::make_pair(DType::kBFloat16, 0x1p-8), std::make_pair(DType::kFloat16, 0x1p-11)}) {
      EmulatedDeviceOptions options;
      auto products = OnGpu(GetParam(), config, subject.example, objective, n, dtype, options);
      options.convolution = ConvolutionForm::kFused;
      auto fused = OnGpu(GetParam(), config, subject.example, objective, n, dtype, options);
      RUBATO_ASSERT_OK(products);
      RUBATO_ASSERT_OK(fused);
      EXPECT_TRUE(!(*fused)->fused_by().empty() || GetParam() == TestedGpu::kReal);
      EXPECT_EQ((*products)->fused_by(), "");
      for (const int64_t batch : {n, n, n, int64_t{2}}) {
        const absl::Span<const float> some(features.data(), features.size() / n * batch);
        const absl::Span<const int32_t> few(labels.data(), batch);
        const auto gradient_of = [&](Model& model) {
          std::vector<float> gradient(parameters.size());
          model.Gradient(parameters, some, {few, {}}, 9, TensorRef(gradient), kIgnore);
          return gradient;
        };
        const std::vector<float> expected = gradient_of(**reference);
        const auto distance = [&](const std::vector<float>& gradient) {
          double difference = 0, norm = 0;
          for (size_t i = 0; i < gradient.size(); ++i) {
            difference += std::pow(double{gradient[i]} - expected[i], 2);
            norm += double{expected[i]} * expected[i];
          }
          return std::sqrt(difference / norm);
        };
        const double of_products = distance(gradient_of(**products));
        EXPECT_LT(distance(gradient_of(**fused)), 1.5 * of_products + rounding)
            << DTypeName(dtype) << ' ' << batch;
      }
    }
  }
}

// A loss of 2^17 times float16's smallest step: nothing is left of its gradient unscaled.
TEST_P(DeviceStepTest, InFloat16SmallGradientsSurviveByScalingAndOverflowsAreSeen) {
  Problem p;
  p.model = ParseModel("layers { linear { out_features: 1 } }");
  p.example = {2};
  p.objective = {1, proto::Loss::NAME_MSE};
  const std::vector<float> parameters = {0x1p-26f, 0, 0}, features = {1, 2}, target = {0};
  auto model = OnDevice(p, 1, DType::kFloat16);
  RUBATO_ASSERT_OK(model);
  std::vector<float> gradient(3);
  const auto run = [&](float value) {
    return (*model)->Gradient(parameters, features, {{}, absl::MakeConstSpan(&value, 1)}, 0,
                              TensorRef(gradient), kIgnore);
  };
  // The output rounds to 0; its difference from -2^-26 has the derivative 2^-25.
  run(-0x1p-26f);
  EXPECT_EQ(gradient, (std::vector<float>{0x1p-25f, 0x1p-24f, 0x1p-25f}));
  EXPECT_TRUE((*model)->is_known_finite());
  // 2 * 1 * 65536 is beyond float16.
  run(-1);
  EXPECT_FALSE(std::isfinite(gradient[0]));
  EXPECT_FALSE((*model)->is_known_finite());
  run(-0.5f);
  EXPECT_EQ(gradient, (std::vector<float>{1, 2, 1})) << "the scale was halved";
  EXPECT_TRUE((*model)->is_known_finite());
}

// Of two parts, last layer first, one is not finite: the first layer's, by a feature near the end
// of float32. Of a sum, too, whichever of its gradients that is.
TEST_P(DeviceStepTest, SeesWhichPartOfTheGradientIsNotFinite) {
  constexpr int64_t kWidth = 300;  // 90,300 parameters a layer
  const auto model =
      Model::Create(ParseModel("preset: PRESET_MLP hidden: [300]"), {kWidth}, Objective{kWidth}, 1,
                    DType::kFloat32, Purpose::kTraining, *OpenTested(GetParam()), Keeping{1});
  RUBATO_ASSERT_OK(model);
  const int64_t layer = kWidth * kWidth + kWidth;
  std::vector<float> parameters(2 * layer), gradient(2 * layer);
  std::fill_n(parameters.begin() + layer - kWidth, kWidth, 1.0f);  // outputs of the first layer
  std::fill_n(parameters.begin() + layer, kWidth, 10.0f);
  std::fill_n(parameters.begin() + layer + kWidth, kWidth, -10.0f);
  const std::vector<int32_t> labels = {1};
  std::vector<bool> finite;
  const auto run = [&](float feature, const Summing& summing) {
    const std::vector<float> features(kWidth, feature);
    finite.clear();
    (*model)->GradientOnDevice(
        parameters, features, {labels, {}}, /*key=*/0, TensorRef(gradient), summing,
        [&](int64_t) { finite.push_back((*model)->is_known_finite()); }, AllHaveArrived);
  };
  const float huge = 3e38f;
  const Summing kept = {0, false, false}, sum = {1, true, false};
  for (int step = 0; step < 3; ++step) {  // as it comes, recorded, the recording
    run(huge, Summing());
    EXPECT_EQ(finite, (std::vector<bool>{true, false}));
    run(1, Summing());
    EXPECT_EQ(finite, (std::vector<bool>{true, true}));
    for (const auto& [first, second] : {std::make_pair(huge, 1.0f), std::make_pair(1.0f, huge)}) {
      run(first, kept);
      run(second, sum);
      EXPECT_EQ(finite, (std::vector<bool>{true, false}));
    }
    EXPECT_FALSE(std::isfinite(gradient[0]));
    EXPECT_TRUE(std::isfinite(gradient[layer]));
  }
}

// No factor of the loss has been sent by then.
TEST_P(DeviceStepTest, InFloat16ZerosStayZerosInTheFirstMicroBatch) {
  auto model = Model::Create(ParseModel("layers { linear { out_features: 1 } }"), {2},
                             Objective{1, proto::Loss::NAME_MSE}, 1, DType::kFloat16,
                             Purpose::kTraining, *OpenTested(GetParam()), Keeping{1});
  RUBATO_ASSERT_OK(model);
  const std::vector<float> parameters(3, 0.5f);
  std::vector<float> gradient(3, 77);
  (*model)->GradientOnDevice(parameters, {}, {}, /*key=*/0, TensorRef(gradient), Summing(), kIgnore,
                             AllHaveArrived);
  EXPECT_EQ(gradient, std::vector<float>(3));
  EXPECT_TRUE((*model)->is_known_finite());
}

TEST(DeviceMemory, SaysWhatBatchWouldFit) {
  const Problem p = Mlp(64);
  EmulatedDeviceOptions options;
  const auto create = [&](int64_t n) {
    return OnGpu(TestedGpu::kEmulated, p.model, p.example, p.objective, n, DType::kFloat32,
                 options);
  };
  const int64_t one = (*create(1))->memory_bytes();
  const int64_t ten = (*create(10))->memory_bytes();
  options.memory_bytes = ten;
  RUBATO_EXPECT_OK(create(10));
  EXPECT_THAT(create(64), IsError(absl::StatusCode::kResourceExhausted,
                                  HasSubstr("; training in batches of 64 needs")));
  EXPECT_THAT(create(64),
              IsError(absl::StatusCode::kResourceExhausted, HasSubstr(", 10 would fit")));
  options.memory_bytes = one - 1;
  EXPECT_THAT(create(64), IsError(absl::StatusCode::kResourceExhausted,
                                  HasSubstr("even single samples do not fit")));
}

// What the device's libraries take later must be there then.
TEST(DeviceMemory, LeavesWhatTheDeviceTakesLater) {
  const Problem p = Mlp(64);
  EmulatedDeviceOptions options;
  const auto create = [&](int64_t n) {
    return OnGpu(TestedGpu::kEmulated, p.model, p.example, p.objective, n, DType::kFloat32,
                 options);
  };
  const int64_t ten = (*create(10))->memory_bytes();
  options.memory_bytes = ten + 99;
  options.reserved_bytes = 100;
  EXPECT_THAT(create(10),
              IsError(absl::StatusCode::kResourceExhausted, HasSubstr(", 9 would fit")));
  options.memory_bytes = ten + 100;
  RUBATO_EXPECT_OK(create(10));
}

// Where training fits, evaluation by as many samples does, and not by any number; who reads that it
// does not is told what was for lack of memory.
TEST(DeviceMemory, SufficesForEvaluationByTheMicroBatch) {
  const Problem p = Mlp(8);
  EmulatedDeviceOptions options;
  const auto create = [&](int64_t n, Purpose purpose) {
    return OnGpu(TestedGpu::kEmulated, p.model, p.example, p.objective, n, DType::kFloat32, options,
                 purpose);
  };
  options.memory_bytes = (*create(8, Purpose::kTraining))->memory_bytes();
  RUBATO_EXPECT_OK(create(8, Purpose::kEvaluation));
  EXPECT_THAT(
      create(2500, Purpose::kEvaluation),
      IsError(absl::StatusCode::kResourceExhausted, HasSubstr("; evaluation in batches of 2500")));
}

TEST_P(DeviceStepTest, LearnsFromNumbersToo) {
  Problem p;
  p.model = ParseModel("layers { linear { out_features: 3 } }");
  p.example = {4};
  p.objective = {3, proto::Loss::NAME_MSE};
  RandomStream stream(4);
  std::vector<float> features(20), parameters(15), targets(15);
  for (auto* values : {&features, &parameters, &targets}) {
    for (float& value : *values) value = stream.Uniform(-1, 1);
  }
  auto reference = Model::Create(p.model, p.example, p.objective, 5);
  auto model = OnDevice(p, 5, DType::kFloat32);
  RUBATO_ASSERT_OK(reference);
  RUBATO_ASSERT_OK(model);
  std::vector<float> expected(15), found(15);
  const BatchResult e =
      (*reference)->Gradient(parameters, features, {{}, targets}, 0, TensorRef(expected), kIgnore);
  const BatchResult f =
      (*model)->Gradient(parameters, features, {{}, targets}, 0, TensorRef(found), kIgnore);
  EXPECT_NEAR(f.loss_sum, e.loss_sum, 1e-6 * e.loss_sum);
  for (size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-6);
}

}  // namespace
}  // namespace rubato
