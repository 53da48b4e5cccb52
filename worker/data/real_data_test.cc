// Data sets as people have them, against what their authors or other programs say of them.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>

#include "absl/strings/str_cat.h"
#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/data/csv.h"
#include "worker/data/load.h"

namespace rubato {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

class RealDataTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* root = std::getenv("RUBATO_TEST_DATA");
    if (root == nullptr) GTEST_SKIP() << "RUBATO_TEST_DATA is not set";
    root_ = root;
  }

  // A job on two files, or on one of which a fifth is the test split.
  proto::Job Job(proto::Data::Format format, const std::string& path, const std::string& test) {
    proto::Job job;
    proto::Data& config = *job.mutable_data();
    config.set_format(format);
    config.set_path(absl::StrCat(root_, "/", path));
    if (test.empty()) {
      config.set_test_fraction(0.2);
    } else {
      config.set_test_path(absl::StrCat(root_, "/", test));
    }
    return job;
  }

  static std::map<int32_t, int> Histogram(const Dataset& dataset) {
    std::map<int32_t, int> histogram;
    for (const int32_t label : dataset.examples().labels) ++histogram[label];
    return histogram;
  }

  std::string root_;
};

// Counts: the data set's README.
TEST_F(RealDataTest, ReadsCaliforniaHousing) {
  proto::Job job = Job(proto::Data::FORMAT_CSV, "california-housing/housing.csv", "");
  job.mutable_data()->set_target("ocean_proximity");
  proto::Data& config = *job.mutable_data();
  EXPECT_THAT(LoadData(job),
              IsError(absl::StatusCode::kInvalidArgument,
                      HasSubstr("housing.csv:292: column total_bedrooms: found \"\", a missing "
                                "value, expected a number")));
  config.set_impute(proto::Data::IMPUTE_DROP);
  auto data = LoadData(job);
  RUBATO_ASSERT_OK(data);
  EXPECT_EQ(data->train.size() + data->test.size(), 20640 - 207);
  config.set_impute(proto::Data::IMPUTE_MEAN);
  data = LoadData(job);
  RUBATO_ASSERT_OK(data);
  EXPECT_EQ(data->train.size(), 16512);
  EXPECT_EQ(data->test.size(), 4128);
  EXPECT_EQ(data->train.shape(), (ExampleShape{9, 0, 0}));
  EXPECT_THAT(data->classes,
              ElementsAre("<1H OCEAN", "INLAND", "ISLAND", "NEAR BAY", "NEAR OCEAN"));
  // The mean price, column 8, of the test split that tools/scripts/train_in_pytorch.py picks by its
  // own implementation of the permutation.
  double price = 0;
  for (int64_t i = 0; i < 4128; ++i) price += data->test.examples().features[9 * i + 8];
  EXPECT_NEAR(price / 4128, 205633.25601947575, 0.01);
  std::map<int32_t, int> histogram = Histogram(data->train);
  for (const auto& [label, count] : Histogram(data->test)) histogram[label] += count;
  EXPECT_THAT(histogram,
              ElementsAre(Pair(0, 9136), Pair(1, 6551), Pair(2, 5), Pair(3, 2290), Pair(4, 2658)));
}

// Means by awk.
TEST_F(RealDataTest, ReadsThePricesOfCaliforniaHousing) {
  proto::Job job = Job(proto::Data::FORMAT_CSV, "california-housing/housing.csv", "");
  job.mutable_data()->set_target("median_house_value");
  job.mutable_data()->add_categorical("ocean_proximity");
  job.mutable_data()->set_target_scale(1e5);
  job.mutable_data()->set_impute(proto::Data::IMPUTE_MEAN);
  const auto source = ReadCsv(job.data(), /*classification=*/false);
  RUBATO_ASSERT_OK(source);
  EXPECT_THAT(
      source->columns,
      ElementsAre("longitude", "latitude", "housing_median_age", "total_rooms", "total_bedrooms",
                  "population", "households", "median_income", "ocean_proximity=<1H OCEAN",
                  "ocean_proximity=INLAND", "ocean_proximity=ISLAND", "ocean_proximity=NEAR BAY",
                  "ocean_proximity=NEAR OCEAN"));
  ASSERT_EQ(source->train.size(), 20640);
  double price = 0, income = 0;
  int missing = 0;
  for (int64_t i = 0; i < 20640; ++i) {
    price += source->train.values[i];
    income += source->train.features[13 * i + 7];
    missing += std::isnan(source->train.features[13 * i + 4]);
  }
  EXPECT_NEAR(price / 20640, 2.06855816909, 1e-6);
  EXPECT_NEAR(income / 20640, 3.870671003, 1e-6);
  EXPECT_EQ(missing, 207);
}

TEST_F(RealDataTest, NormalisesCaliforniaHousingOverTheTrainingSplit) {
  proto::Job job = Job(proto::Data::FORMAT_CSV, "california-housing/housing.csv", "");
  job.mutable_data()->set_target("ocean_proximity");
  job.mutable_data()->set_impute(proto::Data::IMPUTE_MEAN);
  job.mutable_data()->mutable_normalize()->set_by(proto::Normalize::BY_AUTO);
  const auto data = LoadData(job);
  RUBATO_ASSERT_OK(data);
  std::vector<int64_t> all(data->train.size());
  for (size_t i = 0; i < all.size(); ++i) all[i] = i;
  std::vector<float> features(all.size() * 9);
  std::vector<int32_t> labels(all.size());
  data->train.Read(all, features.data(), labels.data());
  for (int column = 0; column < 9; ++column) {
    double sum = 0, squares = 0;
    for (size_t i = 0; i < all.size(); ++i) {
      sum += features[9 * i + column];
      squares += std::pow(features[9 * i + column], 2);
    }
    EXPECT_NEAR(sum / all.size(), 0, 1e-5) << data->columns[column];
    EXPECT_NEAR(squares / all.size(), 1, 1e-5) << data->columns[column];
  }
}

