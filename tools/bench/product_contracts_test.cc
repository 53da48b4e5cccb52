// That cublasLt may be asked for every product of every example job and preset, in every precision
// and form, and that there is none that it is known to refuse; and that what cuDNN is given begins
// where it was told.
#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_matchers.h"
#include "common/job/job.h"
#include "gtest/gtest.h"
#include "tensor/cuda/product_contract.h"
#include "tensor/cuda/work_list.h"
#include "worker/model/model.h"

namespace rubato {
namespace {

namespace fs = std::filesystem;

// An example's shape, and how many outputs it wants.
struct Sample {
  std::vector<int64_t> shape;
  int64_t outputs;
};

// In either form of attention and of convolutions.
struct Forms {
  AttentionForm attention;
  ConvolutionForm convolution;
};
constexpr Forms kProductsAlone = {AttentionForm::kProducts, ConvolutionForm::kProducts};
constexpr Forms kFusedForms = {AttentionForm::kFused, ConvolutionForm::kFused};

// Operands of cuDNN's are declared so (tensor/cuda/cudnn_graph.h), and a convolution's workspace
// begins as CUDA's own pieces of memory.
void ExpectAligned(std::initializer_list<const void*> operands, uintptr_t alignment = 16) {
  for (const void* operand : operands) {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(operand) % alignment, 0u);
  }
}

// Returns the kinds of work there were.
std::set<Work::Kind> CheckWork(const std::vector<Work>& work) {
  for (const Product& product : ProductsOf(work)) RUBATO_EXPECT_OK(CheckContract(product));
  std::set<Work::Kind> kinds;
  for (const Work& each : work) {
    kinds.insert(each.kind);
    if (each.attention.has_value()) {
      const FusedAttention& fused = *each.attention;
      // The other ones are products, which cuDNN decides.
      if (fused.attention.channels / fused.attention.heads % 8 != 0) continue;
      ExpectAligned({fused.x, fused.y, fused.statistics, fused.dy, fused.dx});
    }
    if (each.convolution.has_value()) {
      const FusedConvolution& fused = *each.convolution;
      ExpectAligned({fused.x, fused.weight, fused.y, fused.dweight});
      ExpectAligned({fused.workspace}, 256);
    }
  }
  EXPECT_EQ(kinds.count(Work::kProduct), 1u);
  return kinds;
}

// A step and an evaluation of a whole batch, and of a last one that is shorter.
void CheckProducts(const proto::Model& model, const Sample& sample, proto::Loss::Name loss,
                   int64_t batch) {
  const bool is_text = model.preset() == proto::Model::PRESET_CHAR_GPT;
  Objective objective;
  objective.outputs = sample.outputs;
  objective.loss = loss;
  objective.places = is_text ? sample.shape[0] : 1;
  int64_t size = 1;
  for (const int64_t side : sample.shape) size *= side;
  const auto check = [&](DType dtype, const Forms& forms) {
    std::vector<Work> work;
    std::set<Work::Kind> kinds;
    for (const Purpose purpose : {Purpose::kTraining, Purpose::kEvaluation}) {
      const auto created = Model::Create(model, sample.shape, objective, batch, dtype, purpose,
                                         MakeWorkList(&work, forms.attention, forms.convolution));
      RUBATO_EXPECT_OK(created);
      if (!created.ok()) continue;
      const std::vector<float> parameters((*created)->parameter_count());
      std::vector<float> gradient(parameters.size());
      for (const int64_t n : std::set<int64_t>{batch, (batch + 1) / 2}) {
        SCOPED_TRACE(absl::StrCat(purpose == Purpose::kTraining ? "training" : "evaluation", ", ",
                                  n, " of ", batch, ", ", DTypeName(dtype)));
        const std::vector<float> features(n * size), targets(n * sample.outputs);
        const std::vector<int32_t> labels(n * objective.places);
        const Targets wanted = IsClassification(loss) ? Targets{labels, {}} : Targets{{}, targets};
        work.clear();
        if (purpose == Purpose::kTraining) {
          (*created)->Gradient(parameters, features, wanted, /*key=*/0,
                               TensorRef(absl::MakeSpan(gradient)), [](int64_t) {});
        } else {
          (*created)->Evaluate(parameters, features, wanted);
        }
        const std::set<Work::Kind> found = CheckWork(work);
        kinds.insert(found.begin(), found.end());
      }
    }
    return kinds;
  };
  check(DType::kFloat32, kProductsAlone);
  for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
    const std::set<Work::Kind> products = check(dtype, kProductsAlone);
    EXPECT_EQ(products.count(Work::kAttention) + products.count(Work::kConvolution), 0u);
    const std::set<Work::Kind> fused = check(dtype, kFusedForms);
    EXPECT_EQ(fused.count(Work::kAttention), is_text ? 1u : 0u);
    const bool is_resnet = model.preset() == proto::Model::PRESET_RESNET18 ||
                           model.preset() == proto::Model::PRESET_RESNET20;
    EXPECT_GE(fused.count(Work::kConvolution), is_resnet ? 1u : 0u);
  }
}

