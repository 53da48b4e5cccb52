// Parameters and gradients that lanes' devices read and write by themselves, on emulated GPUs.
#include "worker/step/pin_memory.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "common/base/random.h"
#include "common/base/status_matchers.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "tensor/cuda/emulated_device.h"
#include "tensor/cuda/emulated_exchange.h"
#include "worker/model/pages.h"
#include "worker/step/micro_batches.h"
#include "worker/step/model_pins.h"

namespace rubato {
namespace {

constexpr int64_t kSamples = 32, kBatch = 16, kLeaves = 8, kUnits = 4;
constexpr uint64_t kSeed = 3;

struct Case {
  int lanes;
  bool exchanges, pins;
};

struct Found {
  std::vector<std::vector<float>> sums;  // by unit
  int64_t copied = 0;                    // bytes
  int64_t values = 0;                    // of parameters
};

Dataset MakeData(RandomStream* random) {
  Examples examples;
  examples.shape = {1, 2, 3};
  examples.classes = 3;
  for (int64_t i = 0; i < kSamples; ++i) {
    for (int j = 0; j < 6; ++j) examples.pixels.push_back(random->Below(256));
    examples.labels.push_back(random->Below(3));
  }
  return Dataset(examples, Normalization{{0.0f}, {1.0f}});
}

proto::Model MakeModel() {
  proto::Model config;
  google::protobuf::TextFormat::ParseFromString(
      "layers { flatten {} } layers { linear { out_features: 4 bias: true } } layers { relu {} } "
      "layers { linear { out_features: 3 bias: true } }",
      &config);
  return config;
}

// Units with other parameters each, written where the ones before were.
Found Train(const Case& c) {
  RandomStream random(Key(1, "test"));
  const Dataset data = MakeData(&random);
  const proto::Model config = MakeModel();
  std::vector<std::unique_ptr<Model>> models;
  std::vector<Model*> lanes;
  const Keeping keeping{WaitingSums(kLeaves, c.lanes), c.exchanges ? Slices::Spare(c.lanes) : 0};
  for (int i = 0; i < c.lanes; ++i) {
    EmulatedDeviceOptions options;
    options.seed = 2 + i;
    options.pins = c.pins;
    models.push_back(*Model::Create(config, {1, 2, 3}, {3}, kBatch / kLeaves, DType::kFloat32,
                                    Purpose::kTraining, MakeEmulatedDevice(options), keeping));
    lanes.push_back(models.back().get());
  }
  std::unique_ptr<ExchangedSums> exchange;
  if (c.exchanges) {
    exchange = *ExchangedSums::Create(MakeEmulatedExchange(c.lanes, /*seed=*/1), lanes,
                                      WaitingPlaces(kLeaves, c.lanes, keeping.keeps),
                                      /*most=*/Slices::kAlignment);
  }
  Found found;
  found.values = lanes[0]->parameter_count();
  const FlatSpace space(found.values, 16);
  const SampleSchedule schedule(kSamples, kBatch, kLeaves);
  BatchReader reader(&data, kSeed, kBatch / kLeaves);
  const Pages parameters(found.values);
  const auto pin = PinIn(lanes)(parameters.memory(), parameters.bytes());
  EXPECT_EQ(pin != nullptr, c.pins);
  MicroBatches micro_batches(lanes, &space, &reader, kSeed, nullptr, false, exchange.get());
  for (int64_t unit = 0; unit < kUnits; ++unit) {
    for (float& value : parameters.values()) value = random.Uniform(-1, 1);
    std::vector<float> sum(found.values);
    const auto results =
        micro_batches.Compute(schedule, unit, {0, kLeaves}, parameters.values(),
                              [&](int64_t block, const Payload& payload) {
                                std::copy(payload.values().begin(), payload.values().end(),
                                          sum.begin() + space.BlockValues(block).begin);
                              });
    RUBATO_EXPECT_OK(results);
    found.sums.push_back(std::move(sum));
  }
  found.copied = exchange != nullptr ? exchange->copied_bytes() : 0;
  for (const Model* lane : lanes) found.copied += lane->copied_bytes();
  return found;
}

// By which a worker sees that it computes on the CPU, and sends its gradients by the thread that
// has them in its caches.
TEST(PinMemory, IsEmptyWithoutDevices) {
  const std::unique_ptr<Model> model = *Model::Create(MakeModel(), {1, 2, 3}, {3}, kBatch / kLeaves,
                                                      DType::kFloat32, Purpose::kTraining, nullptr);
  EXPECT_EQ(PinIn({model.get()}), nullptr);
}

TEST(PinMemory, HasDevicesCopyWhatTheHostDoesNot) {
  const Found one = Train({1, false, false});
  EXPECT_EQ(one.copied, kUnits * 2 * one.values * 4);
  EXPECT_EQ(Train({1, false, true}).sums, one.sums);
  for (const int lanes : {2, 3, 4}) {
    for (const bool exchanges : {false, true}) {
      SCOPED_TRACE(testing::Message() << lanes << " GPUs" << (exchanges ? " that exchange" : ""));
      const Found copied = Train({lanes, exchanges, false}),
                  pinned = Train({lanes, exchanges, true});
      EXPECT_EQ(copied.sums, one.sums);
      EXPECT_EQ(pinned.sums, one.sums);
      EXPECT_EQ(pinned.copied, 0);
      const int64_t once = kUnits * 2 * one.values * 4;
      EXPECT_GE(copied.copied, exchanges ? once : lanes * once);
      if (exchanges) {
        EXPECT_EQ(copied.copied, once) << "each slice once";
      }
    }
  }
}

}  // namespace
}  // namespace rubato