// `cut -d' ' -f1 agaricus.txt.train | sort | uniq -c`; largest index by awk.
TEST_F(RealDataTest, ReadsAgaricus) {
  const auto data = LoadData(
      Job(proto::Data::FORMAT_LIBSVM, "agaricus/agaricus.txt.train", "agaricus/agaricus.txt.test"));
  RUBATO_ASSERT_OK(data);
  EXPECT_EQ(data->train.size(), 6513);
  EXPECT_EQ(data->test.size(), 1611);
  EXPECT_EQ(data->train.shape(), (ExampleShape{126, 0, 0}));
  EXPECT_THAT(Histogram(data->train), ElementsAre(Pair(0, 3373), Pair(1, 3140)));
  EXPECT_THAT(Histogram(data->test), ElementsAre(Pair(0, 835), Pair(1, 776)));
  // A mushroom has each of its 22 traits once.
  double sum = 0;
  for (const float x : data->train.examples().features) sum += x;
  EXPECT_EQ(sum, 22 * 6513);
}

TEST_F(RealDataTest, ReadsHiggsWithTabsAndWithoutAHeader) {
  proto::Job job =
      Job(proto::Data::FORMAT_CSV, "higgs-sample/binary.train", "higgs-sample/binary.test");
  job.mutable_data()->set_header(false);
  job.mutable_data()->set_separator("\t");
  job.mutable_data()->set_target("1");
  const auto data = LoadData(job);
  RUBATO_ASSERT_OK(data);
  EXPECT_EQ(data->train.size(), 7000);
  EXPECT_EQ(data->test.size(), 500);
  EXPECT_EQ(data->train.shape(), (ExampleShape{28, 0, 0}));
  EXPECT_THAT(Histogram(data->train), ElementsAre(Pair(0, 3284), Pair(1, 3716)));
  EXPECT_EQ(data->train.examples().features[0], 0.869f);
  EXPECT_EQ(data->train.examples().features[27], 0.877f);
}

// The classes' counts: optdigits.names, 6.
TEST_F(RealDataTest, ReadsOptdigits) {
  proto::Job job =
      Job(proto::Data::FORMAT_CSV, "optdigits/optdigits.tra", "optdigits/optdigits.tes");
  job.mutable_data()->set_header(false);
  job.mutable_data()->set_target("65");
  const auto data = LoadData(job);
  RUBATO_ASSERT_OK(data);
  EXPECT_EQ(data->train.size(), 3823);
  EXPECT_EQ(data->test.size(), 1797);
  EXPECT_EQ(data->train.shape(), (ExampleShape{64, 0, 0}));
  EXPECT_THAT(Histogram(data->train),
              ElementsAre(Pair(0, 376), Pair(1, 389), Pair(2, 380), Pair(3, 389), Pair(4, 387),
                          Pair(5, 376), Pair(6, 377), Pair(7, 387), Pair(8, 380), Pair(9, 382)));
}

// 1,115,394 bytes of ASCII with 65 distinct characters: `wc -c`, `fold -w1 | sort -u | wc -l`.
TEST_F(RealDataTest, ReadsTinyShakespeare) {
  proto::Job job = Job(proto::Data::FORMAT_TEXT, "tinyshakespeare/input.txt", "");
  job.mutable_data()->set_context(64);
  const auto data = LoadData(job);
  RUBATO_ASSERT_OK(data);
  EXPECT_EQ(data->classes.size(), 65u);
  EXPECT_EQ(data->classes[0], "\n");
  EXPECT_EQ(data->classes[64], "z");
  EXPECT_EQ(data->train.size() + data->test.size(), (1115394 - 1) / 64);
  EXPECT_EQ(data->train.labels_each(), 64);
}

TEST_F(RealDataTest, FindsTheMomentsOfFashionMnist) {
  proto::Job job;
  job.mutable_data()->set_format(proto::Data::FORMAT_IDX);
  job.mutable_data()->set_path(absl::StrCat(root_, "/fashion-mnist"));
  job.mutable_data()->mutable_validation()->set_fraction(0.1);
  job.mutable_data()->mutable_normalize()->set_by(proto::Normalize::BY_AUTO);
  const auto data = LoadData(job);
  RUBATO_ASSERT_OK(data);
  EXPECT_EQ(data->train.size(), 54000);
  EXPECT_EQ(data->validation.size(), 6000);
  // Black is -mean / std, white (1 - mean) / std; over all 60,000, mean 0.2860 and deviation
  // 0.3530.
  std::vector<float> features(784);
  std::vector<int32_t> label(1);
  data->train.Read({0}, features.data(), label.data());
  EXPECT_NEAR(*std::min_element(features.begin(), features.end()), -0.2860 / 0.3530, 0.005);
}

}  // namespace
}  // namespace rubato
