// That the list of a step's work (tensor/cuda/work_list.h) is what CUDA's runtime, cublasLt and
// cuDNN are asked for, all of it and nothing else.
#include "tensor/cuda/work_list.h"

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/strip.h"
#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tensor/cuda/cuda_device.h"
#include "tensor/cuda/fake_cublas.h"
#include "tensor/cuda/fake_cuda.h"
#include "tensor/cuda/fake_cudnn.h"
#include "worker/model/model.h"
#include "worker/model/pages.h"
#include "worker/model/preset_trajectory.h"

namespace rubato {
namespace {

using ::testing::ElementsAre;
using ::testing::UnorderedElementsAre;

constexpr int64_t kBatch = 2;

struct Subject {
  const char* name;
  const char* model;  // as text of proto::Model
  std::vector<int64_t> shape;
  int64_t places;
  int64_t fused = 0;  // convolutions that cuDNN takes: not those of pixels' colours
};

void PrintTo(const Subject& subject, std::ostream* out) { *out << subject.name; }

class WorkListTest : public ::testing::TestWithParam<Subject> {
 protected:
  // Steps on a device, of which the second is recorded.
  void Step(std::unique_ptr<Device> device, DType dtype, int steps = 1) {
    const Subject& subject = GetParam();
    Objective objective;
    objective.outputs = 5;
    objective.places = subject.places;
    const auto model = Model::Create(ParseModel(subject.model), subject.shape, objective, kBatch,
                                     dtype, Purpose::kTraining, std::move(device));
    RUBATO_ASSERT_OK(model);
    const std::vector<float> features(kBatch * SizeOf(subject.shape)),
        parameters((*model)->parameter_count());
    const std::vector<int32_t> labels(kBatch * subject.places);
    std::vector<float> gradient(parameters.size());
    for (int step = 0; step < steps; ++step) {
      (*model)->OnNewParameters();
      (*model)->Gradient(parameters, features, {labels, {}}, /*key=*/1, TensorRef(gradient),
                         [](int64_t) {});
    }
  }
};

// Kind, stream, for an order what is waited for, for a copy its bytes.
using StreamWork = std::tuple<int, int64_t, int64_t, int64_t>;

// What the runtime was asked for; recordings are replayed in the first stream, kCompute.
std::vector<StreamWork> WorkOfStreams() {
  std::vector<StreamWork> found;
  for (const FakeStreamWork& each : TheFakeCuda().work) {
    if (each.kind != FakeStreamWork::kReplay) {
      found.push_back({each.kind, each.stream, each.other, each.bytes});
    } else {
      EXPECT_EQ(each.stream, static_cast<int64_t>(Stream::kCompute));
    }
  }
  return found;
}

// Likewise, what a device was told; a library's work is another test's.
std::vector<StreamWork> WorkOfStreams(const std::vector<Work>& work) {
  const std::map<Work::Kind, FakeStreamWork::Kind> kinds = {
      {Work::kKernel, FakeStreamWork::kKernel},
      {Work::kUpload, FakeStreamWork::kUpload},
      {Work::kDownload, FakeStreamWork::kDownload},
      {Work::kOrder, FakeStreamWork::kOrder},
      {Work::kSignal, FakeStreamWork::kSignal}};
  std::vector<StreamWork> listed;
  for (const Work& each : work) {
    const auto kind = kinds.find(each.kind);
    if (kind == kinds.end()) continue;
    const int64_t other = each.kind == Work::kOrder ? static_cast<int64_t>(each.other) : -1;
    listed.push_back({kind->second, static_cast<int64_t>(each.stream), other, each.bytes});
  }
  return listed;
}

// "ForEachIndex<...>" of "void rubato::RunBlock<...>(...)".
std::string KernelOf(const std::string& function) {
  const std::string name = ShortKernelName(function.c_str());
  const absl::string_view inside = absl::StripPrefix(name, "voidRunBlock<");
  return std::string(inside.substr(0, inside.find(">(")));
}

TEST_P(WorkListTest, IsWhatCudaIsAskedFor) {
  for (const auto& [dtype, form] : {std::make_pair(DType::kFloat32, AttentionForm::kProducts),
                                    std::make_pair(DType::kBFloat16, AttentionForm::kProducts),
                                    std::make_pair(DType::kFloat16, AttentionForm::kProducts),
                                    std::make_pair(DType::kFloat16, AttentionForm::kFused)}) {
    const ConvolutionForm convolution =
        form == AttentionForm::kFused ? ConvolutionForm::kFused : ConvolutionForm::kProducts;
    SCOPED_TRACE(DTypeName(dtype));
    TheFakeCuda() = FakeCuda();
    TheFakeCudnn() = FakeCudnn();
    TheFakeCudnn().is_there = true;
    ResetFakeCublas();
    auto device = OpenGpu(0, ProductPrecision::kFloat32, form, kGpuPatience, convolution);
    RUBATO_ASSERT_OK(device);
    Step(*std::move(device), dtype);
    std::vector<Work> work;
    Step(MakeWorkList(&work, form, convolution), dtype);

    std::vector<std::string> kernels, listed;
    for (const std::string& function : TheFakeCuda().kernels) kernels.push_back(KernelOf(function));
    std::vector<ConvolutionPass> convolutions, convolved;
    for (const FusedConvolution& run : TheFakeCudnn().convolutions) convolved.push_back(run.pass);
    int64_t products = 0;
    std::vector<bool> fused, asked;  // whether they are backward ones
    for (const FusedAttention& run : TheFakeCudnn().runs) asked.push_back(run.dx != nullptr);
    for (const Work& each : work) {
      if (each.kind == Work::kKernel) listed.push_back(each.kernel);
      products += each.kind == Work::kProduct;
      if (each.kind == Work::kAttention) fused.push_back(each.attention->dx != nullptr);
      if (each.kind == Work::kConvolution) convolutions.push_back(each.convolution->pass);
    }
    EXPECT_GT(listed.size(), 5u);
    EXPECT_EQ(listed, kernels) << "in this order";
    EXPECT_EQ(products, static_cast<int64_t>(TheFakeCublas().used.size()));
    EXPECT_EQ(fused, asked);
    const bool attends = absl::StrContains(GetParam().name, "gpt") && form == AttentionForm::kFused;
    EXPECT_EQ(fused.size(), attends ? 4u : 0u) << "two blocks, forward and backward";
    EXPECT_EQ(convolutions, convolved);
    const int64_t fused_ones = convolution == ConvolutionForm::kProducts ? 0 : GetParam().fused;
    EXPECT_EQ(static_cast<int64_t>(convolutions.size()), 3 * fused_ones);
    EXPECT_EQ(WorkOfStreams(work), WorkOfStreams()) << "in this order";
  }
}

// As it comes, recorded, and the recording.
TEST_P(WorkListTest, IsInTheStreamsThatCudaIsAskedFor) {
  TheFakeCuda() = FakeCuda();
  ResetFakeCublas();
  auto device = OpenGpu(0, ProductPrecision::kFloat32, AttentionForm::kProducts);
  RUBATO_ASSERT_OK(device);
  Step(*std::move(device), DType::kFloat32, /*steps=*/3);
  std::vector<Work> work;
  Step(MakeWorkList(&work), DType::kFloat32, /*steps=*/3);
  EXPECT_EQ(WorkOfStreams(work), WorkOfStreams()) << "in this order";
  std::set<int64_t> streams;
  for (const StreamWork& each : WorkOfStreams()) streams.insert(std::get<1>(each));
  EXPECT_EQ(streams.size(), static_cast<size_t>(kStreams));
  const auto is_replay = [](const FakeStreamWork& each) {
    return each.kind == FakeStreamWork::kReplay;
  };
  const auto& found = TheFakeCuda().work;
  EXPECT_GT(std::count_if(found.begin(), found.end(), is_replay), 1);
}

// Before a part of the parameters is asked for, the device has been given the products of all
// segments of forward that need none of it.
TEST(WorkList, ForwardBeginsWhileLaterParametersArrive) {
  std::vector<Work> work;
  const auto model =
      Model::Create(ParseModel("preset: PRESET_MLP hidden: [300, 300, 300]"), {300}, {5}, kBatch,
                    DType::kFloat32, Purpose::kTraining, MakeWorkList(&work));
  RUBATO_ASSERT_OK(model);
  const std::vector<float> features(kBatch * 300), parameters((*model)->parameter_count());
  const std::vector<int32_t> labels(kBatch);
  std::vector<float> gradient(parameters.size());
  for (int step = 0; step < 3; ++step) {  // as it comes, recorded, the recording
    work.clear();
    std::vector<size_t> products;
    (*model)->OnNewParameters();
    (*model)->Gradient(
        parameters, features, {labels, {}}, /*key=*/1, TensorRef(gradient), [](int64_t) {},
        [&](Range) {
          products.push_back(ProductsOf(work).size());
          return true;
        });
    EXPECT_EQ(products, (std::vector<size_t>{0, 0, 1, 1, 2, 2, 3})) << step;
  }
}

// A GPU's engine takes what goes over in the order in which it may begin: a batch in another
// stream, which waits for the first parameters, would go after all others that the host has given
// it. And what it reads by itself goes in large parts.
TEST(WorkList, ABatchGoesOverBeforeParametersAndThoseInLargeParts) {
  std::vector<Work> work;
  const auto model =
      Model::Create(ParseModel("preset: PRESET_MLP hidden: [1000, 1000]"), {300}, {5}, kBatch,
                    DType::kFloat32, Purpose::kTraining, MakeWorkList(&work));
  RUBATO_ASSERT_OK(model);
  const std::vector<float> features(kBatch * 300);
  const std::vector<int32_t> labels(kBatch);
  const Pages parameters((*model)->parameter_count()), gradient((*model)->parameter_count());
  const auto pin = (*model)->Pin(parameters.memory(), parameters.bytes());
  for (int step = 0; step < 3; ++step) {
    work.clear();
    (*model)->OnNewParameters();
    (*model)->Gradient(
        ConstTensorRef(parameters.values()), features, {labels, {}}, /*key=*/1,
        TensorRef(gradient.values()), [](int64_t) {}, AllHaveArrived);
    std::vector<int64_t> bytes;
    for (const Work& each : work) {
      if (each.kind != Work::kUpload) continue;
      EXPECT_EQ(each.stream, Stream::kUpload);
      bytes.push_back(each.bytes);
    }
    // Features, labels, the factors of the loss, keys of the model's nodes; 301 x 1000, 1001 x 1000
    // and 1001 x 5 parameters, of which the first two are a segment each.
    const int64_t most = 2 << 20;
    const int64_t nodes = static_cast<int64_t>((*model)->graph().nodes.size());
    EXPECT_THAT(bytes, ElementsAre(kBatch * 300 * 4, kBatch * 4, 8, 8 * nodes, 301'000 * 4, most,
                                   1'001'000 * 4 - most, 5'005 * 4));
  }
}

// Of images of 32 x 32 the outputs of resnet18's last stage have one place: its five convolutions
// are a product each for the whole batch, and not one of a single column for each example.
TEST(WorkList, AConvolutionToOnePlaceIsOneProduct) {
  constexpr int64_t kMany = 256, kChannels = 512;
  std::vector<Work> work;
  const auto model = Model::Create(ParseModel("preset: PRESET_RESNET18"), {3, 32, 32}, {10}, kMany,
                                   DType::kBFloat16, Purpose::kTraining, MakeWorkList(&work));
  RUBATO_ASSERT_OK(model);
  const std::vector<float> features(kMany * 3 * 32 * 32), parameters((*model)->parameter_count());
  const std::vector<int32_t> labels(kMany);
  std::vector<float> gradient(parameters.size());
  (*model)->Gradient(parameters, features, {labels, {}}, /*key=*/1, TensorRef(gradient),
                     [](int64_t) {});
  std::vector<int64_t> of_batch;  // how long the sums are of those for all examples
  for (const Product& product : ProductsOf(work)) {
    EXPECT_TRUE(product.m > 1 && product.n > 1) << product.m << " x " << product.n;
    if (product.m == kMany && product.n == kChannels && product.transpose_b == Transpose::kYes) {
      EXPECT_EQ(product.count, 1);
      of_batch.push_back(product.k);
    }
  }
  EXPECT_THAT(of_batch, UnorderedElementsAre(256 * 9, 256, 512 * 9, 512 * 9, 512 * 9));
}

INSTANTIATE_TEST_SUITE_P(
    OfModels, WorkListTest,
    ::testing::Values(
        Subject{"mlp", "preset: PRESET_MLP hidden: [20]", {6}, 1},
        Subject{"char_gpt", "preset: PRESET_CHAR_GPT blocks: 2 heads: 2 channels: 8", {7}, 7},
        Subject{"lenet", "preset: PRESET_LENET", {1, 28, 28}, 1, 0},
        Subject{"resnet20", "preset: PRESET_RESNET20", {3, 32, 32}, 1, 20}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace rubato
