#include "server/run/run_state.h"

#include <filesystem>
#include <fstream>
#include <string>

#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

using ::testing::HasSubstr;

class RunStateTest : public testing::Test {
 protected:
  RunStateTest() : folder_(testing::TempDir() + "/run_state") {
    std::filesystem::remove_all(folder_.path());
    std::filesystem::create_directory(folder_.path());
    state_.set_job_digest("digest");
    state_.set_term(3);
    state_.set_samples(640);
    RUBATO_EXPECT_OK(WriteFirstRunState(folder_, state_));
    state_.set_ended("later");
    state_.clear_samples();
    RUBATO_EXPECT_OK(WriteRunState(folder_, state_));
  }

  // Which no disk has got all of.
  static void Empty(const std::string& path) { std::ofstream file(path, std::ios::trunc); }

  const RunFolder folder_;
  proto::RunState state_;
};

TEST_F(RunStateTest, TheLastOneThatWasWrittenCounts) {
  const auto found = ReadRunState(folder_);
  RUBATO_ASSERT_OK(found.status());
  EXPECT_EQ((*found)->term(), 3);
  EXPECT_EQ((*found)->ended(), "later");
}

TEST_F(RunStateTest, AfterALossOfPowerTheTermsBeginningCounts) {
  for (const bool is_there : {true, false}) {
    Empty(folder_.StateFile());
    if (!is_there) std::filesystem::remove(folder_.StateFile());
    const auto found = ReadRunState(folder_);
    RUBATO_ASSERT_OK(found.status());
    ASSERT_TRUE(found->has_value());
    EXPECT_EQ((*found)->term(), 3);
    EXPECT_EQ((*found)->job_digest(), "digest");
    EXPECT_FALSE((*found)->has_ended());
    EXPECT_FALSE((*found)->has_samples());  // it may have trained since
  }
}

TEST_F(RunStateTest, ATermThatBeganCountsBeforeTheLastOneOfAnEarlierTerm) {
  state_.set_term(2);
  RUBATO_EXPECT_OK(WriteRunState(folder_, state_));
  const auto found = ReadRunState(folder_);
  RUBATO_ASSERT_OK(found.status());
  EXPECT_EQ((*found)->term(), 3);
}

TEST_F(RunStateTest, ATermWhoseFirstViewHeldCountsBeforeItsBeginning) {
  state_.mutable_lasting()->set_begun_term(3);
  RUBATO_EXPECT_OK(WriteTermState(folder_, state_));
  const auto found = ReadRunState(folder_);
  RUBATO_ASSERT_OK(found.status());
  EXPECT_EQ((*found)->lasting().begun_term(), 3u) << "the other is from before a loss of power";
  state_.clear_lasting();
  state_.set_term(4);
  RUBATO_EXPECT_OK(WriteRunState(folder_, state_));
  EXPECT_EQ((*ReadRunState(folder_))->term(), 4);
}

TEST_F(RunStateTest, ATestOfEarlierParametersDoesNotTakeTheRunBack) {
  {
    std::ofstream lines(folder_.MetricsFile());
    lines << R"({"kind":"train","samples":4096,"time":2.5})"
          << "\n"  // of a term that was lost
          << R"({"kind":"train","samples":1024,"time":1.5})"
          << "\n"
          << R"({"kind":"eval","samples":768,"time":1.25})"
          << "\n";
  }
  EXPECT_EQ(ReadLastMetrics(folder_).samples, 1024);
  EXPECT_EQ(ReadLastMetrics(folder_).seconds, 1.5);
  std::ofstream(folder_.MetricsFile(), std::ios::app)  // lines of training are thinned out
      << R"({"kind":"eval","samples":1536,"time":1.75})"
      << "\n";
  EXPECT_EQ(ReadLastMetrics(folder_).samples, 1536);
  EXPECT_EQ(ReadLastMetrics(folder_).seconds, 1.75);
}

TEST_F(RunStateTest, WhereNeitherIsWholeBothAreNamed) {
  Empty(folder_.StateFile());
  Empty(folder_.TermFile());
  EXPECT_THAT(ReadRunState(folder_).status(),
              IsError(absl::StatusCode::kInvalidArgument,
                      HasSubstr("state.json and " + folder_.TermFile() +
                                " are damaged; remove both to begin the run anew")));
}

TEST_F(RunStateTest, WhereThereIsNeitherARunBegins) {
  std::filesystem::remove(folder_.StateFile());
  std::filesystem::remove(folder_.TermFile());
  const auto found = ReadRunState(folder_);
  RUBATO_ASSERT_OK(found.status());
  EXPECT_FALSE(found->has_value());
}

}  // namespace
}  // namespace rubato
