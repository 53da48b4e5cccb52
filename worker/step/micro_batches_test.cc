#include "worker/step/micro_batches.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/base/random.h"
#include "common/base/status_matchers.h"
#include "common/space/permutation.h"
#include "common/space/reduction_tree.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "tensor/cuda/emulated_device.h"
#include "tensor/cuda/emulated_exchange.h"

namespace rubato {
namespace {

constexpr uint64_t kSeed = 5;
constexpr int64_t kSamples = 23, kBatch = 10, kLeaves = 5;

// A small model on 2x3 images of three classes.
class MicroBatchesTest : public ::testing::Test {
 protected:
  void SetUp() override { Use("layers { relu {} }"); }

  // The model, with these layers in its midst.
  void Use(const std::string& layers) {
    ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(
        absl::StrCat("layers { flatten {} } layers { linear { out_features: 4 bias: true } } ",
                     layers, " layers { linear { out_features: 3 bias: true } }"),
        &config_));
    Examples examples;
    examples.shape = {1, 2, 3};
    examples.classes = 3;
    RandomStream random(Key(1, "test"));
    for (int64_t i = 0; i < kSamples; ++i) {
      for (int j = 0; j < 6; ++j) examples.pixels.push_back(random.Below(256));
      examples.labels.push_back(random.Below(3));
    }
    data_ = std::make_unique<Dataset>(examples, Normalization{{0.0f}, {1.0f}});
    auto model = Model::Create(config_, {1, 2, 3}, objective_, kBatch / kLeaves);
    RUBATO_ASSERT_OK(model);
    model_ = *std::move(model);
    parameters_.clear();
    for (int64_t i = 0; i < model_->parameter_count(); ++i) {
      parameters_.push_back(random.Uniform(-1, 1));
    }
  }

  std::vector<std::unique_ptr<Model>> MakeModels(int count) const {
    std::vector<std::unique_ptr<Model>> models;
    for (int i = 0; i < count; ++i) {
      models.push_back(*Model::Create(config_, {1, 2, 3}, objective_, kBatch / kLeaves));
    }
    return models;
  }
  static std::vector<Model*> Pointers(const std::vector<std::unique_ptr<Model>>& models) {
    std::vector<Model*> pointers;
    for (const std::unique_ptr<Model>& model : models) pointers.push_back(model.get());
    return pointers;
  }

  // Sums of several GPUs, each of which keeps so many gradients, have the bits of `one`'s.
  void ExpectOfSeveral(int keeps, const std::map<int64_t, std::vector<float>>& one) {
    for (const int lanes : {2, 3, 4, 8}) {
      SCOPED_TRACE(absl::StrCat(lanes, " GPUs that keep ", keeps));
      for (int64_t unit : {0, 2, 4}) {  // unit 2 has empty micro-batches
        EXPECT_EQ(Sum(unit, {{0, 5}}, 7, /*ahead=*/2, lanes), one.at(unit));
        EXPECT_FALSE(is_known_finite_) << "finite sums may add up to what is not";
        EXPECT_EQ(Sum(unit, {{0, 2}, {2, 5}}, 16, 0, lanes), one.at(unit));
        EXPECT_EQ(Sum(unit, {{0, 1}, {1, 3}, {3, 5}}, 16, 0, lanes), one.at(unit));
      }
    }
  }

