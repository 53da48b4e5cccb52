// The keys of a job's `data:` section that depend on one another.
#include <fstream>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_matchers.h"
#include "common/job/job.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A job with `data` as that section.
absl::StatusOr<proto::Job> Load(const std::string& data) {
  const std::string file = testing::TempDir() + "/job.yaml";
  std::ofstream(file, std::ios::binary) << "version: 1\nname: data_keys\ndata: " << data
                                        << "\nmodel: {layers: [linear: {out_features: 2}]}\n"
                                        << "train: {batch_size: 4, until: {epochs: 3}}\n";
  return LoadJob(file);
}

TEST(DataKeysTest, ReadsATable) {
  const auto job = Load(
      "{format: csv, path: x, test_fraction: 0.2, target: price, categorical: [sea], missing: ['', "
      "NA], impute: mean, normalize: auto, validation: 0.1}");
  RUBATO_ASSERT_OK(job);
  const proto::Data& data = job->data();
  EXPECT_EQ(data.format(), proto::Data::FORMAT_CSV);
  EXPECT_EQ(data.test_fraction(), 0.2);
  EXPECT_THAT(data.categorical(), ElementsAre("sea"));
  EXPECT_THAT(data.missing(), ElementsAre("", "NA"));
  EXPECT_EQ(data.impute(), proto::Data::IMPUTE_MEAN);
  EXPECT_EQ(data.normalize().by(), proto::Normalize::BY_AUTO);
  EXPECT_EQ(data.validation().fraction(), 0.1);
  EXPECT_EQ(data.separator(), ",");
  EXPECT_TRUE(data.header());
  EXPECT_EQ(data.prefetch(), 2);
  EXPECT_FALSE(Load("{format: libsvm, path: x, test_path: y}")->data().has_validation());
}

TEST(DataKeysTest, IsWrittenAsItIsRead) {
  for (const char* data :
       {"{format: csv, path: x, test_path: y, target: z, separator: \"\\t\", missing: ['?']}",
        "{format: libsvm, path: x, test_fraction: 0.5, normalize: {mean: [1], std: [2]}}"}) {
    const auto job = Load(data);
    RUBATO_ASSERT_OK(job);
    const std::string file = testing::TempDir() + "/resolved.yaml";
    std::ofstream(file, std::ios::binary) << ResolvedYaml(*job);
    const auto again = LoadJob(file);
    RUBATO_ASSERT_OK(again);
    EXPECT_EQ(ResolvedYaml(*again), ResolvedYaml(*job));
  }
}

TEST(DataKeysTest, SaysWhatContradicts) {
  const std::pair<const char*, const char*> kCases[] = {
      {"{format: csv, path: x, target: y}",
       "data: found neither test_path nor test_fraction, expected one of the two"},
      {"{format: libsvm, path: x, test_path: y, test_fraction: 0.5}",
       "data.test_fraction: found with test_path, expected one of the two"},
      {"{format: csv, path: x, test_path: y}",
       "data.target: found nothing, expected text, because format is csv"},
      {"{format: libsvm, test_path: y}",
       "data.path: found nothing, expected a path, because format is libsvm"},
      {"{format: libsvm, path: x, test_path: y, target: z}",
       "data.target: found with format: libsvm, expected only with format: csv"},
      {"{format: idx, path: x, seed: 3}",
       "data.seed: found with format: idx, expected only with format: glyphs, csv, libsvm or text"},
      {"{format: text, path: x}",
       "data.test_fraction: found nothing, expected a part of the text to test with"},
      {"{format: cifar10}", "data.path: found nothing, expected a path, because format is cifar10"},
      {"{format: text, path: x, test_fraction: 0.1, augment: {horizontal_flip: true}}",
       "data.augment: found with format: text, expected only with format: glyphs, idx or cifar10"},
      {"{format: glyphs, validation: 1}",
       "data.validation.fraction: found 1, expected a number above 0 and below 1"},
      {"{format: glyphs, normalize: {by: auto, mean: [0]}}",
       "data.normalize.mean: found with by: auto, expected only with by: values"},
      {"{format: glyphs, normalize: values}",
       "data.normalize.mean: found nothing, expected a list of numbers, because by is values"},
      {"{format: csv, path: x, test_path: y, target: z, target_scale: 10}",
       "data.target_scale: found beside loss: cross_entropy, whose targets are classes, expected "
       "it in a regression (loss: mse, l1 or huber)"},
      {"{format: csv, path: x, test_path: y, target: z, categorical: [a, b], ignore: [c, b]}",
       "data.ignore: found the column \"b\" that data.categorical names already, expected each "
       "once"},
      {"{format: csv, path: x, test_path: y, target: z, numeric: [a, z]}",
       "data.numeric: found the column \"z\" that data.target names already, expected each once"},
      {"{format: csv, path: x, test_path: y, target: z, separator: ;;}",
       "data.separator: found \";;\", expected one ASCII character that is neither a quotation "
       "mark nor a line's end, such as \",\" or \"\\t\""},
      {"{format: libsvm, path: x, test_path: y, task: classification, target_scale: 10}",
       "data.target_scale: found beside data.task: classification"},
      {"{format: glyphs, normalize: yes}", "data.normalize.by: found yes, expected values or auto"},
  };
  for (const auto& [data, sentence] : kCases) {
    EXPECT_THAT(Load(data), IsError(absl::StatusCode::kInvalidArgument, HasSubstr(sentence)))
        << data;
  }
}

TEST(DataKeysTest, TheEvaluatedSplitIsValidationWhereThereIsOne) {
  EXPECT_EQ(Load("{format: glyphs}")->evaluation().split(), proto::Evaluation::SPLIT_TEST);
  EXPECT_EQ(Load("{format: glyphs, validation: 0.1}")->evaluation().split(),
            proto::Evaluation::SPLIT_VALIDATION);
}

TEST(DataKeysTest, DigestLeavesOutPathsAndPrefetchAndNothingElse) {
  const std::string begin = "{format: csv, target: z, ";
  const auto digest = [&](const std::string& rest) {
    return JobDigest(*Load(absl::StrCat(begin, rest, "}")));
  };
  const std::string plain = digest("path: x, test_fraction: 0.2");
  EXPECT_EQ(digest("path: y, test_fraction: 0.2, prefetch: 0"), plain);
  for (const char* other :
       {"path: x, test_fraction: 0.3", "path: x, test_fraction: 0.2, validation: 0.1",
        "path: x, test_fraction: 0.2, seed: 1", "path: x, test_fraction: 0.2, normalize: auto"}) {
    EXPECT_NE(digest(other), plain) << other;
  }
}

}  // namespace
}  // namespace rubato
