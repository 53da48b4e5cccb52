#include "server/run/run_files.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/status_matchers.h"
#include "common/files/checkpoint.h"
#include "common/space/placement.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

namespace fs = std::filesystem;

// What the disk holds for sure: what has been flushed, by number. Nothing keeps it open, for it is
// to be written over.
struct Disk {
  std::map<ino_t, std::string> files;                     // contents
  std::map<ino_t, std::map<std::string, ino_t>> folders;  // names
  int flushes = 0;
};

Disk* disk = nullptr;  // of the test that runs
bool fails = false;    // whether it takes nothing
std::string removed;   // the folder that is removed at the next flush

std::string Contents(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace
}  // namespace rubato

// In place of the C library's: flushes to the disk of the test.
extern "C" int fsync(int fd) {
  using namespace rubato;
  if (!removed.empty()) fs::remove_all(std::exchange(removed, ""));
  if (fails) {
    errno = EIO;
    return -1;
  }
  struct stat status;
  if (disk == nullptr || fstat(fd, &status) != 0) return 0;
  const fs::path path = fs::read_symlink(absl::StrCat("/proc/self/fd/", fd));
  ++disk->flushes;
  if (S_ISDIR(status.st_mode)) {
    std::map<std::string, ino_t>& names = disk->folders[status.st_ino];
    names.clear();
    for (const auto& entry : fs::directory_iterator(path)) {
      struct stat of;
      if (stat(entry.path().c_str(), &of) == 0) names[entry.path().filename()] = of.st_ino;
    }
  } else {
    disk->files[status.st_ino] = Contents(path);
  }
  return 0;
}

namespace rubato {
namespace {

ino_t NumberOf(const fs::path& path) {
  struct stat status;
  return stat(path.c_str(), &status) == 0 ? status.st_ino : 0;
}

// What a loss of power leaves of `from`, as `to`: of files what was flushed, and else as many other
// bytes. Either all names are there, or none that was not flushed.
void LosePower(const fs::path& from, const fs::path& to, bool has_names) {
  std::map<std::string, ino_t> names;
  if (has_names) {
    for (const auto& entry : fs::directory_iterator(from)) {
      names[entry.path().filename()] = NumberOf(entry.path());
    }
  } else {
    names = disk->folders[NumberOf(from)];
  }
  fs::create_directories(to);
  for (const auto& [name, number] : names) {
    if (fs::is_directory(from / name)) {
      LosePower(from / name, to / name, has_names);
    } else if (disk->files.count(number) > 0) {
      std::ofstream(to / name, std::ios::binary) << disk->files[number];
    } else {
      std::ofstream(to / name, std::ios::binary) << std::string(Contents(from / name).size(), 'x');
    }
  }
}

// A job of 40 values in blocks of 16 on one shard, with momentum, that keeps one checkpoint.
class RunFilesTest : public ::testing::Test {
 protected:
  RunFilesTest() {
    disk = &disk_;
    folder_ = absl::StrCat(::testing::TempDir(), "/run_files_",
                           ::testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
        "cluster { servers: 1 } wire { chunk: 64 } optimizer { momentum: 0.5 } "
        "train { batch_size: 8 micro_batches: 2 until { steps: 100 } } "
        "evaluation { every { steps: 100 } } checkpoint { keep_last: 1 }",
        &job_));
    view_.mutable_layout()->add_parameters()->set_name("w");
    view_.mutable_layout()->mutable_parameters(0)->add_shape(40);
    Placement::Even(SpaceOf(job_, view_.layout()), 1).AddTo(&view_);
    files_.emplace(job_, "digest", ConnectionOptions(), RunFolder(folder_), &log_);
    files_->MakePartsFolder();
  }
  ~RunFilesTest() override {
    disk = nullptr;
    fails = false;
    removed.clear();
  }

