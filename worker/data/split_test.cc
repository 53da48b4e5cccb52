#include "worker/data/split.h"

#include <algorithm>

#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

using ::testing::HasSubstr;
using ::testing::UnorderedElementsAreArray;

// Row i is {2i, 2i + 1}, its label i.
Examples Make(int size) {
  Examples examples;
  examples.shape = {2, 0, 0};
  examples.classes = 1000;
  for (int i = 0; i < size; ++i) {
    examples.features.insert(examples.features.end(), {2.0f * i, 2.0f * i + 1});
    examples.labels.push_back(i);
  }
  return examples;
}

TEST(SplitTest, CutsIntoTwoPartsThatShareNothing) {
  Examples rest = Make(100);
  const auto taken = TakeFraction(0.3, 7, "key", &rest);
  RUBATO_ASSERT_OK(taken);
  EXPECT_EQ(taken->size(), 30);
  EXPECT_EQ(rest.size(), 70);
  std::vector<int32_t> all = rest.labels;
  all.insert(all.end(), taken->labels.begin(), taken->labels.end());
  EXPECT_THAT(all, UnorderedElementsAreArray(Make(100).labels));
  for (const Examples& part : {rest, *taken}) {
    EXPECT_TRUE(std::is_sorted(part.labels.begin(), part.labels.end()));
    for (int64_t i = 0; i < part.size(); ++i) {
      EXPECT_EQ(part.features[2 * i], 2 * part.labels[i]);
      EXPECT_EQ(part.features[2 * i + 1], 2 * part.labels[i] + 1);
    }
  }
}

// Of a set that fills the memory there cannot be two.
TEST(SplitTest, WhatStaysIsNotCopied) {
  Examples rest = Make(100);
  const float* const features = rest.features.data();
  RUBATO_ASSERT_OK(TakeFraction(0.3, 7, "key", &rest));
  EXPECT_EQ(rest.features.data(), features);
  RUBATO_ASSERT_OK(TakeEnd(0.3, "key", &rest));
  EXPECT_EQ(rest.features.data(), features);
}

TEST(SplitTest, IsAFunctionOfTheKey) {
  Examples a = Make(100), b = Make(100), c = Make(100);
  EXPECT_EQ(TakeFraction(0.3, 7, "key", &a)->labels, TakeFraction(0.3, 7, "key", &b)->labels);
  EXPECT_NE(TakeFraction(0.3, 8, "key", &c)->labels, b.labels);
  EXPECT_NE(c.labels, b.labels);
}

// Each example is as likely as any other: of 1000 keys, each of 20 is among 5 about 250 times,
// with a deviation of 13.7.
TEST(SplitTest, PrefersNoExample) {
  std::vector<int> counts(20);
  for (uint64_t key = 0; key < 1000; ++key) {
    Examples rest = Make(20);
    const auto taken = TakeFraction(0.25, key, "key", &rest);
    RUBATO_ASSERT_OK(taken);
    for (const int32_t label : taken->labels) ++counts[label];
  }
  for (const int count : counts) EXPECT_NEAR(count, 250, 5 * 13.7);
}

TEST(SplitTest, TheEndIsTheEnd) {
  Examples rest = Make(20);
  const std::vector<int32_t> all = rest.labels;
  const auto end = TakeEnd(0.15, "key", &rest);
  RUBATO_ASSERT_OK(end);
  EXPECT_EQ(end->labels, std::vector<int32_t>(all.end() - 3, all.end()));
  EXPECT_EQ(rest.labels, std::vector<int32_t>(all.begin(), all.end() - 3));
  EXPECT_THAT(TakeEnd(0.01, "data.test_fraction", &rest),
              IsError(absl::StatusCode::kInvalidArgument, HasSubstr("expected at least one")));
}

TEST(SplitTest, RefusesPartsWithoutExamples) {
  for (const double fraction : {0.01, 0.99}) {
    Examples few = Make(3);
    EXPECT_THAT(TakeFraction(fraction, 0, "data.validation.fraction", &few),
                IsError(absl::StatusCode::kInvalidArgument,
                        HasSubstr("of 3 examples, expected at least one and not all")));
  }
}

}  // namespace
}  // namespace rubato
