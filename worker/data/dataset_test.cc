#include "worker/data/dataset.h"

#include <set>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

using ::testing::ElementsAre;

Examples ThreeExamples() {
  Examples examples;
  examples.shape = {1, 1, 2};
  examples.classes = 10;
  examples.pixels = {0, 255, 51, 102, 128, 1};
  examples.labels = {7, 0, 9};
  return examples;
}

TEST(DatasetTest, KnowsItsSizes) {
  const Dataset dataset(ThreeExamples(), {{0}, {1}});
  EXPECT_EQ(dataset.size(), 3);
  EXPECT_EQ(dataset.classes(), 10);
  EXPECT_EQ(dataset.shape().size(), 2);
}

TEST(DatasetTest, ReadsWhatIsAskedForInThatOrderScaled) {
  const Dataset dataset(ThreeExamples(), {{0}, {1}});
  std::vector<float> features(6);
  std::vector<int32_t> labels(3);
  dataset.Read({1, 0, 1}, features.data(), labels.data());
  EXPECT_THAT(features, ElementsAre(0.2f, 0.4f, 0, 1, 0.2f, 0.4f));
  EXPECT_THAT(labels, ElementsAre(0, 7, 0));
}

// Expected: torchvision's arithmetic by PyTorch 1.13,
// (torch.tensor([0, 255, 51, 102, 128, 1]).float() / 255 - .2860) / .3530, bit for bit.
TEST(DatasetTest, NormalisesToTheBitsOfPyTorch) {
  const Dataset dataset(ThreeExamples(), {{0.2860f}, {0.3530f}});
  std::vector<float> features(6);
  std::vector<int32_t> labels(3);
  dataset.Read({0, 1, 2}, features.data(), labels.data());
  EXPECT_THAT(features,
              ElementsAre(-0x1.9ed2520000000p-1f, 0x1.02e69e0000000p+1f, -0x1.f2f23e0000000p-3f,
                          0x1.4ab2660000000p-2f, 0x1.393c260000000p-1f, -0x1.9922360000000p-1f));
}

TEST(DatasetTest, NormalisesEachChannelByItsOwn) {
  Examples examples;
  examples.shape = {2, 1, 2};
  examples.classes = 1;
  examples.pixels = {0, 255, 0, 255};
  examples.labels = {0};
  const Dataset dataset(examples, {{0.5f, 0.25f}, {0.5f, 0.25f}});
  std::vector<float> features(4);
  int32_t label;
  dataset.Read({0}, features.data(), &label);
  EXPECT_THAT(features, ElementsAre(-1, 1, -1, 3));
}

TEST(DatasetTest, ReadsRowsOfFloatsAndValues) {
  Examples examples;
  examples.shape = {2, 0, 0};
  examples.features = {1, 10, 2, 20, 3, 30};
  examples.values = {0.5f, 1.5f, 2.5f};
  const Dataset dataset(examples, {{1, 0}, {2, 10}});
  EXPECT_EQ(dataset.size(), 3);
  EXPECT_EQ(dataset.classes(), 0);
  EXPECT_EQ(dataset.shape().size(), 2);
  EXPECT_THAT(dataset.shape().dimensions(), ElementsAre(2));
  std::vector<float> features(4), values(2);
  dataset.Read({2, 0}, features.data(), nullptr, values.data());
  EXPECT_THAT(features, ElementsAre(1, 3, 0, 1));
  EXPECT_THAT(values, ElementsAre(2.5f, 0.5f));
}

TEST(DatasetTest, ReadsAsManyLabelsAsAnExampleHas) {
  Examples examples;
  examples.shape = {2, 0, 0};
  examples.classes = 3;
  examples.labels_each = 2;
  examples.features = {0, 1, 1, 2};
  examples.labels = {1, 2, 2, 0};
  const Dataset dataset(examples, {{0, 0}, {1, 1}});
  EXPECT_EQ(dataset.size(), 2);
  std::vector<float> features(2);
  std::vector<int32_t> labels(2);
  dataset.Read({1}, features.data(), labels.data());
  EXPECT_THAT(labels, ElementsAre(2, 0));
}

// Black is no 0 where images are normalised.
TEST(DatasetTest, PadsImagesWithBlackWhateverTheirNormalisation) {
  Examples examples;
  examples.shape = {2, 1, 1};
  examples.classes = 1;
  examples.pixels = {255, 255};
  examples.labels = {0};
  const Dataset dataset(examples, {{0.5f, 0.25f}, {0.5f, 0.25f}}, {/*crop_padding=*/2, false});
  std::set<std::vector<float>> seen;
  for (uint64_t key = 0; key < 40; ++key) {
    std::vector<float> features(2);
    int32_t label;
    dataset.Read({0}, features.data(), &label, nullptr, key);
    seen.insert(features);
  }
  EXPECT_THAT(seen, ElementsAre(ElementsAre(-1, -1), ElementsAre(1, 3)));
}

TEST(DatasetTest, MayBeEmpty) {
  Examples examples;
  examples.shape = {1, 28, 28};
  EXPECT_EQ(Dataset(examples, {{0}, {1}}).size(), 0);
}

TEST(DatasetDeathTest, RefusesIndicesThatItDoesNotHave) {
  const Dataset dataset(ThreeExamples(), {{0}, {1}});
  float features[2];
  int32_t label;
  EXPECT_DEATH(dataset.Read({3}, features, &label), "index < size");
  EXPECT_DEATH(dataset.Read({-1}, features, &label), "index >= 0");
}

}  // namespace
}  // namespace rubato