  // A checkpoint of that step, of which the shard has written its part.
  absl::StatusOr<std::string> Write(int64_t step) {
    proto::Manifest manifest;
    manifest.set_step(step);
    manifest.set_samples(8 * step);
    manifest.set_samples_per_epoch(100);
    manifest.set_block_values(16);
    *manifest.mutable_layout() = view_.layout();
    manifest.add_parts()->set_end(3);
    for (int64_t block = 0; block < 3; ++block) {
      manifest.add_blocks()->set_block(block);
      manifest.mutable_blocks(static_cast<int>(block))->set_version(step);
      manifest.mutable_blocks(static_cast<int>(block))->set_samples(8 * step);
    }
    const auto folder = BeginParts(files_->parts_folder(), static_cast<uint32_t>(step));
    RUBATO_EXPECT_OK(folder);
    proto::Manifest with_slots = manifest;
    with_slots.add_slots("momentum_buffer");
    auto part = CreatePart(*folder, with_slots, 0);
    RUBATO_EXPECT_OK(part);
    for (const size_t values : {16, 16, 8}) {
      for (const size_t vector : {0, 1}) {
        RUBATO_EXPECT_OK(
            part->Append(vector, std::vector<float>(values, static_cast<float>(step))));
      }
    }
    RUBATO_EXPECT_OK(part->Finish());
    AddChecksums({0, 3}, part->checksums(), &manifest);
    return files_->WriteSnapshot(view_, static_cast<uint32_t>(step), manifest, {},
                                 absl::OkStatus());
  }

  // The step that a job goes on from when the power is lost now; -1: there is none.
  int64_t StepAfterLoss(bool has_names) {
    const std::string after = folder_ + "_after";
    fs::remove_all(after);
    LosePower(folder_ + "/checkpoints", after + "/checkpoints", has_names);
    std::vector<std::string> warnings;
    const auto found = FindCheckpoint(after, &warnings);
    if (!found.ok()) return -1;
    return ReadManifest(*found)->step();
  }

  static int64_t NumberIn(const std::string& name) {
    return std::stoll(name.substr(name.find('-') + 1));
  }
  std::vector<std::string> Names() {
    std::vector<std::string> names;
    for (const std::string& path : ListCheckpoints(folder_ + "/checkpoints")) {
      names.push_back(fs::path(path).filename());
    }
    return names;
  }

