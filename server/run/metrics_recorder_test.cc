#include "server/run/metrics_recorder.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::string Contents(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

std::string NewFolder() {
  std::string folder = testing::TempDir() + "/recorder-XXXXXX";
  if (mkdtemp(folder.data()) == nullptr) abort();
  return folder;
}

// The path of the event file in `folder`; "" if there is none.
std::string EventFile(const std::string& folder) {
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (absl::StrContains(entry.path().string(), "/events.out.tfevents.")) return entry.path();
  }
  return "";
}

// Whole files are read by tests/tensorboard_test.py, from the published format.
TEST(TfRecordTest, FramesAnEmptyRecord) {
  const std::string record = TfRecord("");
  ASSERT_EQ(record.size(), 16u);
  EXPECT_EQ(record.substr(0, 8), std::string(8, '\0'));
  // CRC-32C of eight zero bytes is 0x8c28b28a; rotated right by 15 and plus 0xa282ead8.
  const std::string crc = record.substr(8, 4);
  uint32_t length_crc;
  std::memcpy(&length_crc, crc.data(), 4);
  EXPECT_EQ(length_crc, ((0x8c28b28au >> 15) | (0x8c28b28au << 17)) + 0xa282ead8u);
  EXPECT_EQ(record.substr(12), "\xd8\xea\x82\xa2");
}

TEST(MetricsRecorderTest, TestsBesideTheTrainingAndAtItsEndHaveNamesOfTheirOwn) {
  MetricsLine line;
  EXPECT_EQ(KindName(line), "train");
  line.kind = MetricsLine::Kind::kEval;
  line.split = "validation";
  line.unit = 7;
  line.due = 6;
  line.accuracy = 0.5;
  EXPECT_EQ(ToJson(line),
            "{\"kind\":\"eval\",\"split\":\"validation\",\"step\":0,\"epoch\":0.0,"
            "\"samples\":0,\"updates\":7,\"due\":6,\"time\":0.0,\"loss\":0.0,\"accuracy\":0.5}");
  line.kind = MetricsLine::Kind::kTest;
  EXPECT_THAT(ToJson(line), AllOf(HasSubstr("\"kind\":\"test\""), Not(HasSubstr("split"))));
}

TEST(MetricsRecorderTest, OtherFiguresOfTestsHaveTheirOwnNames) {
  MetricsLine line;
  line.kind = MetricsLine::Kind::kEval;
  line.others = {{"f1", 0.25}, {"auc", std::nan("")}};
  EXPECT_THAT(ToJson(line), HasSubstr(",\"loss\":0.0,\"auc\":null,\"f1\":0.25}"));
  Summary summary;
  summary.test_loss = 1;
  summary.test_others = line.others;
  EXPECT_THAT(ToJson(summary, ""),
              HasSubstr("{\n  \"test_loss\": 1.0,\n  \"test_auc\": null,\n  \"test_f1\": 0.25,\n"));
}

TEST(MetricsRecorderTest, TheEventFileHasTheLinesThatTheRunGoesOnFrom) {
  MetricsLine line;
  line.step = 50;
  line.loss = 0.25;
  const Log log("server", 0, LogLevel::kError);
  const std::string first = NewFolder(), second = NewFolder();
  const absl::Time now = absl::UnixEpoch() + absl::Hours(1);
  auto recorder = MetricsRecorder::Create(RunFolder(first), true, false, now, &log);
  RUBATO_ASSERT_OK(recorder);
  // A minute apart, which the copies are, too.
  recorder->Record(line, now - absl::Seconds(60));
  line.time = 60;
  line.kind = MetricsLine::Kind::kEval;
  line.others = {{"f1", 0.25}, {"auc", std::nan("")}};
  recorder->Record(line, now);
  std::filesystem::copy(first + "/metrics.jsonl", second + "/metrics.jsonl");
  RUBATO_ASSERT_OK(MetricsRecorder::Create(RunFolder(second), true, false, now, &log));
  EXPECT_EQ(Contents(EventFile(second)), Contents(EventFile(first)));
  EXPECT_THAT(Contents(EventFile(first)), AllOf(HasSubstr("eval/f1"), HasSubstr("eval/auc")));
}

