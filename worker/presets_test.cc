// Twenty steps of training of models by name, against PyTorch's in float64; and what a step asks of
// the memory allocator.
#include "worker/presets.h"

#include <malloc.h>

#include <atomic>
#include <cmath>
#include <cstdlib>
#include <new>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/job/completion.h"
#include "common/job/report.h"
#include "common/status_matchers.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "tests/golden.h"
#include "worker/model.h"

namespace {
std::atomic<int64_t> allocations{0};
}  // namespace

__attribute__((noinline)) void* operator new(size_t size) {
  ++allocations;
  void* memory = std::malloc(size);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
__attribute__((noinline)) void operator delete(void* memory) noexcept { std::free(memory); }
__attribute__((noinline)) void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace rubato {
namespace {

proto::Model Parse(const std::string& text) {
  proto::Model model;
  RUBATO_CHECK(google::protobuf::TextFormat::ParseFromString(text, &model));
  Report report;
  Complete(&model, &report);
  RUBATO_CHECK(report.ToStatus().ok());
  return model;
}

std::vector<float> Flat(const Golden& golden, const proto::Layout& layout,
                        const std::string& prefix) {
  std::vector<float> flat;
  for (const proto::Parameter& parameter : layout.parameters()) {
    const std::vector<float> values = golden.Values<float>(prefix + parameter.name());
    EXPECT_EQ(golden.Shape(prefix + parameter.name()),
              std::vector<int64_t>(parameter.shape().begin(), parameter.shape().end()));
    flat.insert(flat.end(), values.begin(), values.end());
  }
  return flat;
}

double Norm(const std::vector<double>& values) {
  return std::sqrt(std::inner_product(values.begin(), values.end(), values.begin(), 0.0));
}

// Returns how often a step, after the first, allocated.
int64_t ExpectPyTorchsTrajectory(const Golden& golden, const std::string& name, int micro_batches) {
  const std::vector<int64_t> shape = golden.Shape(name + "/features");
  const int64_t batches = shape[0], n = shape[1], part = n / micro_batches;
  const std::vector<int64_t> example(shape.begin() + 2, shape.end());
  const std::vector<float> features = golden.Values<float>(name + "/features");
  const std::vector<int32_t> labels = golden.Values<int32_t>(name + "/labels");
  const int64_t places = static_cast<int64_t>(labels.size()) / (batches * n);
  Objective objective = {*std::max_element(labels.begin(), labels.end()) + 1};
  objective.places = places;
  auto model = Model::Create(Parse(golden.metadata().at(name)), example, objective, part);
  EXPECT_TRUE(model.ok()) << model.status();
  if (!model.ok()) return 0;
  const proto::Layout& layout = (*model)->layout();
  std::vector<float> parameters = Flat(golden, layout, name + "/");
  const float rate = golden.Values<float>(name + "/rate")[0];
  std::vector<float> gradient(parameters.size()), sum(parameters.size()), slot(parameters.size());
  const std::vector<double> losses = golden.Values<double>(name + "/losses");
  int64_t allocated = 0;
  for (size_t step = 0; step < losses.size(); ++step) {
    const int64_t first = static_cast<int64_t>(step) % batches * n;
    double loss = 0;
    std::fill(sum.begin(), sum.end(), 0.0f);
    for (int i = 0; i < micro_batches; ++i) {
      const int64_t at = first + i * part, values = (*model)->example_size();
      const auto ready = [](int64_t) {};
      const int64_t before = allocations;
      const size_t in_use = mallinfo2().uordblks;
      loss +=
          (*model)
              ->Gradient(parameters, absl::MakeSpan(features).subspan(at * values, part * values),
                         {absl::MakeSpan(labels).subspan(at * places, part * places), {}}, 0,
                         TensorRef(gradient), ready)
              .loss_sum;
      if (step > 0) {
        allocated += allocations - before;
        EXPECT_EQ(mallinfo2().uordblks, in_use);
      }
      for (size_t k = 0; k < sum.size(); ++k) sum[k] += gradient[k];
    }
    EXPECT_NEAR(loss / n, losses[step], 1e-5 * losses[step]) << "step " << step;
    for (size_t k = 0; k < sum.size(); ++k) {
      slot[k] = 0.9f * slot[k] + sum[k] / static_cast<float>(n);
      parameters[k] -= rate * slot[k];
    }
  }
  const std::vector<float> end = Flat(golden, layout, name + "/end/");
  std::vector<double> difference(end.size());
  for (size_t k = 0; k < end.size(); ++k) difference[k] = parameters[k] - double{end[k]};
  EXPECT_LE(Norm(difference), 2e-6 * Norm({end.begin(), end.end()}));
  return allocated;
}

TEST(Presets, FollowPyTorchAndAStepAllocatesNothing) {
  const Golden golden("preset_trajectories.safetensors");
  for (const auto& [name, text] : golden.metadata()) {
    for (int micro_batches : {1, 2}) {
      SCOPED_TRACE(absl::StrCat(name, ", ", micro_batches, " micro-batches"));
      EXPECT_EQ(ExpectPyTorchsTrajectory(golden, name, micro_batches), 0);
    }
  }
  EXPECT_EQ(golden.metadata().size(), 3u);
}

int64_t ParametersOf(const std::string& text, absl::Span<const int64_t> shape,
                     const Objective& objective) {
  const absl::StatusOr<proto::Layout> layout = LayoutOf(Parse(text), shape, objective);
  RUBATO_EXPECT_OK(layout);
  int64_t count = 0;
  for (const proto::Parameter& parameter : layout->parameters()) count += SizeOf(parameter.shape());
  return count;
}

// By hand, from the published forms.
TEST(Presets, HaveTheirNumbersOfParameters) {
  EXPECT_EQ(ParametersOf("preset: PRESET_MLP", {1, 28, 28}, {10}), 535818);
  EXPECT_EQ(ParametersOf("preset: PRESET_MLP hidden: 7", {3}, {2}), 3 * 7 + 7 + 7 * 2 + 2);
  EXPECT_EQ(ParametersOf("preset: PRESET_CNN", {1, 28, 28}, {10}), 225034);
  EXPECT_EQ(ParametersOf("preset: PRESET_LENET", {1, 28, 28}, {10}), 61706);
  Objective text = {65};
  text.places = 64;
  EXPECT_EQ(ParametersOf("preset: PRESET_CHAR_GPT", {64}, text),
            65 * 128 + 64 * 128 + 4 * (12 * 128 * 128 + 13 * 128) + 2 * 128 + 129 * 65);
}

TEST(Presets, RefuseExamplesOfAnotherForm) {
  EXPECT_THAT(LayoutOf(Parse("preset: PRESET_CNN"), {13}, {2}),
              IsError(absl::StatusCode::kInvalidArgument,
                      "model.preset: found cnn with examples of shape (13,), expected images"));
  EXPECT_THAT(
      LayoutOf(Parse("preset: PRESET_CHAR_GPT"), {1, 28, 28}, {10}),
      IsError(absl::StatusCode::kInvalidArgument,
              "model.preset: found char_gpt with examples of shape (1, 28, 28), expected a text"));
  EXPECT_THAT(LayoutOf(Parse("preset: PRESET_CNN"), {1, 8, 8}, {10}),
              IsError(absl::StatusCode::kInvalidArgument,
                      "model.layers[5] (max_pool2d): kernel_size: found 2; expected at most 1, "
                      "what the input of shape (64, 1, 1) has"));
}

}  // namespace
}  // namespace rubato