  Disk disk_;
  std::string folder_;
  proto::Job job_;
  proto::View view_;
  const Log log_{"server", 0, LogLevel::kError};
  std::optional<RunFiles> files_;
};

// Nor is an older one found under a new name, whose files are on the disk as they were.
TEST_F(RunFilesTest, ALossOfPowerLeavesTheLastThatWasFlushed) {
  int64_t last = 0;
  for (int64_t step = 1; step <= 16; ++step) {
    RUBATO_ASSERT_OK(Write(step));
    for (const bool has_names : {true, false}) {
      const int64_t found = StepAfterLoss(has_names);
      EXPECT_GE(found, last) << "step " << step << (has_names ? "" : ", no names");
      EXPECT_GE(found, 1) << "step " << step << (has_names ? "" : ", no names");
      last = found;
    }
    EXPECT_EQ(NumberIn(Names().back()), step) << "whatever becomes of power";
    EXPECT_LE(Names().size(), 2u) << "the newest, and the newest on the disk";
    if (step % 4 != 0) continue;
    files_->FlushLast();
    EXPECT_EQ(StepAfterLoss(/*has_names=*/true), step);
    EXPECT_EQ(StepAfterLoss(/*has_names=*/false), step);
    EXPECT_THAT(Names(), testing::SizeIs(1));
  }
}

// Nothing is flushed twice, and the first of a term is at once.
TEST_F(RunFilesTest, WhatIsOnTheDiskIsNotFlushedAgain) {
  RUBATO_ASSERT_OK(Write(1));
  EXPECT_EQ(StepAfterLoss(/*has_names=*/false), 1);
  const int flushes = disk_.flushes;
  files_->FlushLast();
  EXPECT_EQ(disk_.flushes, flushes);
}

TEST_F(RunFilesTest, WhatTheDiskDoesNotTakeCountsAsNotFlushed) {
  RUBATO_ASSERT_OK(Write(1));
  RUBATO_ASSERT_OK(Write(2));
  fails = true;
  files_->FlushLast();
  fails = false;
  EXPECT_GE(StepAfterLoss(/*has_names=*/true), 1);
  EXPECT_GE(StepAfterLoss(/*has_names=*/false), 1);
  RUBATO_ASSERT_OK(Write(3));
  EXPECT_GE(StepAfterLoss(/*has_names=*/true), 1);
  EXPECT_GE(StepAfterLoss(/*has_names=*/false), 1);
}

// By that code the coordinator knows that older checkpoints are gone, too.
TEST_F(RunFilesTest, NotFoundIsTheFolderAlone) {
  const auto write = [this](const absl::Status& failure) {
    return files_->WriteSnapshot(view_, 2, proto::Manifest(), {}, failure).status();
  };
  EXPECT_THAT(write(absl::NotFoundError("no part")),
              IsError(absl::StatusCode::kUnavailable, "no part"));
  const auto is_gone = IsError(absl::StatusCode::kNotFound, testing::HasSubstr(" is gone"));
  removed = folder_;
  EXPECT_THAT(Write(1).status(), is_gone) << "removed while it was written";
  EXPECT_THAT(write(absl::NotFoundError("no part")), is_gone) << "removed before";
}

// Those that come quickly take turns in a few folders.
TEST_F(RunFilesTest, WhatIsNotKeptIsWrittenOver) {
  std::set<ino_t> folders;
  for (int64_t step = 1; step <= 20; ++step) {
    const auto path = Write(step);
    RUBATO_ASSERT_OK(path);
    RUBATO_ASSERT_OK(CheckCheckpoint(*path));
    folders.insert(NumberOf(*path));
    // Then one that was flushed before is not kept any more: the second time beside another.
    if (step % 4 < 2) files_->FlushLast();
  }
  EXPECT_LE(folders.size(), 3u) << "the newest, the newest on the disk, and the one before";
  files_->RemovePartsFolder();
  EXPECT_LE(std::distance(fs::directory_iterator(folder_ + "/checkpoints"), {}), 2);
}

// Numbers of snapshots are left out where the next one has begun before, or comes to nothing.
TEST_F(RunFilesTest, WhatNoneIsWrittenOverDoesNotStay) {
  for (int64_t step = 2; step <= 40; step += 2) {
    RUBATO_ASSERT_OK(Write(step));
    EXPECT_LE(std::distance(fs::directory_iterator(files_->parts_folder()), {}), 2) << step;
  }
}

// As on arrival: the end may have the contributions of the checkpoint before.
TEST_F(RunFilesTest, OneThatTakesAnothersPlaceIsOnTheDiskBeforeIt) {
  RUBATO_ASSERT_OK(Write(1));
  RUBATO_ASSERT_OK(Write(1));
  EXPECT_EQ(StepAfterLoss(/*has_names=*/true), 1);
  EXPECT_EQ(StepAfterLoss(/*has_names=*/false), 1);
}

// Of a script's tests, beside which nothing is told of what they have.
class KeptByAFigureTest : public RunFilesTest {
 protected:
  KeptByAFigureTest() {
    EXPECT_TRUE(google::protobuf::TextFormat::MergeFromString(
        "model { preset: PRESET_SCRIPT } evaluation { every { steps: 1 } } "
        "train { stop_when { metric: 'eval/f1' at_least: 2 } } "
        "checkpoint { keep_best { metric: 'eval/f1' mode: MODE_MAX } }",
        &job_));
    Begin();
  }
  ~KeptByAFigureTest() override { fclose(said_); }