TEST(MetricsRecorderTest, AProcessThatDiesWhileItCopiesLinesLeavesNoEventFile) {
  MetricsLine line;
  const Log log("server", 0, LogLevel::kError);
  const std::string folder = NewFolder(), other = NewFolder();
  const absl::Time now = absl::UnixEpoch() + absl::Hours(1);
  auto recorder = MetricsRecorder::Create(RunFolder(other), true, false, now, &log);
  RUBATO_ASSERT_OK(recorder);
  const std::string head = Contents(EventFile(other));
  recorder->Record(line, now);
  std::filesystem::copy(other + "/metrics.jsonl", folder + "/metrics.jsonl");

  const pid_t child = fork();
  if (child == 0) {  // which dies as it writes behind the head
    const rlimit limit = {head.size(), RLIM_INFINITY};
    setrlimit(RLIMIT_FSIZE, &limit);
    signal(SIGXFSZ, SIG_DFL);
    (void)MetricsRecorder::Create(RunFolder(folder), true, false, now, &log);
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGXFSZ) << status;
  EXPECT_EQ(EventFile(folder), "");
  RUBATO_ASSERT_OK(MetricsRecorder::Create(RunFolder(folder), true, true, now, &log));
  EXPECT_EQ(Contents(EventFile(folder)), Contents(EventFile(other)));
}

// What reads them reads all files of a folder, one after the other.
TEST(MetricsRecorderTest, ARunThatGoesOnKeepsItsEventFileAndBeginsAnother) {
  const Log log("server", 0, LogLevel::kError);
  const std::string folder = NewFolder();
  MetricsLine line;
  const absl::Time now = absl::UnixEpoch() + absl::Hours(1);
  {
    auto recorder = MetricsRecorder::Create(RunFolder(folder), true, false, now, &log);
    RUBATO_ASSERT_OK(recorder);
    recorder->Record(line, now);
  }
  const std::string first = EventFile(folder), before = Contents(first);
  EXPECT_THAT(before, HasSubstr("train/loss"));
  {
    auto recorder =
        MetricsRecorder::Create(RunFolder(folder), true, true, now + absl::Seconds(9), &log);
    RUBATO_ASSERT_OK(recorder);
    line.kind = MetricsLine::Kind::kEval;
    recorder->Record(line, now + absl::Seconds(9));
  }
  EXPECT_EQ(Contents(first), before);
  std::filesystem::remove(first);
  const std::string second = Contents(EventFile(folder));
  EXPECT_THAT(second, AllOf(HasSubstr("eval/loss"), Not(HasSubstr("train/loss"))));
  // Within a second it is the same one, with one head.
  RUBATO_ASSERT_OK(
      MetricsRecorder::Create(RunFolder(folder), true, true, now + absl::Seconds(9), &log));
  EXPECT_EQ(Contents(EventFile(folder)), second);
  // Where there is none, it has all.
  std::filesystem::remove(EventFile(folder));
  RUBATO_ASSERT_OK(MetricsRecorder::Create(RunFolder(folder), true, true, now, &log));
  EXPECT_THAT(Contents(EventFile(folder)), AllOf(HasSubstr("eval/loss"), HasSubstr("train/loss")));
}

// A server that goes on after a week holds no week's lines.
TEST(MetricsRecorderTest, TheLinesThereAreTakeNoMemory) {
  const std::string folder = NewFolder();
  const std::string line = R"({"kind":"train","step":50,"samples":3200,"time":1.0,"loss":0.25})";
  {
    std::ofstream file(folder + "/metrics.jsonl");
    for (int i = 0; i < 1000000; ++i) file << line << "\n";
  }
  const auto held = [] {
    rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss;  // KiB
  };
  const Log log("server", 0, LogLevel::kError);
  const int64_t before = held();
  RUBATO_ASSERT_OK(MetricsRecorder::Create(RunFolder(folder), false, true, absl::Now(), &log));
  EXPECT_LT(held() - before, 16 << 10);
}

TEST(MetricsRecorderTest, WithoutTensorboardThereIsNoEventFile) {
  const Log log("server", 0, LogLevel::kError);
  for (const bool wanted : {false, true}) {
    const std::string folder = NewFolder();
    auto recorder = MetricsRecorder::Create(RunFolder(folder), wanted, false, absl::Now(), &log);
    RUBATO_ASSERT_OK(recorder);
    recorder->Record(MetricsLine(), absl::Now());
    EXPECT_EQ(EventFile(folder).empty(), !wanted);
    if (wanted) {
      const std::string events = Contents(EventFile(folder));
      EXPECT_THAT(events, HasSubstr("train/loss"));
      EXPECT_THAT(events, Not(HasSubstr("accuracy")));  // a regression has none
    }
    EXPECT_THAT(Contents(folder + "/metrics.jsonl"), HasSubstr("\"kind\":\"train\""));
  }
}

