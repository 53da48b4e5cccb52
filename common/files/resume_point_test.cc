#include "common/files/resume_point.h"

#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include "common/base/status_matchers.h"
#include "common/files/checkpoint.h"
#include "common/files/run_folder.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ResumePointTest : public ::testing::Test {
 protected:
  ResumePointTest() {
    if (mkdtemp(runs_.data()) == nullptr) abort();
    job_.set_name("job");
  }
  ~ResumePointTest() override { fs::remove_all(runs_); }

  std::string Write(const std::string& run, int64_t step) {
    proto::Layout layout;
    layout.add_parameters()->set_name("w");
    layout.mutable_parameters(0)->add_shape(2);
    proto::Manifest manifest;
    manifest.set_step(step);
    manifest.add_blocks()->set_version(step);
    TrainingState state;
    state.parameters = {1, 2};
    const auto path =
        WriteCheckpoint(runs_ + "/" + run + "/checkpoints", manifest, "", layout, state);
    RUBATO_EXPECT_OK(path);
    RUBATO_EXPECT_OK(WriteFileAtomically(RunFolder(runs_ + "/" + run).StateFile(), "{}"));
    return *path;
  }

  absl::StatusOr<std::string> Find(proto::Checkpoint::Resume mode, const std::string& flag = "") {
    job_.mutable_checkpoint()->set_resume(mode);
    return ResumePoint(job_, flag, runs_, &warnings_);
  }

  std::string runs_ = testing::TempDir() + "/resume-XXXXXX";
  proto::Job job_;
  std::vector<std::string> warnings_;
};

TEST_F(ResumePointTest, IsTheNewestWholeCheckpointOfTheNewestRunThatHasOne) {
  Write("job-20261121T075901Z-3fa9", 900);
  const std::string expected = Write("job-20261122T075901Z-0000", 10);
  const std::string damaged = Write("job-20261122T075901Z-0000", 20);
  fs::resize_file(damaged + "/parameters.safetensors", 10);
  fs::create_directories(runs_ + "/job-20261123T075901Z-0000/checkpoints");  // has none yet
  Write("job-2-20261124T075901Z-0000", 1);                                   // of another job
  EXPECT_EQ(*Find(proto::Checkpoint::RESUME_AUTO), expected);
  ASSERT_EQ(warnings_.size(), 1u);
  EXPECT_THAT(warnings_[0], HasSubstr("step-00000020"));
  EXPECT_EQ(*Find(proto::Checkpoint::RESUME_REQUIRED), expected);
  EXPECT_EQ(*Find(proto::Checkpoint::RESUME_NEVER), "");
}

// As in pods, where it has the name of a Job.
TEST_F(ResumePointTest, ARunMayBeCalledOtherwise) {
  const auto write = [&](const std::string& run, const std::string& name, const std::string& begun,
                         bool is_flushed = true) {
    const std::string path = Write(run, 10);
    const RunFolder folder(runs_ + "/" + run);
    const std::string state = "{\"name\": \"" + name + "\", \"begun\": \"" + begun + "\"}";
    RUBATO_EXPECT_OK(WriteFileAtomically(folder.TermFile(), state));
    RUBATO_EXPECT_OK(WriteFileAtomically(folder.StateFile(), is_flushed ? state : ""));
    return path;
  };
  const auto find = [&] { return *Find(proto::Checkpoint::RESUME_AUTO); };
  write("job-20261121T075901Z-3fa9", "job", "20261121T075901Z");
  const std::string first = write("zzz", "job", "20261122T075901Z");
  write("job-2", "job-2", "20261129T075901Z");  // of another job
  fs::create_directory_symlink("zzz", runs_ + "/latest");
  EXPECT_EQ(find(), first);
  const std::string second = write("job-20261123T075901Z-0000", "job", "20261123T075901Z");
  EXPECT_EQ(find(), second);
  // The machine lost power, and state.json is empty.
  const std::string third = write("aaa", "job", "20261124T075901Z", /*is_flushed=*/false);
  EXPECT_EQ(find(), third);
}

TEST_F(ResumePointTest, ASimulatedRunIsNone) {
  const std::string expected = Write("job-20261121T075901Z-3fa9", 900);
  Write("job-20261122T075901Z-0000", 10);
  fs::remove(RunFolder(runs_ + "/job-20261122T075901Z-0000").StateFile());
  EXPECT_EQ(*Find(proto::Checkpoint::RESUME_AUTO), expected);
}

TEST_F(ResumePointTest, WhatMayNotBeLookedAtIsTold) {
  const std::string expected = Write("job-20261121T075901Z-3fa9", 900);
  // Root may look at everything but this.
  const std::string other = "job-20261122T075901Z-0000";
  fs::create_symlink(other, runs_ + "/" + other);
  EXPECT_EQ(*Find(proto::Checkpoint::RESUME_AUTO), expected);
  EXPECT_THAT(warnings_, ElementsAre("passed over: cannot open " + runs_ + "/" + other +
                                     ": Too many levels of symbolic links"));
}

