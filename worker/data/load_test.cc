#include "worker/data/load.h"

#include <cmath>
#include <cstdlib>
#include <set>

#include "absl/strings/str_cat.h"
#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/data/glyphs.h"
#include "worker/data/test_files.h"

namespace rubato {
namespace {

using ::testing::DoubleNear;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

proto::Job Glyphs() {
  proto::Job job;
  job.mutable_data()->set_format(proto::Data::FORMAT_GLYPHS);
  job.mutable_data()->set_train_size(30);
  job.mutable_data()->set_test_size(20);
  return job;
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

  proto::Job same = Glyphs();
  same.set_seed(5);
  same.mutable_data()->mutable_normalize()->add_mean(0.5);
  same.mutable_data()->mutable_normalize()->add_std(0.25);
  same.mutable_data()->mutable_validation()->set_fraction(0.5);
  same.mutable_data()->set_path("/somewhere");
  EXPECT_EQ(LoadData(same)->digest, digest);

  proto::Job other_seed = Glyphs(), other_train = Glyphs(), other_test = Glyphs();
  other_seed.mutable_data()->set_seed(1);
  other_train.mutable_data()->set_train_size(31);
  other_test.mutable_data()->set_test_size(21);
  for (const proto::Job& job : {other_seed, other_train, other_test}) {
    EXPECT_NE(LoadData(job)->digest, digest);
  }
}

TEST(LoadDataTest, LeavesPixelsBetweenZeroAndOneUnlessAskedToNormalise) {
  proto::Job job = Glyphs();
  proto::Data& config = *job.mutable_data();
  const auto plain = LoadData(job);
  config.mutable_normalize()->add_mean(0.5);
  config.mutable_normalize()->add_std(0.25);
  const auto normalised = LoadData(job);
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
  proto::Job job = Glyphs();
  proto::Data& config = *job.mutable_data();
  for (double mean : {0.5, 0.4, 0.3}) config.mutable_normalize()->add_mean(mean);
  config.mutable_normalize()->add_std(0.25);
  EXPECT_THAT(LoadData(job),
              IsError(absl::StatusCode::kInvalidArgument,
                      HasSubstr("found 3 entries of mean and 1 of std, expected 1 of each")));
}

TEST(LoadDataTest, RefusesADeviationThatVanishesInFloat32) {
  proto::Job job = Glyphs();
  proto::Data& config = *job.mutable_data();
  config.mutable_normalize()->add_mean(0);
  config.mutable_normalize()->add_std(1e-50);
  EXPECT_THAT(LoadData(job),
              IsError(absl::StatusCode::kInvalidArgument, HasSubstr("found mean 0 and std 1e-50")));
}

TEST(LoadDataTest, KeepsAPartOfTheTrainingExamplesApartByTheJobsSeed) {
  proto::Job job = Glyphs();
  const Examples all = DrawGlyphs(0, "train", 30);
  job.mutable_data()->mutable_validation()->set_fraction(0.2);
  std::set<std::vector<uint8_t>> images;
  std::vector<int32_t> labels[2];
  for (const uint64_t seed : {0, 1}) {
    job.set_seed(seed);
    const auto data = LoadData(job);
    RUBATO_ASSERT_OK(data);
    EXPECT_EQ(data->train.size(), 24);
    EXPECT_EQ(data->validation.size(), 6);
    EXPECT_EQ(data->validation.size(), ValidationSize(job.data(), 30));
    EXPECT_EQ(data->test.size(), 20);
    images.clear();
    for (const Dataset* part : {&data->train, &data->validation}) {
      const std::vector<uint8_t>& pixels = part->examples().pixels;
      for (int64_t i = 0; i < part->size(); ++i) {
        images.emplace(pixels.begin() + 784 * i, pixels.begin() + 784 * (i + 1));
      }
    }
    EXPECT_THAT(images, SizeIs(30)) << "no two glyphs are alike";
    labels[seed] = data->validation.examples().labels;
  }
  EXPECT_NE(labels[0], labels[1]);
}

// The target is y, and `kind` a column of names; missing values are imputed.
proto::Job TableOfClasses(const std::string& path, const std::string& test_path) {
  proto::Job job;
  proto::Data& config = *job.mutable_data();
  config.set_format(proto::Data::FORMAT_CSV);
  config.set_task(proto::Data::TASK_CLASSIFICATION);
  config.set_path(path);
  config.set_test_path(test_path);
  config.set_target("y");
  config.add_categorical("kind");
  config.set_impute(proto::Data::IMPUTE_MEAN);
  config.mutable_normalize()->set_by(proto::Normalize::BY_AUTO);
  return job;
}

// Trained and tested on the same rows.
proto::Job SparseRows(const std::string& path) {
  proto::Job job;
  proto::Data& config = *job.mutable_data();
  config.set_format(proto::Data::FORMAT_LIBSVM);
  config.set_path(path);
  config.set_test_path(path);
  config.set_index_base(1);
  return job;
}

TEST(LoadDataTest, NormalisesByTheTrainingSplitAlone) {
  const TestFolder folder("load_test");
  const proto::Job job =
      TableOfClasses(folder.Write("train.csv", "x,kind,y\n1,a,0\n,b,1\n5,b,1\n3,a,0\n"),
                     folder.Write("test.csv", "x,kind,y\n1001,b,1\n,a,0\n"));
  const auto data = LoadData(job);
  RUBATO_ASSERT_OK(data);
  // 1, 3 (for the missing one), 5, 3: mean 3, deviation sqrt(2).
  const float root = std::sqrt(2.0f);
  std::vector<float> features(12);
  std::vector<int32_t> labels(4);
  data->train.Read({0, 1, 2, 3}, features.data(), labels.data());
  EXPECT_THAT(features, ElementsAre(-2 / root, 1, 0, 0, 0, 1, 2 / root, 0, 1, 0, 1, 0));
  EXPECT_THAT(labels, ElementsAre(0, 1, 1, 0));
  data->test.Read({0, 1}, features.data(), labels.data());
  features.resize(6);
  EXPECT_THAT(features, ElementsAre(998 / root, 0, 1, 0, 1, 0));
}

// Of the ten values that are known no two sets of seven or eight have the same mean.
TEST(LoadDataTest, WhatIsKeptForValidationCountsInNoMean) {
  const TestFolder folder("load_test");
  std::string text = "x,kind,y\n,a,0\n";
  for (int i = 0; i < 10; ++i) absl::StrAppend(&text, 1 << i, ",a,", i % 2, "\n");
  proto::Job job = TableOfClasses(folder.Write("train.csv", text),
                                  folder.Write("test.csv", "x,kind,y\n4096,a,0\n"));
  job.mutable_data()->mutable_validation()->set_fraction(0.3);
  for (const uint64_t seed : {0, 1, 2, 3}) {
    job.set_seed(seed);
    const auto data = LoadData(job);
    RUBATO_ASSERT_OK(data);
    ASSERT_EQ(data->validation.size(), 3);
    double sum = 0, known = 0;
    const std::vector<float>& features = data->train.examples().features;
    for (size_t i = 0; i < features.size(); i += 2) {        // the other column is of `kind`
      if (features[i] != std::floor(features[i])) continue;  // filled in
      sum += features[i];
      ++known;
    }
    EXPECT_GE(known, 7);
    const float mean = static_cast<float>(sum / known);
    EXPECT_THAT(data->description.impute(), ElementsAre(mean));
    EXPECT_THAT(data->description.mean(), ElementsAre(DoubleNear(mean, 1e-6 * mean)));
  }
}

TEST(LoadDataTest, AugmentsTrainingImagesAlone) {
  proto::Job job = Glyphs();
  job.mutable_data()->mutable_validation()->set_fraction(0.2);
  const auto plain = LoadData(job);
  job.mutable_data()->mutable_augment()->set_crop_padding(3);
  job.mutable_data()->mutable_augment()->set_horizontal_flip(true);
  const auto augmented = LoadData(job);
  RUBATO_ASSERT_OK(augmented);
  EXPECT_EQ(augmented->digest, plain->digest);
  const auto is_changed = [&](const Dataset Data::*split) {
    std::vector<float> x(4 * 784), y(4 * 784);
    std::vector<int32_t> labels(4);
    ((*plain).*split).Read({0, 1, 2, 3}, x.data(), labels.data(), nullptr, /*key=*/5);
    ((*augmented).*split).Read({0, 1, 2, 3}, y.data(), labels.data(), nullptr, /*key=*/5);
    return x != y;
  };
  EXPECT_TRUE(is_changed(&Data::train));
  EXPECT_FALSE(is_changed(&Data::validation));
  EXPECT_FALSE(is_changed(&Data::test));
}

// The description of the job's data, as text in the order of its fields.
std::string Described(const proto::Job& job) {
  const auto data = LoadData(job);
  RUBATO_EXPECT_OK(data.status());
  return data.ok() ? data->description.ShortDebugString() : "";
}

TEST(LoadDataTest, DescribesATableOfClasses) {
  const TestFolder folder("load_test");
  const proto::Job job =
      TableOfClasses(folder.Write("train.csv", "x,kind,y,z\n1,b=2,no,8\n5,a,yes,8\n"),
                     folder.Write("test.csv", "z,x,kind,y\n9,,a,yes\n"));
  EXPECT_EQ(Described(job),
            "shape: 4 numeric: \"x\" numeric: \"z\" "
            "categorical { column: \"kind\" names: \"a\" names: \"b=2\" } "
            "impute: 3 impute: 8 mean: 3 mean: 8 std: 2 std: 1 target: \"y\" "
            "classes: \"no\" classes: \"yes\"");
}

TEST(LoadDataTest, DescribesWhatModelsGetNotWhatTheJobSays) {
  const TestFolder folder("load_test");
  proto::Job job;
  proto::Data& config = *job.mutable_data();
  config.set_format(proto::Data::FORMAT_CSV);
  config.set_task(proto::Data::TASK_REGRESSION);
  job.mutable_loss()->set_name(proto::Loss::NAME_MSE);
  config.set_path(folder.Write("train.csv", "x,y\n1,20\n2,30\n"));
  config.set_test_fraction(0.5);
  config.set_target("y");
  config.set_target_scale(10);
  EXPECT_EQ(Described(job), "shape: 1 numeric: \"x\" target: \"y\" target_scale: 10");
  config.mutable_normalize()->add_mean(0.1);
  config.mutable_normalize()->add_std(0.5);
  const auto data = LoadData(job);
  RUBATO_ASSERT_OK(data);
  EXPECT_EQ(data->description.mean(0), static_cast<double>(0.1f)) << "what is computed with";
}

TEST(LoadDataTest, DescribesSparseRows) {
  const TestFolder folder("load_test");
  proto::Job job = SparseRows(folder.Write("t.svm", "10 1:1\n9 3:4\n"));
  EXPECT_EQ(Described(job), "shape: 3 index_base: 1 classes: \"9\" classes: \"10\"");
  job.mutable_data()->mutable_normalize()->set_by(proto::Normalize::BY_AUTO);
  EXPECT_EQ(Described(job),
            "shape: 3 index_base: 1 mean: 0.5 mean: 0 mean: 2 std: 0.5 std: 1 std: 2 "
            "classes: \"9\" classes: \"10\"");
}

TEST(LoadDataTest, DescribesATextByItsCharacters) {
  const TestFolder folder("load_test");
  proto::Job job;
  proto::Data& config = *job.mutable_data();
  config.set_format(proto::Data::FORMAT_TEXT);
  config.set_path(folder.Write("t.txt", "b\n\u00e4a\n\u00e4b"));
  config.set_context(3);
  config.set_test_fraction(0.5);
  const auto data = LoadData(job);
  RUBATO_ASSERT_OK(data);
  EXPECT_THAT(data->description.shape(), ElementsAre(3));
  EXPECT_THAT(data->description.classes(), ElementsAre("\n", "a", "b", "\u00e4"));
}

TEST(LoadDataTest, DescribesImagesByTheirShapeAndNormalisation) {
  proto::Job job = Glyphs();
  EXPECT_EQ(Described(job), "shape: 1 shape: 28 shape: 28");
  job.mutable_data()->mutable_normalize()->add_mean(0.5);
  job.mutable_data()->mutable_normalize()->add_std(0.25);
  EXPECT_EQ(Described(job), "shape: 1 shape: 28 shape: 28 mean: 0.5 std: 0.25");
}

TEST(LoadDataTest, DescribesNothingThatNoServerTakes) {
  const TestFolder folder("load_test");
  proto::Job job = SparseRows(folder.Write("t.svm", "0 1:1\n1 65000:1\n"));
  job.mutable_data()->mutable_normalize()->set_by(proto::Normalize::BY_AUTO);
  const auto largest = LoadData(job);
  RUBATO_ASSERT_OK(largest);
  EXPECT_EQ(largest->description.mean_size(), 65000);
  EXPECT_THAT(largest->notes, IsEmpty());
  job.mutable_data()->set_features(66000);
  const auto data = LoadData(job);
  RUBATO_ASSERT_OK(data);
  EXPECT_EQ(data->description.ByteSizeLong(), 0u);
  EXPECT_THAT(data->notes,
              ElementsAre("warning: the run gets no data.json: the description of its inputs and "
                          "classes takes 1056021 bytes, expected at most 1048576"));
}

TEST(LoadDataTest, TakesTheTestSplitByTheSeedOfTheData) {
  const TestFolder folder("load_test");
  std::string text;
  for (int i = 0; i < 100; ++i) absl::StrAppend(&text, i % 2, " 1:", i, "\n");
  proto::Job job;
  proto::Data& config = *job.mutable_data();
  config.set_format(proto::Data::FORMAT_LIBSVM);
  config.set_path(folder.Write("t.svm", text));
  EXPECT_THAT(LoadData(job), IsError(absl::StatusCode::kInvalidArgument,
                                     HasSubstr("found neither test_path nor test_fraction")));
  config.set_test_fraction(0.25);
  const auto data = LoadData(job);
  RUBATO_ASSERT_OK(data);
  EXPECT_EQ(data->train.size(), 75);
  EXPECT_EQ(data->test.size(), 25);
  job.set_seed(1);
  EXPECT_EQ(LoadData(job)->test.examples().features, data->test.examples().features);
  config.set_seed(1);
  EXPECT_NE(LoadData(job)->test.examples().features, data->test.examples().features);
  EXPECT_EQ(LoadData(job)->digest, data->digest) << "the split is no part of it";
}

TEST(LoadDataTest, RefusesValuesForALossOfLabels) {
  proto::Job job;
  job.mutable_data()->set_format(proto::Data::FORMAT_LIBSVM);
  job.mutable_data()->set_task(proto::Data::TASK_REGRESSION);
  EXPECT_THAT(LoadData(job), IsError(absl::StatusCode::kInvalidArgument,
                                     HasSubstr("found regression with loss: cross_entropy")));
}

TEST(LoadDataTest, WarnsOfASplitOfWhichNoTargetCountsAndRefusesSuchTraining) {
  proto::Job job = Glyphs();
  job.mutable_data()->set_test_size(1);
  const int32_t only = LoadData(job)->test.examples().labels[0];
  job.mutable_loss()->set_ignore_index(only);
  auto data = LoadData(job);
  RUBATO_ASSERT_OK(data);
  EXPECT_THAT(data->notes, ElementsAre(HasSubstr("none of the targets of the test split counts")));
  job.mutable_data()->mutable_validation()->set_fraction(0.04);  // one of 30
  const int32_t kept = LoadData(job)->validation.examples().labels[0];
  job.mutable_loss()->set_ignore_index(kept);
  data = LoadData(job);
  RUBATO_ASSERT_OK(data);
  ASSERT_EQ(data->validation.size(), 1);
  EXPECT_THAT(data->notes, SizeIs(kept == only ? 2 : 1));
  EXPECT_THAT(data->notes[0], HasSubstr("targets of the validation split counts, by "
                                        "loss.ignore_index, so it has no loss"));
  job.mutable_data()->clear_validation();
  job.mutable_loss()->set_ignore_index((only + 1) % 10);
  EXPECT_THAT(LoadData(job)->notes, IsEmpty());
  for (int label = 0; label < 10; ++label) {
    job.mutable_loss()->add_class_weights(label == only ? 1e-50 : 1);  // 0 in float32
  }
  EXPECT_THAT(LoadData(job)->notes, SizeIs(1));
  for (int label = 0; label < 10; ++label) job.mutable_loss()->set_class_weights(label, 0);
  EXPECT_THAT(LoadData(job), IsError(absl::StatusCode::kInvalidArgument,
                                     HasSubstr("none of the training's targets counts")));
}

TEST(LoadDataTest, PassesOnWhatIsWrongWithAnIdxFolder) {
  proto::Job job;
  proto::Data& config = *job.mutable_data();
  config.set_format(proto::Data::FORMAT_IDX);
  config.set_path("/nonexistent/folder");
  EXPECT_THAT(LoadData(job),
              IsError(absl::StatusCode::kNotFound, HasSubstr("/nonexistent/folder")));
}

TEST(LoadDataTest, ReadsAnIdxFolder) {
  const char* root = std::getenv("RUBATO_TEST_DATA");
  if (root == nullptr) GTEST_SKIP() << "RUBATO_TEST_DATA is not set";
  proto::Job job;
  proto::Data& config = *job.mutable_data();
  config.set_format(proto::Data::FORMAT_IDX);
  config.set_path(absl::StrCat(root, "/fashion-mnist"));
  const auto data = LoadData(job);
  RUBATO_ASSERT_OK(data);
  EXPECT_EQ(data->train.size(), 60000);
  EXPECT_EQ(data->test.size(), 10000);
}

}  // namespace
}  // namespace rubato
