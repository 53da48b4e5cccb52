// Every failure of cuDNN's in a model's first steps: one sentence and an end in order, or what the
// library was to do is done in another way, with a warning.
#include <algorithm>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tensor/cuda/cuda_device.h"
#include "tensor/cuda/fake_cublas.h"
#include "tensor/cuda/fake_cuda.h"
#include "tensor/cuda/fake_cudnn_library.h"
#include "tensor/cuda/run_apart.h"
#include "worker/model/model.h"
#include "worker/model/preset_trajectory.h"

namespace rubato {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::MatchesRegex;

constexpr int64_t kBatch = 4;
constexpr int kOtherEngine = 4;  // exit code: trained, but not by the first one

// One of each class of codes that cuDNN has (cudnn_graph.h).
constexpr cudnnStatus_t kErrors[] = {
    CUDNN_STATUS_NOT_INITIALIZED, CUDNN_STATUS_BAD_PARAM, CUDNN_STATUS_NOT_SUPPORTED,
    CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED, CUDNN_STATUS_EXECUTION_FAILED};

struct Subject {
  const char* name;
  const char* layers;
  Shape shape;        // of an example
  const char* fused;  // what of it is cuDNN's
  const char* run;    // what a run of it is called, as the name is in all that is said
  const char* leaves_out;
};

std::unique_ptr<Model> Open(const Subject& subject) {
  const std::string layers =
      absl::StrCat(subject.layers, "layers { flatten {} } layers { linear { out_features: 3 } }");
  const bool attends = subject.name == std::string("attention");
  auto device = OpenGpu(1, ProductPrecision::kFloat32,
                        attends ? AttentionForm::kFused : AttentionForm::kProducts, kGpuPatience,
                        attends ? ConvolutionForm::kProducts : ConvolutionForm::kFused);
  RUBATO_EXPECT_OK(device);
  auto model = Model::Create(ParseModel(layers), subject.shape, Objective{3}, kBatch,
                             DType::kBFloat16, Purpose::kTraining, *std::move(device));
  RUBATO_EXPECT_OK(model);
  return *std::move(model);
}

void Step(Model& model, int64_t n) {
  const std::vector<float> features(n * model.example_size()), parameters(model.parameter_count());
  const std::vector<int32_t> labels(n);
  std::vector<float> gradient(parameters.size());
  model.Gradient(parameters, features, {labels, {}}, /*key=*/1, TensorRef(gradient),
                 [](int64_t) {});
}

// As it comes, recorded, the recording; and a short last batch, for which there are no plans yet.
void Train(Model& model) {
  for (int i = 0; i < 3; ++i) Step(model, kBatch);
  Step(model, kBatch - 1);
}

FakeCudnnLibrary& Fake() { return TheFakeCudnnLibrary(); }
int64_t Calls() { return static_cast<int64_t>(Fake().calls.size()); }
bool IsOfTheFirstEngine() {
  return std::all_of(Fake().runs.begin(), Fake().runs.end(), [](int64_t run) { return run == 0; });
}
// Descriptors that are not given back are no failure (cudnn_graph.h).
bool IsEnd(const std::string& call) { return absl::StrContains(call, "Destroy"); }

class CudnnFailuresTest : public ::testing::TestWithParam<Subject> {
 protected:
  CudnnFailuresTest() {
    TheFakeCuda() = FakeCuda();
    ResetFakeCublas();
    UseFakeCudnnLibrary();
    Fake() = FakeCudnnLibrary();
    const std::unique_ptr<Model> model = Open(GetParam());
    planned_ = Calls();
    Train(*model);
    calls_ = Fake().calls;
    EXPECT_EQ(model->fused(), GetParam().fused);
    EXPECT_GT(planned_, 100);
    EXPECT_GT(calls_.size(), planned_ + 100);
    EXPECT_TRUE(IsOfTheFirstEngine());
    EXPECT_THAT(Fake().violations, IsEmpty());
  }

  std::string Told(cudnnStatus_t error) const {
    return absl::StrCat(" failed: status ", static_cast<int>(error), ", why \\(cuDNN\\)");
  }