  // The sum over all of unit `unit`, as a shard would fold what workers with these leaves push.
  std::vector<float> Sum(int64_t unit, const std::vector<Range>& workers, int64_t block_values,
                         int64_t ahead = 0, int threads = 1) {
    const FlatSpace space(model_->parameter_count(), block_values);
    const SampleSchedule schedule(kSamples, kBatch, kLeaves);
    const ReductionTree tree(kLeaves);
    BatchReader reader(data_.get(), kSeed, kBatch / kLeaves, ahead);
    const std::vector<std::unique_ptr<Model>> more =
        model_->keeps() > 0 || exchanges_ ? MakeDevices(threads - 1) : MakeModels(threads - 1);
    std::vector<Model*> models = Pointers(more);
    models.insert(models.begin(), model_.get());
    std::unique_ptr<ExchangedSums> exchange;
    if (exchanges_) {
      const int64_t places = WaitingPlaces(kLeaves, threads, model_->keeps());
      exchange = *ExchangedSums::Create(MakeEmulatedExchange(threads, /*seed=*/unit + 1), models,
                                        places, /*most=*/Slices::kAlignment);
    }
    MicroBatches micro_batches(models, &space, &reader, kSeed, nullptr, false, exchange.get());
    if (ahead > 0) {
      for (const int64_t leaf : micro_batches.ReadingOrder(kLeaves, {0, kLeaves})) {
        const SampleRange range = schedule.MicroBatch(unit, leaf);
        if (!range.positions.empty()) reader.Announce(range);
      }
    }
    int64_t max_buffers = 0;
    std::map<int64_t, std::vector<float>> nodes;  // by first leaf
    std::map<int64_t, Range> ranges;
    samples_ = 0;
    for (const Range& leaves : workers) {
      for (const Range& node : tree.MaximalNodes(leaves)) {
        std::vector<float> sum(space.values(), NAN);
        int64_t last_block = space.blocks();
        const auto results = *micro_batches.Compute(
            schedule, unit, node, parameters_, [&](int64_t block, const Payload& payload) {
              EXPECT_EQ(block, last_block - 1) << "last blocks leave first, each once";
              last_block = block;
              is_known_finite_ = micro_batches.is_known_finite();
              std::copy(payload.values().begin(), payload.values().end(),
                        sum.begin() + space.BlockValues(block).begin);
            });
        EXPECT_EQ(last_block, 0);
        max_buffers = std::max(max_buffers, MicroBatches::MaxBuffers(kLeaves, node, threads));
        for (const BatchResult& result : results) samples_ += result.samples;
        nodes[node.begin] = sum;
        ranges[node.begin] = node;
      }
    }
    // Of devices' sums only whole ones come to the host.
    if (exchanges_) {
      EXPECT_EQ(micro_batches.buffers(), 1);
    } else if (model_->keeps() > 0) {
      EXPECT_LE(micro_batches.buffers(), std::min<int64_t>(threads, max_buffers));
    } else {
      EXPECT_EQ(micro_batches.buffers(), max_buffers);
    }
    while (nodes.size() > 1) {
      for (auto it = ranges.begin(); it != ranges.end(); ++it) {
        const Range sibling = tree.Sibling(it->second);
        const auto other = ranges.find(sibling.begin);
        if (sibling.begin < it->first || other == ranges.end() || !(other->second == sibling))
          continue;
        for (size_t i = 0; i < parameters_.size(); ++i) {
          nodes[it->first][i] += nodes[sibling.begin][i];
        }
        it->second = tree.Parent(it->second);
        nodes.erase(sibling.begin);
        ranges.erase(sibling.begin);
        break;
      }
    }
    return nodes.begin()->second;
  }

  // The model, on an emulated GPU that keeps so many gradients.
  void UseDevice(int keeps, DType dtype = DType::kFloat32) {
    auto model =
        Model::Create(config_, {1, 2, 3}, objective_, kBatch / kLeaves, dtype, Purpose::kTraining,
                      MakeEmulatedDevice(), Keeping{keeps, exchanges_ ? Slices::Spare(8) : 0});
    RUBATO_ASSERT_OK(model);
    model_ = *std::move(model);
  }
  // On GPUs that do what they may do in any order in other orders, with room for no more gradients
  // than `model_` has.
  std::vector<std::unique_ptr<Model>> MakeDevices(int count) const {
    std::vector<std::unique_ptr<Model>> models;
    for (int i = 0; i < count; ++i) {
      EmulatedDeviceOptions options;
      options.seed = 2 + i;
      models.push_back(*Model::Create(config_, {1, 2, 3}, objective_, kBatch / kLeaves,
                                      DType::kFloat32, Purpose::kTraining,
                                      MakeEmulatedDevice(options),
                                      Keeping{model_->keeps(), exchanges_ ? Slices::Spare(8) : 0}));
    }
    return models;
  }

