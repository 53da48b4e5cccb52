#include "worker/data/glyphs.h"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "common/base/digest.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

constexpr int kPixels = 28 * 28;

std::string Image(const Examples& examples, int64_t index) {
  const uint8_t* pixels = examples.pixels.data() + index * kPixels;
  return std::string(pixels, pixels + kPixels);
}

std::string Digest(const Examples& examples) {
  Sha256 digest;
  const std::vector<uint8_t> labels(examples.labels.begin(), examples.labels.end());
  for (const std::vector<uint8_t>* bytes : {&examples.pixels, &labels}) {
    digest.Update({reinterpret_cast<const char*>(bytes->data()), bytes->size()});
  }
  return digest.FinishHex();
}

// If this fails, kGlyphsVersion must rise with the new values: runs compare by it.
TEST(GlyphsTest, KeepsItsBits) {
  EXPECT_EQ(kGlyphsVersion, 1);
  EXPECT_EQ(Digest(DrawGlyphs(0, "train", 100)),
            "91fee896c01a80469b45bad93083250fe375b30706b4e184eccdbf7d064a6bf8");
  EXPECT_EQ(Digest(DrawGlyphs(0, "test", 100)),
            "9b2322d5472c969e886fcc9d127a4d36603fb524ddd3ea9e58a50dfd8cf16d55");
}

TEST(GlyphsTest, AnExampleDoesNotDependOnHowManyAreDrawn) {
  const Examples few = DrawGlyphs(3, "train", 25), many = DrawGlyphs(3, "train", 50);
  ASSERT_EQ(few.pixels.size(), 25u * kPixels);
  EXPECT_TRUE(std::equal(few.pixels.begin(), few.pixels.end(), many.pixels.begin()));
  EXPECT_TRUE(std::equal(few.labels.begin(), few.labels.end(), many.labels.begin()));
}

TEST(GlyphsTest, NoImageIsDrawnTwiceInAnySplitOrSeed) {
  std::set<std::string> images;
  for (uint64_t seed : {0, 1}) {
    const Examples train = DrawGlyphs(seed, "train", 20000), test = DrawGlyphs(seed, "test", 5000);
    for (int64_t i = 0; i < 20000; ++i) images.insert(Image(train, i));
    for (int64_t i = 0; i < 5000; ++i) images.insert(Image(test, i));
  }
  EXPECT_EQ(images.size(), 50000u);
}

TEST(GlyphsTest, EachRunOfTenHoldsEachClassInAnOrderOfItsOwn) {
  const Examples examples = DrawGlyphs(5, "test", 1000);
  EXPECT_EQ(examples.classes, 10);
  std::set<std::vector<uint8_t>> orders;
  for (auto run = examples.labels.begin(); run != examples.labels.end(); run += 10) {
    orders.emplace(run, run + 10);
    EXPECT_EQ(std::set<uint8_t>(run, run + 10).size(), 10u);
    EXPECT_LT(*std::max_element(run, run + 10), 10);
  }
  EXPECT_GT(orders.size(), 95u);  // of 100
}

TEST(GlyphsTest, EveryImageHasInkOnMostlyBlankPaper) {
  constexpr int kCount = 10000;
  const Examples examples = DrawGlyphs(0, "train", kCount);
  for (int64_t i = 0; i < kCount; ++i) {
    const std::string image = Image(examples, i);
    const auto ink = std::count_if(image.begin(), image.end(),
                                   [](char pixel) { return static_cast<uint8_t>(pixel) > 80; });
    ASSERT_GT(ink, 15) << "example " << i;
    ASSERT_LT(ink, kPixels / 2) << "example " << i;
  }
}

}  // namespace
}  // namespace rubato
