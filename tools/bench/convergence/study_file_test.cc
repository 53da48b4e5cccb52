#include "tools/bench/convergence/study_file.h"

#include <filesystem>
#include <fstream>

#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StrEq;

class StudyFileTest : public ::testing::Test {
 protected:
  StudyFileTest() : path_(::testing::TempDir() + "/studies/study.yaml") {
    std::filesystem::create_directories(::testing::TempDir() + "/studies");
  }

  void Write(const std::string& text) { std::ofstream(path_) << text; }

  const std::string path_;
};

TEST_F(StudyFileTest, KeysAreTheFlags) {
  Write(
      "config: ../job.yaml\nseeds: 7\nmode: [sync, 'bounded,staleness=3']\n"
      "workers: [4, 8]\nlearning_rates: [0.01, 1]\nset: ['train.until={epochs: 2}', seed=3]\n"
      "target: eval/loss=0.3\ncompute: 5ms\nspeeds: [fixed, 'transient:p=0.1,factor=2']\n");
  const absl::StatusOr<std::optional<StudyFile>> file = ReadStudyFile(path_);
  RUBATO_ASSERT_OK(file);
  ASSERT_TRUE(file->has_value());
  EXPECT_EQ((*file)->config,
            std::filesystem::path(::testing::TempDir() + "/job.yaml").lexically_normal());
  EXPECT_THAT(
      (*file)->flags,
      ElementsAre("--mode=sync", "--mode=bounded,staleness=3", "--target=eval/loss=0.3",
                  "--seeds=7", "--workers=4", "--workers=8", "--learning-rates=0.01",
                  "--learning-rates=1", "--speeds=fixed", "--speeds=transient:p=0.1,factor=2",
                  "--compute=5ms", "--set=train.until={epochs: 2}", "--set=seed=3"));
}

TEST_F(StudyFileTest, WhatIsTypedReplacesAllThatTheFileSaysOfIt) {
  const StudyFile file = {
      "job.yaml",
      {"--mode=sync", "--mode=async", "--learning-rates=0.1", "--seeds=7", "--set=seed=3"}};
  EXPECT_THAT(WithStudyFile(file, {"study.yaml", "--seeds", "2", "--learning_rates=1", "--mode",
                                   "bounded,staleness=1", "--set", "seed=4"}),
              ElementsAre("--set=seed=3", "study.yaml", "--seeds", "2", "--learning_rates=1",
                          "--mode", "bounded,staleness=1", "--set", "seed=4"));
}

TEST_F(StudyFileTest, MistakesNameFileLineAndKey) {
  const auto refusal = [this](const std::string& text) {
    Write(text);
    return std::string(ReadStudyFile(path_).status().message());
  };
  EXPECT_THAT(refusal("config: job.yaml\nmodes: [sync, async]\n"),
              StrEq(path_ + ":2:1: modes: found an unknown key; did you mean mode?"));
  EXPECT_THAT(refusal("config: job.yaml\nmode: sync\n"), HasSubstr(":2:7: mode: found sync, "));
  EXPECT_THAT(refusal("config: job.yaml\nseeds: many\n"),
              HasSubstr(":2:8: seeds: found many, expected an integer"));
  EXPECT_THAT(refusal("config: job.yaml\nlearning_rates: [0.1, 0]\n"),
              HasSubstr(":2:23: learning_rates[1]: found 0, expected a number above 0"));
  EXPECT_THAT(refusal("config: [job.yaml]\n"), HasSubstr(":1:9: config: found a list"));
  EXPECT_THAT(refusal("config: job.yaml\nseeds: 3\nseeds: 4\n"), HasSubstr("seeds: found twice"));
}

TEST_F(StudyFileTest, AJobIsNoStudy) {
  for (const char* text : {"version: 1\nname: job\n", "", "- config\n", "config: [\n"}) {
    Write(text);
    const absl::StatusOr<std::optional<StudyFile>> file = ReadStudyFile(path_);
    RUBATO_ASSERT_OK(file);
    EXPECT_FALSE(file->has_value()) << text;
  }
  EXPECT_FALSE(ReadStudyFile(path_ + ".none")->has_value());
}

}  // namespace
}  // namespace rubato
