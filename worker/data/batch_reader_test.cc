#include "worker/data/batch_reader.h"

#include <map>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

using ::testing::AnyOf;
using ::testing::ElementsAre;

constexpr int64_t kSize = 40;

// 40 images of two pixels: the one to the left is the image's own number.
Dataset Images(const Augmentation& augmentation) {
  Examples examples;
  examples.shape = {1, 1, 2};
  examples.classes = kSize;
  for (int i = 0; i < kSize; ++i) {
    examples.pixels.insert(examples.pixels.end(), {static_cast<uint8_t>(i + 1), 0});
    examples.labels.push_back(i);
  }
  return Dataset(examples, {{0}, {1}}, augmentation);
}

float PixelOf(int64_t image) { return static_cast<float>(image + 1) / 255; }

// Whether each image, by its label, is mirrored in an epoch that is read `piece` images at a time.
std::map<int32_t, bool> Mirrored(BatchReader* reader, int64_t epoch, int64_t piece) {
  std::map<int32_t, bool> mirrored;
  for (int64_t begin = 0; begin < kSize; begin += piece) {
    reader->Announce({epoch, {begin, begin + piece}});
  }
  for (int64_t begin = 0; begin < kSize; begin += piece) {
    Batch batch;
    reader->ReadShuffled({epoch, {begin, begin + piece}}, &batch);
    for (int64_t i = 0; i < piece; ++i) {
      const int32_t label = batch.labels[i];
      const float left = batch.features[2 * i], right = batch.features[2 * i + 1];
      const float own = PixelOf(label);
      EXPECT_THAT((std::vector<float>{left, right}),
                  AnyOf(ElementsAre(own, 0), ElementsAre(0, own)));
      mirrored[label] = left == 0;
    }
  }
  return mirrored;
}

TEST(BatchReaderTest, AnAugmentationIsOfSeedEpochAndExampleHoweverBatchesAreCut) {
  const Dataset images = Images({0, true});
  BatchReader reader(&images, /*seed=*/7, kSize);
  const std::map<int32_t, bool> mirrored = Mirrored(&reader, 3, kSize);
  EXPECT_EQ(mirrored.size(), static_cast<size_t>(kSize));
  for (const int64_t ahead : {0, 2}) {
    BatchReader pieces(&images, /*seed=*/7, kSize, ahead);
    EXPECT_EQ(Mirrored(&pieces, 3, 5), mirrored) << ahead;
  }
  EXPECT_NE(Mirrored(&reader, 4, kSize), mirrored);
  BatchReader other(&images, /*seed=*/8, kSize);
  EXPECT_NE(Mirrored(&other, 3, kSize), mirrored);
}

TEST(BatchReaderTest, ATestHasTheImagesAsTheyAre) {
  const Dataset images = Images({1, true});
  BatchReader reader(&images, /*seed=*/7, kSize);
  reader.ReadInOrder({10, 30});
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(reader.labels()[i], 10 + i);
    EXPECT_EQ(reader.features()[2 * i], PixelOf(10 + i));
    EXPECT_EQ(reader.features()[2 * i + 1], 0);
  }
}

}  // namespace
}  // namespace rubato