// Of each file of configs, the examples that its data have.
const std::map<std::string, Sample> kConfigs = {
    {"agaricus", {{126}, 2}},
    {"async", {{1, 28, 28}, 10}},
    {"bounded", {{1, 28, 28}, 10}},
    {"california_housing", {{13}, 1}},
    {"char_gpt", {{64}, 65}},
    {"fashion_cnn", {{1, 28, 28}, 10}},
    {"fashion_mnist", {{1, 28, 28}, 10}},
    {"quickstart", {{1, 28, 28}, 10}},
    {"schedule", {{1, 28, 28}, 10}},
    {"simulate_1000_workers", {{1, 28, 28}, 10}},
    {"sync", {{1, 28, 28}, 10}},
};

TEST(ProductContracts, OfEveryExampleJob) {
  size_t found = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator("configs")) {
    if (entry.path().extension() != ".yaml") continue;
    SCOPED_TRACE(entry.path());
    const auto sample = kConfigs.find(entry.path().stem());
    ASSERT_NE(sample, kConfigs.end()) << "its data's shape belongs into the list";
    ++found;
    const absl::StatusOr<proto::Job> job = LoadJob(entry.path());
    RUBATO_ASSERT_OK(job);
    const int64_t batch = job->train().batch_size() / job->train().micro_batches();
    for (const int64_t n : {int64_t{1}, batch}) {
      CheckProducts(job->model(), sample->second, job->loss().name(), n);
    }
  }
  EXPECT_EQ(found, kConfigs.size());
}

TEST(ProductContracts, OfEveryPreset) {
  const std::map<proto::Model::Preset, std::vector<Sample>> samples = {
      {proto::Model::PRESET_MLP, {{{1, 28, 28}, 10}, {{7}, 1}, {{1}, 2}}},
      {proto::Model::PRESET_CNN, {{{1, 28, 28}, 10}}},
      {proto::Model::PRESET_LENET, {{{1, 28, 28}, 10}}},
      {proto::Model::PRESET_CHAR_GPT, {{{64}, 65}, {{2}, 2}, {{1024}, 65}}},
      {proto::Model::PRESET_RESNET20, {{{3, 32, 32}, 10}}},
      // Of the smaller images the last stage has one place.
      {proto::Model::PRESET_RESNET18, {{{3, 224, 224}, 1000}, {{3, 32, 32}, 10}}},
  };
  EXPECT_EQ(samples.size(), proto::Model::Preset_ARRAYSIZE - 2u) << "all but none and a script's";
  for (const auto& [preset, all] : samples) {
    for (const Sample& sample : all) {
      SCOPED_TRACE(absl::StrCat(proto::Model::Preset_Name(preset), " of ", sample.shape.back()));
      proto::Model model;
      model.set_preset(preset);
      if (preset == proto::Model::PRESET_MLP) model.add_hidden(20);
      for (const int64_t batch : {1, 16}) {
        CheckProducts(model, sample, proto::Loss::NAME_CROSS_ENTROPY, batch);
      }
    }
  }
}

}  // namespace
}  // namespace rubato
