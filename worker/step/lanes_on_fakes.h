// Several GPUs of one worker, each with a thread, over a CUDA runtime of the tests' own.
#ifndef RUBATO_WORKER_STEP_LANES_ON_FAKES_H_
#define RUBATO_WORKER_STEP_LANES_ON_FAKES_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/status_matchers.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "tensor/cuda/cuda_device.h"
#include "worker/model/pages.h"
#include "worker/step/micro_batches.h"
#include "worker/step/model_pins.h"

namespace rubato {

inline Dataset LanesData() {
  constexpr int64_t kSamples = 32;
  Examples examples;
  examples.shape = {1, 1, 6};
  examples.classes = 3;
  examples.pixels.resize(kSamples * 6);
  examples.labels.resize(kSamples);
  return Dataset(examples, Normalization{{0.0f}, {1.0f}});
}

// Of the lanes' GPUs; null: the host adds.
using OpensExchange = std::function<absl::StatusOr<std::unique_ptr<Exchange>>()>;

// Some steps on two GPUs, of which the second is the other thread's. begins: called before them.
// copied: bytes of parameters and sums that crossed by way of the GPUs' own memory of the host.
inline absl::Status TrainLanes(
    const OpensExchange& opens = nullptr, const std::function<void()>& begins = [] {},
    int64_t* copied = nullptr) {
  constexpr int64_t kSamples = 32, kBatch = 16, kLeaves = 8;
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
                               Keeping{WaitingSums(kLeaves, /*lanes=*/2), Slices::Spare(2)});
    if (!model.ok()) return model.status();
    models.push_back(*std::move(model));
    lanes.push_back(models.back().get());
  }
  const Dataset data = LanesData();
  const FlatSpace space(lanes[0]->parameter_count(), 16);
  const SampleSchedule schedule(kSamples, kBatch, kLeaves);
  const Pages parameters(space.values());
  const auto pin = PinIn(lanes)(parameters.memory(), parameters.bytes());
  BatchReader reader(&data, /*seed=*/1, kBatch / kLeaves);
  std::unique_ptr<ExchangedSums> exchange;
  if (opens != nullptr) {
    auto opened = opens();
    if (!opened.ok()) return opened.status();
    auto sums = ExchangedSums::Create(*std::move(opened), lanes, /*places=*/0, /*most=*/64);
    if (!sums.ok()) return sums.status();
    exchange = *std::move(sums);
  }
  MicroBatches micro_batches(lanes, &space, &reader, /*seed=*/1, nullptr, false, exchange.get());
  begins();
  for (int unit = 0; unit < 3; ++unit) {  // as it comes, recorded, the recording
    int64_t pushed = 0;
    const auto results = micro_batches.Compute(schedule, unit, {0, kLeaves}, parameters.values(),
                                               [&](int64_t, const Payload&) { ++pushed; });
    if (!results.ok()) return results.status();
    EXPECT_EQ(pushed, space.blocks());
  }
  if (copied != nullptr) {
    *copied = exchange != nullptr ? exchange->copied_bytes() : 0;
    for (const Model* lane : lanes) *copied += lane->copied_bytes();
  }
  return absl::OkStatus();
}

}  // namespace rubato

#endif  // RUBATO_WORKER_STEP_LANES_ON_FAKES_H_
