// Several GPUs of one worker, each with a thread, over a CUDA runtime of the tests' own: its rules
// hold for each thread, and a failure tells which GPU it was.
#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "tensor/cuda/cuda_device.h"
#include "tensor/cuda/fake_cublas.h"
#include "tensor/cuda/fake_cuda.h"
#include "tensor/cuda/run_apart.h"
#include "worker/step/micro_batches.h"

namespace rubato {
namespace {

using ::testing::MatchesRegex;

constexpr int64_t kSamples = 32, kBatch = 16, kLeaves = 8;

Dataset Data() {
  Examples examples;
  examples.shape = {1, 1, 6};
  examples.classes = 3;
  examples.pixels.resize(kSamples * 6);
  examples.labels.resize(kSamples);
  return Dataset(examples, Normalization{{0.0f}, {1.0f}});
}

// Some steps on two GPUs, of which the second is the other thread's. before: calls of CUDA's before
// the first step.
absl::Status Train(int64_t* before = nullptr) {
  proto::Model config;
  google::protobuf::TextFormat::ParseFromString(
      "layers { flatten {} } layers { linear { out_features: 8 } } layers { relu {} } "
      "layers { linear { out_features: 3 } }",
      &config);
  std::vector<std::unique_ptr<Model>> models;
  std::vector<Model*> lanes;
  for (const int gpu : {0, 1}) {
    auto device = OpenGpu(gpu, ProductPrecision::kFloat32);
    if (!device.ok()) return device.status();
    auto model = Model::Create(config, {1, 1, 6}, {3}, kBatch / kLeaves, DType::kBFloat16,
                               Purpose::kTraining, *std::move(device),
                               Keeping{WaitingSums(kLeaves, /*lanes=*/2)});
    if (!model.ok()) return model.status();
    models.push_back(*std::move(model));
    lanes.push_back(models.back().get());
  }
  const Dataset data = Data();
  const FlatSpace space(lanes[0]->parameter_count(), 16);
  const SampleSchedule schedule(kSamples, kBatch, kLeaves);
  const std::vector<float> parameters(space.values());
  BatchReader reader(&data, /*seed=*/1, kBatch / kLeaves);
  MicroBatches micro_batches(lanes, &space, &reader, /*seed=*/1);
  if (before != nullptr) *before = static_cast<int64_t>(TheFakeCuda().calls.size());
  for (int unit = 0; unit < 3; ++unit) {  // as it comes, recorded, the recording
    int64_t pushed = 0;
    const auto results = micro_batches.Compute(schedule, unit, {0, kLeaves}, parameters,
                                               [&](int64_t, const Payload&) { ++pushed; });
    if (!results.ok()) return results.status();
    EXPECT_EQ(pushed, space.blocks());
  }
  return absl::OkStatus();
}

class CudaLanesTest : public ::testing::Test {
 protected:
  CudaLanesTest() {
    TheFakeCuda() = FakeCuda();
    ResetFakeCublas();
  }
};

TEST_F(CudaLanesTest, KeepTheRulesOfTheirThreadsAndGiveBackAll) {
  for (int repetition = 0; repetition < 10; ++repetition) {
    const int64_t launches = TheFakeCuda().launches;
    RUBATO_EXPECT_OK(Train());
    EXPECT_GT(TheFakeCuda().launches - launches, 100);
    EXPECT_EQ(TheFakeCuda().live, 0);
    EXPECT_EQ(TheFakeCublas().live, 0);
    EXPECT_TRUE(TheFakeCublas().violations.empty());
  }
}

// What a process of its own says whose call number `call` fails, and how it ends.
Ended TrainWith(int64_t call, cudaError_t error) {
  return RunApart([&] {
    TheFakeCuda().fails_at = call;
    TheFakeCuda().error = error;
    TheFakeCuda().stays = true;
    return Train().ok() ? 0 : 3;
  });
}

// In the midst of steps, whichever thread makes the call.
TEST_F(CudaLanesTest, AFailureEndsTheProcessWithOneSentenceThatNamesTheGpu) {
  int64_t begin = 0;
  RUBATO_ASSERT_OK(Train(&begin));
  const int64_t end = static_cast<int64_t>(TheFakeCuda().calls.size());
  int told[2] = {};
  for (int64_t call = begin; call < begin + (end - begin) / 2; call += 7) {
    const auto [code, said] = TrainWith(call, cudaErrorIllegalAddress);
    EXPECT_EQ(code, 1) << "call " << call;
    EXPECT_THAT(said, MatchesRegex("error: on GPU [01]: .* failed: .*\n")) << "call " << call;
    ++told[said.size() > 14 && said[14] == '1'];
  }
  EXPECT_GT(told[0], 0);
  EXPECT_GT(told[1], 0);
}

}  // namespace
}  // namespace rubato
