#include "common/base/log.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmath>
#include <fstream>
#include <map>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/last_words_file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

using ::testing::HasSubstr;

const absl::Time kTime = absl::FromUnixMillis(1795247941123);  // 2026-11-21T07:59:01.123Z

TEST(LogTest, LineIsTimeRoleRankMessageFields) {
  const Log log("worker", 1);
  EXPECT_EQ(log.Line(kTime, LogLevel::kInfo, "", {{"step", 120}, {"loss", 0.31234567}}),
            "2026-11-21T07:59:01.123Z worker 1 step=120 loss=0.312346\n");
  EXPECT_EQ(
      log.Line(kTime, LogLevel::kWarning, "peer is silent",
               {{"peer", "server 0"}, {"mode", "sync"}}),
      "2026-11-21T07:59:01.123Z worker 1 warning: peer is silent peer=\"server 0\" mode=sync\n");
  EXPECT_EQ(log.Line(kTime, LogLevel::kError, "gone", {}),
            "2026-11-21T07:59:01.123Z worker 1 error: gone\n");
}

TEST(LogTest, ValuesCanAlwaysBeSplitAgain) {
  const Log log("server", 0);
  EXPECT_EQ(log.Line(kTime, LogLevel::kInfo, "two\nlines",
                     {{"empty", ""},
                      {"quote", "say \"x\""},
                      {"break", "a\nb"},
                      {"name", "Zürich"},
                      {"flag", true}}),
            "2026-11-21T07:59:01.123Z server 0 two\\nlines empty=\"\" quote=\"say \\\"x\\\"\" "
            "break=\"a\\nb\" "
            "name=Zürich flag=true\n");
}

TEST(LogTest, QuotesOfAMessageAreAsTheyAre) {
  const Log log("server", 0);
  EXPECT_THAT(log.Line(absl::UnixEpoch(), LogLevel::kWarning, "no \"x\" in a\\\"b", {}),
              testing::EndsWith(" warning: no \"x\" in a\\\\\"b\n"));
}

TEST(LogTest, ARankThatIsNotKnownIsNotWritten) {
  EXPECT_EQ(Log("worker", -1).Line(kTime, LogLevel::kInfo, "ready", {}),
            "2026-11-21T07:59:01.123Z worker ready\n");
}

// Read back by another implementation in tests/json_log_test.py.
TEST(LogTest, JsonHasOneObjectALine) {
  const Log log("worker", 1, LogLevel::kInfo, LogFormat::kJson);
  EXPECT_EQ(log.Line(kTime, LogLevel::kInfo, "",
                     {{"step", 120}, {"loss", 0.31234567}, {"mode", "sync"}, {"last", true}}),
            "{\"time\":\"2026-11-21T07:59:01.123Z\",\"role\":\"worker\",\"rank\":1,\"level\":"
            "\"info\",\"message\":\"\",\"fields\":{\"step\":120,\"loss\":0.312346,\"mode\":"
            "\"sync\",\"last\":true}}\n");
  EXPECT_EQ(log.Line(kTime, LogLevel::kWarning, "two\nlines \"x\" \xff",
                     {{"nan", std::nan("")}, {"inf", -HUGE_VAL}, {"text", "12"}, {"big", 1e300}}),
            "{\"time\":\"2026-11-21T07:59:01.123Z\",\"role\":\"worker\",\"rank\":1,\"level\":"
            "\"warning\",\"message\":\"two\\nlines \\\"x\\\" \xEF\xBF\xBD\",\"fields\":{"
            "\"nan\":null,\"inf\":null,\"text\":\"12\",\"big\":1e+300}}\n");
  EXPECT_THAT(Log("worker", -1, LogLevel::kInfo, LogFormat::kJson)
                  .Line(kTime, LogLevel::kError, "gone", {}),
              HasSubstr("\"rank\":null,\"level\":\"error\""));
}

