#include "tools/command/process_logs.h"

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

// Of the logs of a server and two workers, which append to them.
class ProcessLogsTest : public testing::Test {
 protected:
  ProcessLogsTest() : folder_(NewFolder()), log_("launcher", 0) {
    job_.add_script("train.py");
    logs_.emplace(job_, folder_, log_);
    for (const auto& [role, rank] : {std::pair("server", 0), {"worker", 0}, {"worker", 1}}) {
      logs_->Follow(absl::StrCat(role, " ", rank), folder_.LogFile(role, rank));
    }
  }

  static std::string NewFolder() {
    std::string folder = testing::TempDir() + "/process_logs_XXXXXX";
    if (mkdtemp(folder.data()) == nullptr) abort();
    std::filesystem::create_directory(folder + "/logs");
    return folder;
  }

  void Write(const std::string& role, int rank, const std::string& text) {
    std::ofstream(folder_.LogFile(role, rank), std::ios::app) << text;
  }
  void Warn(const std::string& role, int rank, const std::string& text, int called = -1) {
    const Log log(role, called < 0 ? rank : called);
    Write(role, rank, log.Line(absl::UnixEpoch(), LogLevel::kWarning, text, {}));
  }
  // What is said on standard error.
  std::string ReadToEnd(bool passes_on = true) {
    testing::internal::CaptureStderr();
    logs_->ReadToEnd(passes_on);
    return testing::internal::GetCapturedStderr();
  }

  proto::Job job_;
  const RunFolder folder_;
  const Log log_;
  std::optional<ProcessLogs> logs_;
};

TEST_F(ProcessLogsTest, AWarningIsRepeatedOnceWhoeverWritesIt) {
  logs_->IsTold("of the data");
  Warn("server", 0, "the disk is full");
  Warn("worker", 1, "the disk is full");
  Warn("worker", 1, "of the data");
  Warn("worker", 0, "a \"slow\" disk");
  EXPECT_EQ(ReadToEnd(),
            "warning: server 0: the disk is full\nwarning: worker 0: a \"slow\" disk\n");
  Warn("server", 0, "the disk is full");
  EXPECT_EQ(ReadToEnd(), "");
}

TEST_F(ProcessLogsTest, TheFirstScriptIsHeardWithoutItsEvents) {
  const std::string event =
      Log("worker", 0).Line(absl::UnixEpoch(), LogLevel::kInfo, "takes part", {});
  Write("worker", 0, absl::StrCat("epoch 1\n\n", event, "stopped: as others\na\tb\nno newline"));
  Write("worker", 1, "epoch 1\n");
  Write("server", 0, "printed by a server\n");
  EXPECT_EQ(ReadToEnd(), "epoch 1\na    b\nno newline\n");
  Write("worker", 0, "Traceback\n");
  EXPECT_EQ(ReadToEnd(/*passes_on=*/false), "");
}

TEST_F(ProcessLogsTest, AJobOfALayersModelPassesNothingOn) {
  job_.clear_script();
  logs_.emplace(job_, folder_, log_);
  logs_->Follow("worker 0", folder_.LogFile("worker", 0));
  Write("worker", 0, "printed by a library\n");
  EXPECT_EQ(ReadToEnd(), "");
}

TEST_F(ProcessLogsTest, AWorkerIsCalledAsItCallsItselfLast) {
  EXPECT_EQ(logs_->NameOf("worker 1"), "worker 1");
  Warn("worker", 1, "joins anew", /*called=*/4);
  ReadToEnd();
  EXPECT_EQ(logs_->NameOf("worker 1"), "worker 4");
  EXPECT_EQ(logs_->NameOf("worker 0"), "worker 0");
}

TEST_F(ProcessLogsTest, ScriptsThatEndEarlyAreKept) {
  EXPECT_EQ(logs_->EarlyEnds(), "");
  Write("worker", 1, "rubato: the script ends in epoch 2 of the job\n");
  ReadToEnd();
  EXPECT_EQ(logs_->EarlyEnds(), "; worker 1: the script ends in epoch 2 of the job");
}

// So that nothing waits for one that prints without end; and what is not read is not lost.
TEST_F(ProcessLogsTest, MuchIsReadInGoesAndCutWhenItIsRead) {
  ProgressDisplay display(folder_.MetricsFile(), Progress(0, 0), 2, false, LogLevel::kError);
  const std::string large = std::string(1023, 'x') + "\n";
  for (int i = 0; i < 17 << 10; ++i) Write("worker", 1, large);
  const std::string path = folder_.LogFile("worker", 1);
  int goes = 0;
  do {
    logs_->Read(&display, /*passes_on=*/true);
    logs_->Cut(display);
    ++goes;
    EXPECT_EQ(std::filesystem::file_size(path) > 0, logs_->is_behind());
  } while (logs_->is_behind());
  EXPECT_GT(goes, 10);
  EXPECT_EQ(std::filesystem::file_size(path + ".1"), 17 << 20);
}

}  // namespace
}  // namespace rubato