  // A process of the run, which may have been there before.
  void Begin() {
    files_.emplace(job_, "digest", ConnectionOptions(), RunFolder(folder_), &file_log_);
    files_->MakePartsFolder();
  }

  void Test(int64_t step, const std::map<std::string, double>& others) {
    MetricsLine line;
    line.kind = MetricsLine::Kind::kEval;
    line.unit = line.due = line.step = step;
    line.loss = static_cast<double>(-step);  // the last one has the best
    line.others = others;
    files_->OnMetrics(line);
  }

  std::vector<std::string> Said() const {
    std::string text(1 << 14, '\0');
    text.resize(static_cast<size_t>(pread(fileno(said_), text.data(), text.size(), 0)));
    return absl::StrSplit(text, '\n', absl::SkipEmpty());
  }

  FILE* said_ = tmpfile();
  const Log file_log_{"server", 0, LogLevel::kInfo, LogFormat::kText, fileno(said_)};
};

TEST_F(KeptByAFigureTest, TheBestIsKeptAndNoneThatIsNoNumber) {
  const std::vector<std::map<std::string, double>> tests = {
      {}, {{"f1", 0.5}}, {{"f1", 0.75}}, {{"f1", std::nan("")}}, {{"f1", 0.25}}, {}};
  std::string metrics;
  for (size_t i = 0; i < tests.size(); ++i) {
    const int64_t step = static_cast<int64_t>(i) + 1;
    RUBATO_ASSERT_OK(Write(step));
    files_->FlushLast();
    Test(step, tests[i]);
    const auto f1 = tests[i].find("f1");
    absl::StrAppend(
        &metrics, R"({"kind":"eval","due":)", step, R"(,"loss":)", -step,
        f1 == tests[i].end()
            ? ""
            : absl::StrCat(R"(,"f1":)", std::isnan(f1->second) ? "null" : absl::StrCat(f1->second)),
        "}\n");
  }
  RUBATO_ASSERT_OK(Write(7));
  files_->FlushLast();
  EXPECT_THAT(Names(), testing::ElementsAre("step-00000003", "step-00000007"));
  EXPECT_THAT(Said(),
              testing::ElementsAre(
                  testing::EndsWith("warning: the test at step 1 has no number for eval/f1, by "
                                    "which train.stop_when goes; it has eval/loss"),
                  testing::EndsWith("warning: the test at step 1 has no number for eval/f1, by "
                                    "which checkpoint.keep_best goes; it has eval/loss")));
  // Another process of the run knows as much.
  std::ofstream(folder_ + "/metrics.jsonl") << metrics;
  Begin();
  files_->KeepWritten();
  RUBATO_ASSERT_OK(Write(8));
  files_->FlushLast();
  EXPECT_THAT(Names(), testing::ElementsAre("step-00000003", "step-00000007", "step-00000008"))
      << "those of 7 and 8 may still be tested";
  // So does one that begins after the job went back to step 2, and what one that goes back knows.
  for (const bool is_written : {true, false}) {
    std::ofstream(folder_ + "/metrics.jsonl")
        << metrics << (is_written ? "{\"kind\":\"back\",\"updates\":2}\n" : "");
    Begin();
    files_->KeepWritten();
    if (!is_written) files_->GoBack(2);
    RUBATO_ASSERT_OK(files_->WriteSummary(Summary()));
    EXPECT_THAT(Contents(folder_ + "/summary.json"),
                testing::Not(testing::HasSubstr("best_checkpoint")))
        << "the test at step 3 was in vain";
  }
  Begin();
  std::ofstream(folder_ + "/metrics.jsonl") << metrics;
  files_->KeepWritten();
  RUBATO_ASSERT_OK(files_->WriteSummary(Summary()));
  EXPECT_THAT(Contents(folder_ + "/summary.json"), testing::HasSubstr(R"("best_checkpoint": {
    "path": "checkpoints/step-00000003",
    "metric": "eval/f1",
    "value": 0.75
  })"));
}

}  // namespace
}  // namespace rubato
