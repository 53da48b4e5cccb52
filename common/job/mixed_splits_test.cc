#include "common/job/mixed_splits.h"

#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/status_matchers.h"
#include "common/job/job.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

proto::Job WithData(const std::string& data, int seed = 0) {
  const std::string file = testing::TempDir() + "/job.yaml";
  std::ofstream(file) << "version: 1\nname: a\nmodel: mlp\nseed: " << seed << "\ndata: {" << data
                      << "}\ntrain: {batch_size: 8, until: {steps: 1}}\n";
  const absl::StatusOr<proto::Job> job = LoadJob(file, {}, /*environment=*/{});
  RUBATO_EXPECT_OK(job.status());
  return job.ok() ? *job : proto::Job();
}

constexpr char kTable[] = "format: csv, path: a, target: y, test_fraction: 0.2";

TEST(MixedSplitsTest, SplitsThatAreAsTheyWereAreNotMixed) {
  for (const std::string data :
       {"format: glyphs", "format: glyphs, validation: 0.1", kTable,
        "format: csv, path: a, target: y, test_path: b, validation: 0.1"}) {
    EXPECT_THAT(MixedSplits(WithData(data), WithData(data)), IsEmpty()) << data;
  }
  EXPECT_THAT(MixedSplits(WithData("format: glyphs"), WithData("format: glyphs", 1)), IsEmpty());
  EXPECT_THAT(MixedSplits(WithData(kTable), WithData(kTable, 1)), IsEmpty());
  // What was kept is trained on from now on.
  EXPECT_THAT(MixedSplits(WithData("format: glyphs, validation: 0.1"), WithData("format: glyphs")),
              IsEmpty());
}

TEST(MixedSplitsTest, AValidationSplitThatIsDrawnAnewIs) {
  const proto::Job now = WithData("format: glyphs, validation: 0.1");
  for (const proto::Job& before :
       {WithData("format: glyphs"), WithData("format: glyphs, validation: 0.2"),
        WithData("format: glyphs, validation: 0.1", 1)}) {
    EXPECT_THAT(MixedSplits(before, now), ElementsAre(HasSubstr("in the validation split now")));
  }
}

TEST(MixedSplitsTest, ATestSplitThatIsDrawnAnewIsAndWhatIsDrawnOfTheRest) {
  const std::string table = kTable, seeded = table + ", seed: 1";
  EXPECT_THAT(MixedSplits(WithData(table), WithData(seeded)),
              ElementsAre(HasSubstr("in the test split now")));
  EXPECT_THAT(MixedSplits(WithData(table), WithData(absl::StrCat(table, "5"))),
              ElementsAre(HasSubstr("in the test split now")));
  EXPECT_THAT(
      MixedSplits(WithData(table + ", validation: 0.1"), WithData(seeded + ", validation: 0.1")),
      ElementsAre(HasSubstr("in the test split now"), HasSubstr("in the validation split now")));
  const std::string text = "format: text, path: a, test_fraction: 0.1";
  EXPECT_THAT(MixedSplits(WithData(text), WithData(text + ", seed: 1")), IsEmpty());
}

}  // namespace
}  // namespace rubato