TEST_F(ResumePointTest, ManyThatMayNotBeLookedAtAreToldAtOnce) {
  for (const std::string other :
       {"job-20261122T075901Z-0000", "job-20261123T075901Z-0000", "job-20261124T075901Z-0000"}) {
    fs::create_symlink(other, runs_ + "/" + other);
  }
  EXPECT_EQ(*Find(proto::Checkpoint::RESUME_AUTO), "");
  EXPECT_THAT(warnings_, ElementsAre("passed over: cannot open " + runs_ +
                                     "/job-20261124T075901Z-0000: Too many levels of symbolic "
                                     "links; and 2 other runs"));
}

TEST_F(ResumePointTest, TheNewestIsAskedForByTheFlagOrElseByTheJob) {
  const auto asks = [&](proto::Checkpoint::Resume mode, const std::string& flag) {
    job_.mutable_checkpoint()->set_resume(mode);
    return AsksForNewest(job_, flag);
  };
  EXPECT_TRUE(asks(proto::Checkpoint::RESUME_AUTO, ""));
  EXPECT_TRUE(asks(proto::Checkpoint::RESUME_REQUIRED, ""));
  EXPECT_FALSE(asks(proto::Checkpoint::RESUME_NEVER, ""));
  EXPECT_TRUE(asks(proto::Checkpoint::RESUME_NEVER, "auto"));
  EXPECT_FALSE(asks(proto::Checkpoint::RESUME_AUTO, "never"));
  EXPECT_FALSE(asks(proto::Checkpoint::RESUME_AUTO, "runs/latest"));
}

// One that was killed before its first checkpoint.
TEST_F(ResumePointTest, ARunWithoutCheckpointsStandsForTheOneThatItBeganFrom) {
  const std::string first = Write("job-20261121T075901Z-3fa9", 900);
  Write("job-20261122T075901Z-0000", 7);
  const RunFolder run(runs_ + "/job-20261123T075901Z-0000");
  fs::create_directories(run.path() + "/logs");
  const auto find = [&] { return Find(proto::Checkpoint::RESUME_NEVER, run.path()); };
  const std::string none = "run " + run.path() + " has no whole checkpoint";
  EXPECT_THAT(find(), IsError(absl::StatusCode::kNotFound, none));
  RUBATO_ASSERT_OK(WriteFileAtomically(run.StateFile(), "{\"term\": 1}"));
  EXPECT_THAT(find(), IsError(absl::StatusCode::kNotFound, none));
  for (const std::string& file : {run.TermFile(), run.StateFile()}) {
    fs::remove(run.StateFile());
    fs::remove(run.TermFile());
    RUBATO_ASSERT_OK(WriteFileAtomically(file, "{\"begun_from\": \"" + first + "\"}"));
    warnings_.clear();
    EXPECT_EQ(*find(), first);
    EXPECT_THAT(warnings_, ElementsAre(none + ": goes on from what it began from, " + first));
  }
  EXPECT_EQ(*Find(proto::Checkpoint::RESUME_AUTO), first);  // not that of another run
  fs::remove_all(first);
  EXPECT_THAT(find(),
              IsError(absl::StatusCode::kNotFound,
                      none + "; of what it began from: there is no run or checkpoint " + first));
}

TEST_F(ResumePointTest, TheFlagBeatsTheJob) {
  const std::string other = Write("other", 3);
  const std::string newest = Write("job-20261121T075901Z-3fa9", 900);
  EXPECT_EQ(*Find(proto::Checkpoint::RESUME_NEVER, "auto"), newest);
  EXPECT_EQ(*Find(proto::Checkpoint::RESUME_REQUIRED, "never"), "");
  EXPECT_EQ(*Find(proto::Checkpoint::RESUME_REQUIRED, other), other);
  EXPECT_THAT(Find(proto::Checkpoint::RESUME_AUTO, "nowhere"),
              IsError(absl::StatusCode::kNotFound, HasSubstr("nowhere")));
}

TEST_F(ResumePointTest, ALinkThatIsMovedLaterDoesNotMatter) {
  const std::string checkpoint = Write("job-20261121T075901Z-3fa9", 900);
  fs::create_directory_symlink("job-20261121T075901Z-3fa9", runs_ + "/latest");
  for (const std::string path : {"/latest", "/latest/checkpoints/step-00000900"}) {
    const auto found = Find(proto::Checkpoint::RESUME_NEVER, runs_ + path);
    RUBATO_ASSERT_OK(found);
    EXPECT_TRUE(fs::equivalent(*found, checkpoint));
    EXPECT_THAT(*found, ::testing::Not(HasSubstr("latest")));
  }
}

TEST_F(ResumePointTest, WhereThereIsNoneAutoBeginsAnewAndRequiredRefuses) {
  EXPECT_EQ(*Find(proto::Checkpoint::RESUME_AUTO), "");
  EXPECT_THAT(Find(proto::Checkpoint::RESUME_REQUIRED),
              IsError(absl::StatusCode::kNotFound,
                      "checkpoint.resume: found no whole checkpoint of a run of job under " +
                          runs_ + ", expected one, because it is required"));
  EXPECT_THAT(Find(proto::Checkpoint::RESUME_NEVER, "required"),
              IsError(absl::StatusCode::kNotFound, HasSubstr("--resume: found no")));
}

}  // namespace
}  // namespace rubato
