#include "worker/data/load.h"

#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "common/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/data/glyphs.h"

namespace rubato {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::SizeIs;

proto::Data Glyphs() {
  proto::Data config;
  config.set_format(proto::Data::FORMAT_GLYPHS);
  config.set_train_size(30);
  config.set_test_size(20);
  return config;
}

TEST(LoadDataTest, DrawsAsManyGlyphsAsAsked) {
  const auto data = LoadData(Glyphs());
  RUBATO_ASSERT_OK(data);
  EXPECT_EQ(data->train.size(), 30);
  EXPECT_EQ(data->test.size(), 20);
  EXPECT_EQ(data->train.classes(), 10);
  EXPECT_EQ(data->train.shape(), (ExampleShape{1, 28, 28}));
  EXPECT_EQ(data->train.examples().pixels, DrawGlyphs(0, "train", 30).pixels);
  EXPECT_EQ(data->test.examples().pixels, DrawGlyphs(0, "test", 20).pixels);
}

TEST(LoadDataTest, DigestTellsExamplesApartAndNothingElse) {
  const std::string digest = LoadData(Glyphs())->digest;
  EXPECT_THAT(digest, SizeIs(64));

  proto::Data same = Glyphs();
  same.mutable_normalize()->add_mean(0.5);
  same.mutable_normalize()->add_std(0.25);
  same.set_path("/somewhere");
  EXPECT_EQ(LoadData(same)->digest, digest);

  proto::Data other_seed = Glyphs(), other_train = Glyphs(), other_test = Glyphs();
  other_seed.set_seed(1);
  other_train.set_train_size(31);
  other_test.set_test_size(21);
  for (const proto::Data& config : {other_seed, other_train, other_test}) {
    EXPECT_NE(LoadData(config)->digest, digest);
  }
}

TEST(LoadDataTest, LeavesPixelsBetweenZeroAndOneUnlessAskedToNormalise) {
  proto::Data config = Glyphs();
  const auto plain = LoadData(config);
  config.mutable_normalize()->add_mean(0.5);
  config.mutable_normalize()->add_std(0.25);
  const auto normalised = LoadData(config);
  RUBATO_ASSERT_OK(normalised);
  std::vector<float> x(784), y(784);
  int32_t label;
  plain->train.Read({3}, x.data(), &label);
  EXPECT_THAT(x, Each(testing::AllOf(testing::Ge(0), testing::Le(1))));
  for (const Dataset* dataset : {&normalised->train, &normalised->test}) {
    (dataset == &normalised->train ? plain->train : plain->test).Read({3}, x.data(), &label);
    dataset->Read({3}, y.data(), &label);
    for (int i = 0; i < 784; ++i) EXPECT_EQ(y[i], (x[i] - 0.5f) / 0.25f);
  }
}

TEST(LoadDataTest, RefusesAsManyMeansAsThereAreNoChannels) {
  proto::Data config = Glyphs();
  for (double mean : {0.5, 0.4, 0.3}) config.mutable_normalize()->add_mean(mean);
  config.mutable_normalize()->add_std(0.25);
  EXPECT_THAT(LoadData(config),
              IsError(absl::StatusCode::kInvalidArgument,
                      HasSubstr("found 3 entries of mean and 1 of std, expected 1 of each")));
}

TEST(LoadDataTest, RefusesADeviationThatVanishesInFloat32) {
  proto::Data config = Glyphs();
  config.mutable_normalize()->add_mean(0);
  config.mutable_normalize()->add_std(1e-50);
  EXPECT_THAT(LoadData(config),
              IsError(absl::StatusCode::kInvalidArgument, HasSubstr("found mean 0 and std 1e-50")));
}

TEST(LoadDataTest, PassesOnWhatIsWrongWithAnIdxFolder) {
  proto::Data config;
  config.set_format(proto::Data::FORMAT_IDX);
  config.set_path("/nonexistent/folder");
  EXPECT_THAT(LoadData(config),
              IsError(absl::StatusCode::kNotFound, HasSubstr("/nonexistent/folder")));
}

TEST(LoadDataTest, ReadsAnIdxFolder) {
  const char* root = std::getenv("RUBATO_TEST_DATA");
  if (root == nullptr) GTEST_SKIP() << "RUBATO_TEST_DATA is not set";
  proto::Data config;
  config.set_format(proto::Data::FORMAT_IDX);
  config.set_path(absl::StrCat(root, "/fashion-mnist"));
  const auto data = LoadData(config);
  RUBATO_ASSERT_OK(data);
  EXPECT_EQ(data->train.size(), 60000);
  EXPECT_EQ(data->test.size(), 10000);
}

}  // namespace
}  // namespace rubato