// A limit on the size of files stands for a full disk: both files keep what they had, whole, and
// are warned of once each.
TEST(MetricsRecorderTest, AFullDiskGivesOneWarningAFile) {
  int fds[2];
  ASSERT_EQ(pipe(fds), 0);
  const Log log("server", 0, LogLevel::kInfo, LogFormat::kText, fds[1]);
  const std::string folder = NewFolder();
  auto recorder = MetricsRecorder::Create(RunFolder(folder), true, false, absl::Now(), &log);
  RUBATO_ASSERT_OK(recorder);
  EXPECT_TRUE(recorder->Record(MetricsLine(), absl::Now()));
  const std::string json = Contents(folder + "/metrics.jsonl");
  const std::string events = Contents(EventFile(folder));

  signal(SIGXFSZ, SIG_IGN);
  rlimit previous;
  getrlimit(RLIMIT_FSIZE, &previous);
  const rlimit limit = {std::max(json.size(), events.size()) + 10, previous.rlim_max};
  setrlimit(RLIMIT_FSIZE, &limit);
  for (int i = 0; i < 20; ++i) EXPECT_FALSE(recorder->Record(MetricsLine(), absl::Now()));
  setrlimit(RLIMIT_FSIZE, &previous);
  close(fds[1]);
  char buffer[4096];
  const std::string said(buffer, read(fds[0], buffer, sizeof buffer));
  close(fds[0]);

  const std::string now_json = Contents(folder + "/metrics.jsonl");
  const std::string now_events = Contents(EventFile(folder));
  EXPECT_EQ(now_json.size() % json.size(), 0u);
  EXPECT_EQ(now_json.substr(0, json.size()), json);
  EXPECT_EQ(now_events.substr(0, events.size()), events);
  const std::vector<std::string> lines = absl::StrSplit(said, '\n', absl::SkipEmpty());
  EXPECT_EQ(lines.size(), 2u) << said;
  EXPECT_THAT(said, HasSubstr("metrics.jsonl: No space left on device: lines of metrics are lost, "
                              "training goes on"));
  EXPECT_THAT(said, HasSubstr("/events.out.tfevents."));
  // And when there is room again, lines go in again.
  recorder->Record(MetricsLine(), absl::Now());
  EXPECT_EQ(Contents(folder + "/metrics.jsonl").size(), now_json.size() + json.size());
}

TEST(MetricsRecorderTest, TestsAreAsManyForEachDoublingOfTheRun) {
  const std::string folder = NewFolder();
  const Log log("server", 0);
  {
    absl::StatusOr<MetricsRecorder> recorder = MetricsRecorder::Create(
        RunFolder(folder), /*tensorboard=*/false, false, absl::UnixEpoch(), &log);
    RUBATO_ASSERT_OK(recorder);
    MetricsLine line;
    line.kind = MetricsLine::Kind::kEval;
    for (line.step = 1; line.step <= 1 << 17; ++line.step)
      recorder->Record(line, absl::UnixEpoch());
  }
  const std::string json = Contents(folder + "/metrics.jsonl");
  EXPECT_EQ(std::count(json.begin(), json.end(), '\n'), (1 << 15) + 2 * (1 << 14));
}

// As often as they were in a run that never stopped.
TEST(MetricsRecorderTest, TestsOfARunThatGoesOnAgainAndAgainAreCountedOn) {
  const Log log("server", 0);
  MetricsLine line, training;
  line.kind = MetricsLine::Kind::kEval;
  std::string folder = NewFolder();
  for (int run = 0; run < 8; ++run) {
    if (run > 0) {
      const std::string next = NewFolder();
      std::filesystem::rename(folder + "/metrics.jsonl", next + "/metrics.jsonl");
      folder = next;
    }
    absl::StatusOr<MetricsRecorder> recorder = MetricsRecorder::Create(
        RunFolder(folder), /*tensorboard=*/false, false, absl::UnixEpoch(), &log);
    RUBATO_ASSERT_OK(recorder);
    recorder->Record(training, absl::UnixEpoch());
    for (int i = 0; i < 1 << 14; ++i) recorder->Record(line, absl::UnixEpoch());
  }
  const std::string json = Contents(folder + "/metrics.jsonl");
  EXPECT_EQ(std::count(json.begin(), json.end(), '\n') - 8, (1 << 15) + 2 * (1 << 14));
}

}  // namespace
}  // namespace rubato