TEST(LogTest, FatalWordsAreALineEach) {
  int fds[2];
  ASSERT_EQ(pipe(fds), 0);
  const Log log("server", 0, LogLevel::kError, LogFormat::kJson, fds[1]);
  log.Fatal(absl::InvalidArgumentError("one\ntwo"));
  close(fds[1]);
  char buffer[1024];
  const std::string got(buffer, read(fds[0], buffer, sizeof buffer));
  close(fds[0]);
  EXPECT_THAT(got, HasSubstr("\"level\":\"fatal\",\"message\":\"one\",\"fields\":{}}\n{"));
  EXPECT_THAT(got, HasSubstr("\"message\":\"two\",\"fields\":{}}\n"));
}

TEST(LogTest, LastWordsThatAFullDiskDoesNotTakeGoToTheOtherFile) {
  const std::string path = testing::TempDir() + "/last_words";
  std::ofstream(path) << "";
  setenv(kLastWordsVariable, path.c_str(), 1);
  const int full = open("/dev/full", O_WRONLY);
  ASSERT_GE(full, 0);
  Log("server", 0, LogLevel::kError, LogFormat::kJson, full)
      .Fatal(absl::UnavailableError("it is in /x instead"));
  close(full);
  unsetenv(kLastWordsVariable);
  std::string kept;
  std::getline(std::ifstream(path), kept);
  EXPECT_THAT(kept, HasSubstr("\"message\":\"it is in /x instead\""));
}

TEST(LogTest, LinesBelowTheLevelAreDropped) {
  int fds[2];
  ASSERT_EQ(pipe(fds), 0);
  const Log log("server", 0, LogLevel::kWarning, LogFormat::kText, fds[1]);
  log.Info("dropped");
  log.Warning("kept");
  log.Error("kept too");
  close(fds[1]);
  char buffer[1024];
  const std::string got(buffer, read(fds[0], buffer, sizeof buffer));
  close(fds[0]);
  EXPECT_THAT(got, testing::Not(HasSubstr("dropped")));
  EXPECT_THAT(got, HasSubstr("server 0 warning: kept\n"));
  EXPECT_THAT(got, HasSubstr("server 0 error: kept too\n"));
}

TEST(LogTest, LinesOfManyThreadsStayWhole) {
  constexpr int kThreads = 4, kLines = 100;
  int fds[2];
  ASSERT_EQ(pipe(fds), 0);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([t, fd = fds[1]] {
      const Log log("worker", t, LogLevel::kInfo, LogFormat::kText, fd);
      for (int i = 0; i < kLines; ++i) log.Info("", {{"pad", std::string(100, 'x')}, {"i", i}});
    });
  }
  std::string all;
  std::thread reader([&] {
    char buffer[4096];
    ssize_t got;
    while ((got = read(fds[0], buffer, sizeof buffer)) > 0) all.append(buffer, got);
  });
  for (std::thread& thread : threads) thread.join();
  close(fds[1]);
  reader.join();
  close(fds[0]);
  std::map<std::string, int> next;  // by thread: its lines come in order
  for (const absl::string_view line : absl::StrSplit(all, '\n', absl::SkipEmpty())) {
    const std::vector<std::string> words = absl::StrSplit(line, ' ');
    ASSERT_EQ(words.size(), 5u) << line;
    EXPECT_EQ(words[4], absl::StrCat("i=", next[words[2]]++));
  }
  EXPECT_EQ(next.size(), static_cast<size_t>(kThreads));
  for (const auto& [thread, lines] : next) EXPECT_EQ(lines, kLines) << thread;
}

TEST(PrintErrorTest, EveryLineIsMarked) {
  testing::internal::CaptureStderr();
  PrintError(absl::InvalidArgumentError(
      "a.yaml:1:2: x: found 3, expected 4\na.yaml:2:1: y: unknown key\n"));
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "error: a.yaml:1:2: x: found 3, expected 4\nerror: a.yaml:2:1: y: unknown key\n");
  testing::internal::CaptureStderr();
  PrintError(absl::UnavailableError(""));
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "error: UNAVAILABLE\n");
}

}  // namespace
}  // namespace rubato