  proto::Model config_;
  Objective objective_ = {3};
  std::unique_ptr<Dataset> data_;
  std::unique_ptr<Model> model_;
  std::vector<float> parameters_;
  int64_t samples_ = 0;
  bool is_known_finite_ = false;  // what was pushed last
  bool exchanges_ = false;        // devices among themselves
};

TEST_F(MicroBatchesTest, TheSumHasTheSameBitsOnAnyNumberOfThreads) {
  for (int repetition = 0; repetition < 50; ++repetition) {
    for (int64_t unit : {0, 2, 4}) {
      const std::vector<float> one = Sum(unit, {{0, 5}}, 7);
      for (int threads : {2, 3, 4, 7}) {
        EXPECT_EQ(Sum(unit, {{0, 5}}, 7, /*ahead=*/2, threads), one) << threads << " threads";
        EXPECT_EQ(Sum(unit, {{0, 2}, {2, 5}}, 7, 0, threads), one) << threads << " threads";
      }
    }
  }
}

TEST_F(MicroBatchesTest, TheSumHasTheSameBitsHoweverWorkAndBlocksAreCut) {
  for (int64_t unit :
       {0, 2, 4}) {  // full; the short last of epoch 0, with empty micro-batches; epoch 1
    const std::vector<float> one = Sum(unit, {{0, 5}}, 1000);
    for (int64_t block_values : {1, 7, 16}) {
      EXPECT_EQ(Sum(unit, {{0, 5}}, block_values), one);
      EXPECT_EQ(Sum(unit, {{0, 2}, {2, 5}}, block_values), one);
      EXPECT_EQ(Sum(unit, {{0, 1}, {1, 3}, {3, 5}}, block_values), one);
      EXPECT_EQ(Sum(unit, {{0, 1}, {1, 2}, {2, 3}, {3, 4}, {4, 5}}, block_values), one);
    }
  }
}

TEST_F(MicroBatchesTest, DropoutDoesNotDependOnWhoComputesWhat) {
  const std::vector<float> plain = Sum(0, {{0, 5}}, 1000);
  Use("layers { dropout { p: 0.4 } } layers { relu {} } layers { dropout {} }");
  for (int64_t unit : {0, 2, 4}) {
    const std::vector<float> one = Sum(unit, {{0, 5}}, 1000);
    EXPECT_NE(one, plain);
    EXPECT_EQ(Sum(unit, {{0, 5}}, 7), one);
    EXPECT_EQ(Sum(unit, {{0, 2}, {2, 5}}, 16), one);
    EXPECT_EQ(Sum(unit, {{0, 1}, {1, 3}, {3, 5}}, 16), one);
    EXPECT_EQ(Sum(unit, {{4, 5}, {2, 3}, {3, 4}, {0, 1}, {1, 2}}, 16), one);
  }
}

// Parameters appear range by range, each only when it is asked for: what is read before is not a
// number.
TEST_F(MicroBatchesTest, TheSumHasTheSameBitsIfParametersArriveAsTheyAreNeeded) {
  const FlatSpace space(model_->parameter_count(), 7);
  const SampleSchedule schedule(kSamples, kBatch, kLeaves);
  BatchReader reader(data_.get(), kSeed, kBatch / kLeaves);
  for (const int threads : {1, 3}) {
    const std::vector<std::unique_ptr<Model>> models = MakeModels(threads);
    MicroBatches micro_batches(Pointers(models), &space, &reader, kSeed);
    std::vector<float> arriving(space.values(), NAN);
    absl::Mutex mutex;
    const auto await = [&](Range values) {
      absl::MutexLock lock(&mutex);
      for (int64_t i = values.begin; i < values.end; ++i) {
        if (std::isnan(arriving[i])) arriving[i] = parameters_[i];
      }
      return true;
    };
    std::vector<float> sum(space.values());
    const auto push = [&](int64_t block, const Payload& payload) {
      std::copy(payload.values().begin(), payload.values().end(),
                sum.begin() + space.BlockValues(block).begin);
    };
    const auto results = micro_batches.Compute(schedule, 0, {0, 5}, arriving, push, await);
    RUBATO_ASSERT_OK(results);
    EXPECT_EQ(sum, Sum(0, {{0, 5}}, 7));
  }
}

// Of several servers one may answer before another has taken the last gradient.
TEST_F(MicroBatchesTest, OfSeveralServersTheBufferOfTheNextStepIsMadeInTheFirst) {
  const FlatSpace space(model_->parameter_count(), 7);
  const SampleSchedule schedule(kSamples, kBatch, kLeaves);
  BatchReader reader(data_.get(), kSeed, kBatch / kLeaves);
  for (const int threads : {1, 3}) {
    const std::vector<std::unique_ptr<Model>> models = MakeModels(threads);
    MicroBatches micro_batches(Pointers(models), &space, &reader, kSeed, nullptr,
                               /*is_split=*/true);
    const int64_t buffers = MicroBatches::MaxBuffers(kLeaves, {0, kLeaves}, threads) + 1;
    std::vector<Payload> untaken;
    for (const int64_t unit : {0, 1, 2}) {
      std::vector<Payload> pushed;
      RUBATO_ASSERT_OK(micro_batches.Compute(
          schedule, unit, {0, kLeaves}, parameters_,
          [&](int64_t, const Payload& payload) { pushed.push_back(payload); }));
      EXPECT_EQ(micro_batches.buffers(), buffers) << "unit " << unit;
      untaken = std::move(pushed);
    }
  }
}

TEST_F(MicroBatchesTest, OneThatIsNotToWaitPushesNothingAndMayBeginAgain) {
  const FlatSpace space(model_->parameter_count(), 7);
  const SampleSchedule schedule(kSamples, kBatch, kLeaves);
  BatchReader reader(data_.get(), kSeed, kBatch / kLeaves);
  for (const int threads : {1, 3}) {
    const std::vector<std::unique_ptr<Model>> models = MakeModels(threads);
    MicroBatches micro_batches(Pointers(models), &space, &reader, kSeed);
    for (const int64_t unit : {0, 2}) {  // of 2 the first thread's micro-batches are not all full
      for (int questions = 0; questions < 3; ++questions) {
        std::atomic<int> left(questions);
        int pushed = 0;
        const auto results = micro_batches.Compute(
            schedule, unit, {0, 5}, parameters_, [&](int64_t, const Payload&) { ++pushed; },
            [&](Range) { return left-- > 0; });
        EXPECT_THAT(results, IsError(absl::StatusCode::kCancelled, ::testing::_));
        EXPECT_EQ(pushed, 0);
      }
      std::vector<float> sum(space.values());
      RUBATO_ASSERT_OK(micro_batches.Compute(
          schedule, unit, {0, 5}, parameters_, [&](int64_t block, const Payload& payload) {
            std::copy(payload.values().begin(), payload.values().end(),
                      sum.begin() + space.BlockValues(block).begin);
          }));
      EXPECT_EQ(sum, Sum(unit, {{0, 5}}, 7));
    }
  }
}

// Parameters arrive after one thread was told to wait no longer, and before another asks.
TEST_F(MicroBatchesTest, AllThreadsEndOrNone) {
  const FlatSpace space(model_->parameter_count(), 7);
  const SampleSchedule schedule(kSamples, kBatch, kLeaves);
  BatchReader reader(data_.get(), kSeed, kBatch / kLeaves);
  const std::vector<std::unique_ptr<Model>> models = MakeModels(3);
  MicroBatches micro_batches(Pointers(models), &space, &reader, kSeed);
  const std::vector<float> expected = Sum(0, {{0, 5}}, 7);
  for (int repetition = 0; repetition < 50; ++repetition) {
    absl::Mutex mutex;
    bool told = false;
    const auto caller = std::this_thread::get_id();
    const auto await = [&](Range) {
      absl::MutexLock lock(&mutex);
      if (std::this_thread::get_id() == caller) mutex.Await(absl::Condition(&told));
      return std::exchange(told, true);
    };
    int64_t pushed = 0;
    std::vector<float> sum(space.values());
    const auto results = micro_batches.Compute(
        schedule, 0, {0, 5}, parameters_,
        [&](int64_t block, const Payload& payload) {
          ++pushed;
          std::copy(payload.values().begin(), payload.values().end(),
                    sum.begin() + space.BlockValues(block).begin);
        },
        await);
    if (results.ok()) {
      EXPECT_EQ(sum, expected);
    } else {
      EXPECT_THAT(results, IsError(absl::StatusCode::kCancelled, ::testing::_));
      EXPECT_EQ(pushed, 0);
    }
  }
}

// All examples are the same, so that only what is dropped can make a difference.
TEST_F(MicroBatchesTest, DropoutDiffersFromStepToStepAndAmongMicroBatches) {
  Use("layers { linear { out_features: 40 } } layers { dropout { p: 0.5 } }");
  Examples examples = data_->examples();
  for (size_t i = 0; i < examples.pixels.size(); ++i) examples.pixels[i] = 40 * (i % 6);
  std::fill(examples.labels.begin(), examples.labels.end(), 1);
  data_ = std::make_unique<Dataset>(examples, Normalization{{0.0f}, {1.0f}});
  // 80 values are dropped or not in each micro-batch of 2: none of 2^80 patterns comes twice.
  std::set<std::vector<float>> sums;
  for (const int64_t unit : {0, 1, 3, 4}) {  // two steps of each of two epochs
    for (int64_t leaf = 0; leaf < kLeaves; ++leaf) {
      sums.insert(Sum(unit, {{leaf, leaf + 1}}, 1000));
    }
  }
  EXPECT_EQ(sums.size(), 20u);
}

TEST_F(MicroBatchesTest, TheSumHasTheSameBitsIfBatchesAreReadAhead) {
  for (int64_t unit : {0, 2, 4}) {
    const std::vector<float> plain = Sum(unit, {{0, 5}}, 1000);
    for (int64_t ahead : {1, 3, 100}) {
      EXPECT_EQ(Sum(unit, {{0, 5}}, 1000, ahead), plain);
      // Out of turn.
      EXPECT_EQ(Sum(unit, {{2, 5}, {0, 2}}, 1000, ahead), plain);
    }
  }
}

TEST_F(MicroBatchesTest, ADevicesSumsHaveTheBitsOfTheHosts) {
  Use("layers { dropout { p: 0.4 } } layers { relu {} }");
  const std::vector<float> on_cpu = Sum(0, {{0, 5}}, 7);
  std::map<int64_t, std::vector<float>> expected;
  UseDevice(/*keeps=*/0);  // so the host adds
  for (int64_t unit : {0, 2, 4}) expected[unit] = Sum(unit, {{0, 5}}, 7);
  EXPECT_FALSE(is_known_finite_);
  for (size_t i = 0; i < on_cpu.size(); ++i) ASSERT_NEAR(expected[0][i], on_cpu[i], 1e-5);
  UseDevice(WaitingSums(kLeaves));
  for (int repetition = 0; repetition < 3; ++repetition) {  // recorded from the second on
    for (int64_t unit : {0, 2, 4}) {                        // unit 2 has empty micro-batches
      EXPECT_EQ(Sum(unit, {{0, 5}}, 7), expected[unit]);
      EXPECT_TRUE(is_known_finite_);
      EXPECT_EQ(Sum(unit, {{0, 2}, {2, 5}}, 1000), expected[unit]);
      EXPECT_EQ(Sum(unit, {{0, 1}, {1, 3}, {3, 5}}, 16), expected[unit]);
    }
  }
}

// Whatever number of GPUs computes, with room for however many gradients.
TEST_F(MicroBatchesTest, SeveralDevicesSumsHaveTheBitsOfOne) {
  Use("layers { dropout { p: 0.4 } } layers { relu {} }");
  UseDevice(WaitingSums(kLeaves));
  std::map<int64_t, std::vector<float>> one;
  for (int64_t unit : {0, 2, 4}) one[unit] = Sum(unit, {{0, 5}}, 7);
  for (int keeps = 1; keeps <= 3; ++keeps) {
    UseDevice(keeps);
    ExpectOfSeveral(keeps, one);
  }
}

// GPUs add slices of what one of them, or the host, adds whole: in one chunk or in several, with
// slices that are short or empty, and with rounds whose sums wait.
TEST_F(MicroBatchesTest, SumsThatDevicesExchangeHaveTheBitsOfOne) {
  for (const int wide : {4, 100}) {
    exchanges_ = false;
    Use(absl::StrCat("layers { dropout { p: 0.4 } } layers { linear { out_features: ", wide,
                     " } } layers { relu {} }"));
    UseDevice(WaitingSums(kLeaves));
    std::map<int64_t, std::vector<float>> one;
    for (int64_t unit : {0, 2, 4}) one[unit] = Sum(unit, {{0, 5}}, 7);
    exchanges_ = true;
    for (int keeps = 0; keeps <= 3; ++keeps) {
      UseDevice(keeps);
      ExpectOfSeveral(keeps, one);
    }
  }
}

// One GPU is told to wait no longer when another has computed: what that one keeps is forgotten.
TEST_F(MicroBatchesTest, DevicesThatAreInterruptedBeginAgain) {
  UseDevice(WaitingSums(kLeaves));
  const std::vector<float> expected = Sum(0, {{0, 5}}, 7);
  const FlatSpace space(model_->parameter_count(), 7);
  const SampleSchedule schedule(kSamples, kBatch, kLeaves);
  BatchReader reader(data_.get(), kSeed, kBatch / kLeaves);
  const std::vector<std::unique_ptr<Model>> models = MakeDevices(2);
  MicroBatches micro_batches(Pointers(models), &space, &reader, kSeed);
  for (int repetition = 0; repetition < 20; ++repetition) {
    std::vector<float> sum(space.values());
    int pushed = 0;
    const auto push = [&](int64_t block, const Payload& payload) {
      ++pushed;
      std::copy(payload.values().begin(), payload.values().end(),
                sum.begin() + space.BlockValues(block).begin);
    };
    absl::Mutex mutex;
    bool told = false;
    const auto caller = std::this_thread::get_id();
    const auto await = [&](Range) {
      absl::MutexLock lock(&mutex);
      if (std::this_thread::get_id() != caller) return told = true;
      mutex.Await(absl::Condition(&told));
      return false;
    };
    EXPECT_THAT(micro_batches.Compute(schedule, 0, {0, 5}, parameters_, push, await),
                IsError(absl::StatusCode::kCancelled, ::testing::_));
    EXPECT_EQ(pushed, 0);
    RUBATO_ASSERT_OK(micro_batches.Compute(schedule, 0, {0, 5}, parameters_, push));
    EXPECT_EQ(sum, expected);
  }
}

// The oracle: one batch in double precision over the samples that the definition of the order
// names; it is divided by the weights of the labels that are not ignored.
TEST_F(MicroBatchesTest, TheSumIsThatOfTheStepsSamples) {
  const std::vector<float> weights = {0.5, 3, 2, 0.25, 1};
  for (const auto& [ignored, weighs] :
       {std::pair(-1, false), {0, false}, {1, false}, {-1, true}, {1, true}}) {
    objective_.ignore_index = ignored;
    objective_.class_weights.clear();
    if (weighs)
      objective_.class_weights.assign(weights.begin(), weights.begin() + objective_.outputs);
    Use("layers { relu {} }");
    auto model = Model::Create(config_, {1, 2, 3}, objective_, kBatch, DType::kFloat64);
    RUBATO_ASSERT_OK(model);
    const std::vector<double> parameters(parameters_.begin(), parameters_.end());
    std::map<int64_t, std::vector<float>> sums;
    for (int64_t unit = 0; unit < 6; ++unit) {
      SCOPED_TRACE(absl::StrCat("unit ", unit, ", ignored: ", ignored, ", weights: ", weighs));
      const int64_t epoch = unit / 3, begin = unit % 3 * kBatch;
      std::vector<double> features;
      std::vector<int32_t> labels;
      for (int64_t i = begin; i < std::min(begin + kBatch, kSamples); ++i) {
        const int64_t sample = SampleAt(kSeed, epoch, i, kSamples);
        for (int j = 0; j < 6; ++j) {
          features.push_back(data_->examples().pixels[sample * 6 + j] / 255.0);
        }
        labels.push_back(data_->examples().labels[sample]);
      }
      std::vector<double> expected(parameters.size());
      (*model)->Gradient(parameters, features, {labels}, /*key=*/0, TensorRef(expected),
                         [](int64_t) {});
      double counted = 0;
      for (const int32_t label : labels) {
        if (label != ignored) counted += weighs ? weights[label] : 1;
      }
      for (double& value : expected) value *= static_cast<double>(labels.size()) / counted;
      sums[unit] = Sum(unit, {{0, 2}, {2, 5}}, 16);
      EXPECT_EQ(samples_, static_cast<int64_t>(labels.size()));
      EXPECT_EQ(Sum(unit, {{0, 5}}, 7, /*ahead=*/2, /*threads=*/3), sums[unit]);
      double scale = 0;
      for (double value : expected) scale = std::max(scale, std::abs(value));
      for (size_t i = 0; i < expected.size(); ++i) {
        EXPECT_NEAR(sums[unit][i], expected[i], 1e-5 * scale) << "value " << i;
      }
    }
    for (const int keeps : {0, WaitingSums(kLeaves)}) {
      UseDevice(keeps);
      for (int repetition = 0; repetition < 3; ++repetition) {  // recorded from the second on
        for (const auto& [unit, expected] : sums) {
          const std::vector<float> sum = Sum(unit, {{0, 2}, {2, 5}}, 16);
          for (size_t i = 0; i < sum.size(); ++i) ASSERT_NEAR(sum[i], expected[i], 1e-5);
        }
      }
    }
  }
}

}  // namespace
}  // namespace rubato