  int64_t planned_;  // calls until the model has its memory
  std::vector<std::string> calls_;
};

// What cuDNN cannot begin or plan is done by its other engine or, with a warning, without it.
TEST_P(CudnnFailuresTest, WhileItIsPlannedLeaveTheWorkToOthers) {
  int of_other_engine = 0, refused = 0;
  for (int64_t call = 0; call < planned_; ++call) {
    for (const cudnnStatus_t error : kErrors) {
      SCOPED_TRACE(testing::Message() << calls_[call] << ", call " << call << ", " << error);
      Fake() = FakeCudnnLibrary();
      Fake().fails_at = call;
      Fake().error = error;
      testing::internal::CaptureStderr();
      std::unique_ptr<Model> model = Open(GetParam());
      Train(*model);
      const std::string said = testing::internal::GetCapturedStderr();
      if (model->fused().empty()) {
        ++refused;
        EXPECT_THAT(Fake().runs, IsEmpty());
        EXPECT_THAT(said,
                    MatchesRegex(absl::StrCat("warning: on GPU 1: [^\n]*", Told(error), "\n")));
      } else {
        of_other_engine += !IsOfTheFirstEngine();
        EXPECT_EQ(said, "");
        EXPECT_NE(IsOfTheFirstEngine(), !IsEnd(calls_[call]));
      }
      EXPECT_THAT(Fake().violations, IsEmpty());
      model.reset();
      EXPECT_EQ(Fake().live, IsEnd(calls_[call]));
    }
  }
  EXPECT_GT(of_other_engine, 0);
  EXPECT_GT(refused, 100);
}

// What it has begun ends the process: memory is planned for it, and other workers compute so.
TEST_P(CudnnFailuresTest, WhileItIsTrainedEndTheProcessWithOneSentence) {
  const std::unique_ptr<Model> model = Open(GetParam());
  const FakeCudnnLibrary before = Fake();
  int of_other_engine = 0, told = 0, of_a_plan = 0;
  for (int64_t call = planned_; call < static_cast<int64_t>(calls_.size()); ++call) {
    const cudnnStatus_t error = kErrors[call % std::size(kErrors)];
    const Ended ended = RunApart([&] {
      Fake() = before;
      Fake().fails_at = Calls() + call - planned_;
      Fake().error = error;
      Train(*model);
      return IsOfTheFirstEngine() ? 0 : kOtherEngine;
    });
    SCOPED_TRACE(testing::Message()
                 << calls_[call] << ", call " << call << ", " << error << ", said: " << ended.said);
    if (ended.code == 1) {
      ++told;
      of_a_plan += absl::StrContains(ended.said, "took another batch");
      EXPECT_THAT(ended.said,
                  MatchesRegex(absl::StrCat("error: on GPU 1: [^\n]*", Told(error), "[^\n]*\n")));
      EXPECT_THAT(ended.said, HasSubstr(GetParam().name));
      EXPECT_EQ(absl::StrContains(ended.said, "took another batch"),
                absl::StrContains(ended.said, GetParam().leaves_out));
    } else {
      of_other_engine += ended.code == kOtherEngine;
      EXPECT_EQ(ended.code, IsEnd(calls_[call]) ? 0 : kOtherEngine) << "-1: a crash or a hang";
      EXPECT_EQ(ended.said, "");
    }
  }
  EXPECT_GT(told, 50);
  EXPECT_GT(of_a_plan, 20);
  EXPECT_GT(of_other_engine, 0);
}

// Codes of all classes, and such as a later library may have.
TEST_P(CudnnFailuresTest, AreToldWhateverTheCode) {
  const int64_t run =
      std::find(calls_.begin(), calls_.end(), "cudnnBackendExecute") - calls_.begin();
  const std::unique_ptr<Model> model = Open(GetParam());
  const FakeCudnnLibrary before = Fake();
  for (int code = 1000; code < 6000; code += 31) {
    const Ended ended = RunApart([&] {
      Fake() = before;
      Fake().fails_at = Calls() + run - planned_;
      Fake().error = static_cast<cudnnStatus_t>(code);
      Step(*model, kBatch);
      return 0;
    });
    EXPECT_EQ(ended.code, 1);
    EXPECT_EQ(ended.said, absl::StrCat("error: on GPU 1: ", GetParam().run, " failed: status ",
                                       code, ", why (cuDNN)\n"));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Works, CudnnFailuresTest,
    ::testing::Values(Subject{"attention",
                              "layers { attention { heads: 2 } }",
                              {4, 16},
                              "attention",
                              "attention",
                              "; device.attention: products leaves it out"},
                      Subject{"convolution",
                              "layers { conv2d { out_channels: 8 kernel_size: 3 padding: 1 } } "
                              "layers { conv2d { out_channels: 8 kernel_size: 3 padding: 1 } }",
                              {8, 4, 4},
                              "convolutions",
                              "a convolution",
                              "; device.convolution: products leaves it out"}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace rubato
