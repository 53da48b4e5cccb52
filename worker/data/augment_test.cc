#include "worker/data/augment.h"

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

using ::testing::ElementsAre;

constexpr int64_t kHeight = 4, kWidth = 5;

// Pixel (row, column) of channel c is 100 c + 10 row + column + 1; the background -1 and -2.
std::vector<float> Image() {
  std::vector<float> image;
  for (int c = 0; c < 2; ++c) {
    for (int i = 0; i < kHeight * kWidth; ++i)
      image.push_back(100 * c + 10 * (i / kWidth) + i % kWidth + 1);
  }
  return image;
}

std::vector<float> Augmented(const Augmentation& augmentation, uint64_t key) {
  std::vector<float> image = Image(), scratch;
  const std::vector<float> background = {-1, -2};
  Augment(augmentation, key, kHeight, kWidth, background, absl::MakeSpan(image), &scratch);
  return image;
}

// The image by the definition: padded on all sides, cut at (top, left), mirrored.
std::vector<float> ByDefinition(int64_t padding, int64_t top, int64_t left, bool mirrored) {
  const std::vector<float> image = Image();
  std::vector<float> result;
  for (int c = 0; c < 2; ++c) {
    std::vector<std::vector<float>> padded(kHeight + 2 * padding,
                                           std::vector<float>(kWidth + 2 * padding, -1 - c));
    for (int y = 0; y < kHeight; ++y) {
      for (int x = 0; x < kWidth; ++x) {
        padded[y + padding][x + padding] = image[(c * kHeight + y) * kWidth + x];
      }
    }
    for (int y = 0; y < kHeight; ++y) {
      for (int x = 0; x < kWidth; ++x) {
        result.push_back(padded[y + top][left + (mirrored ? kWidth - 1 - x : x)]);
      }
    }
  }
  return result;
}

TEST(Augment, IsACropOfThePaddedImageMirroredOrNotAllEquallyOften) {
  constexpr int64_t kPadding = 2;
  std::map<std::vector<float>, int> counts;
  for (int64_t top = 0; top <= 2 * kPadding; ++top) {
    for (int64_t left = 0; left <= 2 * kPadding; ++left) {
      for (bool mirrored : {false, true}) counts[ByDefinition(kPadding, top, left, mirrored)] = 0;
    }
  }
  ASSERT_EQ(counts.size(), 50u);
  constexpr int kDraws = 20000;
  for (int key = 0; key < kDraws; ++key) {
    const auto found = counts.find(Augmented({kPadding, true}, key * 7919u));
    ASSERT_NE(found, counts.end());
    ++found->second;
  }
  // 400 each; five standard deviations of a binomial are 99.
  for (const auto& [image, count] : counts) EXPECT_NEAR(count, kDraws / 50, 100);
}

TEST(Augment, IsAFunctionOfItsKey) {
  EXPECT_EQ(Augmented({3, true}, 11), Augmented({3, true}, 11));
  std::set<std::vector<float>> different;
  for (uint64_t key = 0; key < 40; ++key) different.insert(Augmented({3, true}, key));
  EXPECT_GT(different.size(), 20u);
}

TEST(Augment, WithoutSettingsNothingChanges) {
  for (uint64_t key = 0; key < 50; ++key) EXPECT_EQ(Augmented({}, key), Image());
}

}  // namespace
}  // namespace rubato
