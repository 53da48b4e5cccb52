#include "tools/command/progress.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iterator>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/terminal.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;
using Kind = Progress::Kind;

// 3 epochs of 1000 samples. Half of them done in 10 s: 10 s are left.
constexpr char kTrain[] =
    R"({"kind":"train","step":30,"epoch":1,"samples":1500,"time":10.0,"loss":0.25,"accuracy":0.941,)"
    R"("learning_rate":0.05,"samples_per_second":149.6,"staleness":0,"unheard_of":[1]})";
constexpr char kTest[] = R"({"kind":"test","epoch":1,"step":20,"loss":0.2,"accuracy":0.9525})";

Progress HalfWay() {
  Progress progress(3000, 1000);
  EXPECT_EQ(progress.OnLine(kTrain), Kind::kTrain);
  EXPECT_EQ(progress.OnLine(kTest), Kind::kTest);
  return progress;
}

TEST(ProgressTest, LiveLineTellsWhereTheRunIs) {
  EXPECT_EQ(HalfWay().LiveLine(200),
            "step 30  epoch 1.5/3  loss 0.2500  accuracy 94.1 %  150 samples/s  test 95.2 %  of "
            "step 20  0:10 left");
}

// As of a script's job, whose data nobody else knows.
TEST(ProgressTest, HowLongAnEpochIsTheFirstLineTells) {
  Progress progress([](int64_t epoch) { return 3.0 * static_cast<double>(epoch); });
  EXPECT_THAT(progress.LiveLine(200), Not(HasSubstr("left")));
  progress.OnLine(R"({"kind":"train","step":30,"epoch":1.5,"samples":1500,"time":10.0,"loss":1})");
  EXPECT_EQ(progress.LiveLine(200), "step 30  epoch 1.5/3  loss 1.0000  0:10 left");
}

TEST(ProgressTest, ATestBesideTheTrainingIsCalledByItsSplit) {
  Progress progress(3000, 1000);
  progress.OnLine(kTrain);
  EXPECT_EQ(progress.OnLine(R"({"kind":"eval","split":"validation","loss":0.2,"accuracy":0.9525})"),
            Kind::kEval);
  EXPECT_THAT(progress.LiveLine(200), HasSubstr("  validation 95.2 %  "));
  EXPECT_THAT(Log("launcher", 0).Line(absl::UnixEpoch(), LogLevel::kInfo, "", progress.Fields()),
              HasSubstr(" eval_loss=0.2 eval_accuracy=0.9525 "));
  progress.OnLine(R"({"kind":"test","loss":0.25,"accuracy":0.94})");
  EXPECT_THAT(progress.LiveLine(200), HasSubstr("  test 94.0 %  "));
  EXPECT_THAT(Log("launcher", 0).Line(absl::UnixEpoch(), LogLevel::kInfo, "", progress.Fields()),
              HasSubstr(" test_loss=0.25 test_accuracy=0.94 "));
}

TEST(ProgressTest, WithoutAccuracyTheTestsLossIsTold) {
  Progress progress(3000, 1000);
  progress.OnLine(R"({"kind":"train","step":30,"samples":1500,"time":10.0,"loss":0.25})");
  progress.OnLine(R"({"kind":"test","step":20,"loss":0.2})");
  EXPECT_EQ(progress.LiveLine(200),
            "step 30  epoch 1.5/3  loss 0.2500  test loss 0.2000  of step 20  0:10 left");
}

TEST(ProgressTest, OtherFiguresOfAScriptsTestStandBesideIt) {
  Progress progress(3000, 1000);
  progress.OnLine(R"({"kind":"train","step":30,"samples":1500,"time":10.0,"loss":0.25,"f1":1})");
  const auto live = [&progress](const std::string& figures, int width = 200) {
    progress.OnLine(absl::StrCat(R"({"kind":"eval","split":"test","step":20)", figures, "}"));
    return progress.LiveLine(width);
  };
  const std::string others = R"(,"a":null,"b":0.123456,"c":12345678,"d":3,"e":4)";
  const std::string begin = "step 30  epoch 1.5/3  loss 0.2500  ", end = "  0:10 left";
  const std::string of = "  of step 20";
  EXPECT_EQ(live(R"(,"loss":0.2,"accuracy":0.9525)" + others),
            begin + "test 95.2 %  b 0.1235  c 1.235e+07  d 3" + of + end);
  EXPECT_EQ(live(R"(,"loss":0.2)" + others),
            begin + "test loss 0.2000  b 0.1235  c 1.235e+07  d 3" + of + end);
  EXPECT_EQ(live(R"(,"loss":null)" + others), begin + "test b 0.1235  c 1.235e+07  d 3" + of + end);
  EXPECT_EQ(live(others, 65), "epoch 1.5/3  loss 0.2500  test b 0.1235  c 1.235e+07" + end);
  EXPECT_EQ(live(others, 60), "epoch 1.5/3  loss 0.2500  test b 0.1235" + end);
  EXPECT_THAT(
      Log("launcher", 0).Line(absl::UnixEpoch(), LogLevel::kInfo, "", progress.Fields()),
      HasSubstr(" loss=0.25 eval_step=20 eval_b=0.123456 eval_c=1.23457e+07 eval_d=3 eval_e=4 "));
  EXPECT_EQ(live(R"(,"loss":0.2)"), begin + "test loss 0.2000" + of + end)
      << "they are of one test";
}

TEST(ProgressTest, LiveLineFitsEveryWidth) {
  const Progress progress = HalfWay();
  for (int width = 1; width < 120; ++width) {
    EXPECT_LT(static_cast<int>(progress.LiveLine(width).size()), width);
  }
  EXPECT_EQ(progress.LiveLine(46), "epoch 1.5/3  loss 0.2500  0:10 left");
  EXPECT_EQ(progress.LiveLine(12), "epoch 1.5/3");
  EXPECT_EQ(Progress(1, 1).LiveLine(80), "waiting for the first step");
  EXPECT_EQ(Progress(1, 1).LiveLine(8), "waiting");
}

TEST(ProgressTest, WhatIsNotFiniteIsSaid) {
  Progress progress(3000, 1000);
  progress.OnLine(R"({"kind":"train","step":1,"samples":10,"time":1,"loss":null})");
  EXPECT_THAT(progress.LiveLine(200), HasSubstr("loss not finite"));
}

TEST(ProgressTest, UnknownAndBrokenLinesAreSkipped) {
  Progress progress(3000, 1000);
  for (const char* line :
       {"", "{", "[]", "3", R"({"kind":5})", R"({"kind":"view","step":9})", R"({"step":9})"}) {
    EXPECT_EQ(progress.OnLine(line), Kind::kOther) << line;
  }
  EXPECT_EQ(progress.LiveLine(80), "waiting for the first step");
  EXPECT_EQ(progress.OnLine(R"({"kind":"train","step":"many","loss":{}})"), Kind::kTrain);
}

TEST(ProgressTest, FieldsAreThoseOfALogLine) {
  EXPECT_EQ(Log("launcher", 0).Line(absl::UnixEpoch(), LogLevel::kInfo, "", HalfWay().Fields()),
            "1970-01-01T00:00:00.000Z launcher 0 step=30 epoch=1.5 loss=0.25 accuracy=0.941 "
            "samples_per_second=150 staleness=0 test_step=20 test_loss=0.2 test_accuracy=0.9525 "
            "seconds_left=10\n");
}

TEST(ProgressTest, ClockTextIsReadAsAClock) {
  EXPECT_EQ(ClockText(0), "0:00");
  EXPECT_EQ(ClockText(6.2), "0:07");
  EXPECT_EQ(ClockText(754), "12:34");
  EXPECT_EQ(ClockText(10800), "3:00:00");
}

class FileTest : public testing::Test {
 protected:
  FileTest() {
    if (mkdtemp(folder_.data()) == nullptr) abort();
  }

  void Append(absl::string_view text) { std::ofstream(path(), std::ios::app) << text; }
  std::string path() const { return folder_ + "/metrics.jsonl"; }

 private:
  std::string folder_ = testing::TempDir() + "/progress_XXXXXX";
};

using LineTailTest = FileTest;

TEST_F(LineTailTest, ReturnsWholeLinesOnceAsTheyCome) {
  LineTail tail(path());
  EXPECT_EQ(tail.Next(), std::nullopt);
  Append("one\ntw");
  EXPECT_EQ(tail.Next(), "one");
  EXPECT_EQ(tail.Next(), std::nullopt);
  Append("o\n\nthree\n");
  EXPECT_EQ(tail.Next(), "two");
  EXPECT_EQ(tail.Next(), "");
  EXPECT_EQ(tail.Next(), "three");
  EXPECT_EQ(tail.Next(), std::nullopt);
  const std::string large(100000, 'x');
  Append(absl::StrCat(large, "\nend\n"));
  EXPECT_EQ(tail.Next(), large);
  EXPECT_EQ(tail.Next(), "end");
}

// Else they would be kept until a newline comes, for all of a run.
TEST_F(LineTailTest, ProgressBarsAreLinesAndWhatHasNoEndIsCut) {
  LineTail tail(path());
  Append("\r 1%\r 2%\rerror: x\n");
  for (const char* line : {"", " 1%", " 2%", "error: x"}) EXPECT_EQ(tail.Next(), line);
  EXPECT_EQ(tail.Next(), std::nullopt);
  Append("\r50%\rdone\r\nnext\n");
  for (const auto& [line, is_overwritten] :
       {std::pair("", true), {"50%", true}, {"done", false}, {"next", false}}) {
    EXPECT_EQ(tail.Next(), line);
    EXPECT_EQ(tail.is_overwritten(), is_overwritten) << line;
  }
  const std::string endless(1 << 20, 'x');
  Append(endless);
  EXPECT_EQ(tail.Next(), endless);
  EXPECT_EQ(tail.Next(), std::nullopt);
}

// As where it is cut by the end of what was read at once, which is 16 KiB, or was there so far.
TEST_F(LineTailTest, AReturnAndANewlineThatComeApartAreOneEnd) {
  LineTail tail(path());
  const std::string line((1 << 14) - 1, 'x');
  Append(absl::StrCat(line, "\r\ntwo\r"));
  EXPECT_EQ(tail.Next(), line);
  EXPECT_FALSE(tail.is_overwritten());
  EXPECT_EQ(tail.Next(), std::nullopt);
  Append("\nthree\r");
  EXPECT_EQ(tail.Next(), "two");
  EXPECT_FALSE(tail.is_overwritten());
  EXPECT_EQ(tail.Next(), std::nullopt);
  Append("four\n");
  EXPECT_EQ(tail.Next(), "three");
  EXPECT_TRUE(tail.is_overwritten());
  EXPECT_EQ(tail.Next(), "four");
  EXPECT_EQ(tail.Next(), std::nullopt);
}

TEST_F(LineTailTest, TheLastLineMayLackItsNewline) {
  LineTail tail(path());
  EXPECT_EQ(tail.TakeRest(), std::nullopt);
  Append("one\ntwo");
  EXPECT_EQ(tail.Next(), "one");
  EXPECT_EQ(tail.Next(), std::nullopt);
  EXPECT_EQ(tail.TakeRest(), "two");
  EXPECT_FALSE(tail.is_overwritten());
  EXPECT_EQ(tail.Next(), std::nullopt);
  EXPECT_EQ(tail.TakeRest(), std::nullopt);
  Append("100%\r");
  EXPECT_EQ(tail.Next(), std::nullopt);
  EXPECT_EQ(tail.TakeRest(), "100%");
  EXPECT_TRUE(tail.is_overwritten());
}

TEST_F(LineTailTest, GoesOnInAFileThatIsBegunAnew) {
  LineTail tail(path());
  Append("one\ntwo\n");
  EXPECT_EQ(tail.Next(), "one");
  EXPECT_EQ(tail.Next(), "two");
  Append("three\n");
  ASSERT_EQ(rename(path().c_str(), (path() + ".1").c_str()), 0);
  Append("four\n");
  EXPECT_EQ(tail.Next(), "three");
  EXPECT_EQ(tail.Next(), "four");
  ASSERT_EQ(truncate(path().c_str(), 0), 0);
  EXPECT_EQ(tail.Next(), std::nullopt);
  Append("5\n");
  EXPECT_EQ(tail.Next(), "5");
  EXPECT_EQ(tail.Next(), std::nullopt);
}

// Shown on a pseudo-terminal, as a terminal would get it.
class ProgressDisplayTest : public FileTest {
 protected:
  ProgressDisplayTest() {
    terminal_ = posix_openpt(O_RDWR | O_NOCTTY);
    if (grantpt(terminal_) != 0 || unlockpt(terminal_) != 0) abort();
    program_ = open(ptsname(terminal_), O_RDWR | O_NOCTTY);
    termios settings;
    tcgetattr(program_, &settings);
    cfmakeraw(&settings);
    tcsetattr(program_, TCSANOW, &settings);
  }
  ~ProgressDisplayTest() override {
    close(program_);
    close(terminal_);
  }

  void SetWidth(uint16_t columns) {
    const winsize size = {24, columns, 0, 0};
    ASSERT_EQ(ioctl(program_, TIOCSWINSZ, &size), 0);
  }

  // All that was written since the last call. A pseudo-terminal hands bytes over in its own time,
  // so a mark behind them tells when they are all here.
  std::string Shown() {
    static constexpr char kMark = '\0';
    if (write(program_, &kMark, 1) != 1) abort();
    std::string shown;
    char buffer[4096];
    while (shown.empty() || shown.back() != kMark) {
      const ssize_t got = read(terminal_, buffer, sizeof buffer);
      if (got <= 0) abort();
      shown.append(buffer, static_cast<size_t>(got));
    }
    shown.pop_back();
    return shown;
  }

  int terminal_, program_;
  const absl::Time start_ = absl::UnixEpoch();
};

TEST_F(ProgressDisplayTest, TerminalLineIsRedrawnInPlaceAndRemoved) {
  SetWidth(46);
  {
    ProgressDisplay display(path(), Progress(3000, 1000), program_, /*terminal=*/true,
                            LogLevel::kInfo);
    display.Update(start_);
    EXPECT_EQ(Shown(), "\rwaiting for the first step\x1b[K");
    display.Update(start_);
    EXPECT_EQ(Shown(), "");
    Append(absl::StrCat(kTrain, "\n"));
    display.Update(start_);
    EXPECT_EQ(Shown(), "\repoch 1.5/3  loss 0.2500  0:10 left\x1b[K");
    SetWidth(20);
    Append(absl::StrCat(kTrain, "\n"));
    display.Update(start_);
    EXPECT_EQ(Shown(), "\repoch 1.5/3\x1b[K");
  }
  EXPECT_EQ(Shown(), "\r\x1b[K");
}

TEST_F(ProgressDisplayTest, ElsewhereALineEveryFewSecondsAndAtEachTest) {
  ProgressDisplay display(path(), Progress(3000, 1000), program_, /*terminal=*/false,
                          LogLevel::kInfo);
  display.Update(start_);
  EXPECT_EQ(Shown(), "");
  Append(absl::StrCat(kTrain, "\n"));
  display.Update(start_);
  EXPECT_THAT(
      Shown(),
      EndsWith("Z launcher 0 step=30 epoch=1.5 loss=0.25 accuracy=0.941 samples_per_second=150 "
               "staleness=0 seconds_left=10\n"));
  Append(absl::StrCat(kTrain, "\n"));
  display.Update(start_ + absl::Seconds(1));
  EXPECT_EQ(Shown(), "");
  Append(absl::StrCat(kTest, "\n"));
  display.Update(start_ + absl::Seconds(2));
  EXPECT_THAT(Shown(), HasSubstr("test_accuracy=0.9525"));
  Append(absl::StrCat(kTrain, "\n"));
  display.Update(start_ + absl::Seconds(9));
  EXPECT_THAT(Shown(), HasSubstr("step=30"));
}

TEST_F(ProgressDisplayTest, InADayOfTestsLinesAreAsManyForEachDoublingOfTheRun) {
  const std::string log = path() + ".log";
  const int fd = open(log.c_str(), O_RDWR | O_CREAT | O_APPEND, 0666);
  {
    ProgressDisplay display(path(), Progress(3000, 1000), fd, /*terminal=*/false, LogLevel::kInfo);
    for (absl::Duration time; time < absl::Hours(24); time += absl::Seconds(3)) {
      Append(absl::StrCat(kTrain, "\n", kTest, "\n"));
      display.Update(start_ + time);
    }
  }
  std::ifstream file(log);
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const auto lines = std::count(text.begin(), text.end(), '\n');
  // 2^10 intervals of 5 s pass in 85 minutes, of which the day has 17 times as many.
  EXPECT_GT(lines, 2 * 512);
  EXPECT_LT(lines, (2 + 5) * 512);
  close(fd);
}

TEST_F(ProgressDisplayTest, ANoticeStandsInPlaceOfTheLineUntilItIsOver) {
  SetWidth(30);
  Append(absl::StrCat(kTrain, "\n"));
  ProgressDisplay display(path(), Progress(3000, 1000), program_, /*terminal=*/true,
                          LogLevel::kInfo);
  display.Update(start_);
  Shown();
  display.SetNotice("paused: training waits for 1 more workers");
  EXPECT_EQ(Shown(), "\rpaused: training waits for 1 \x1b[K");
  display.SetNotice("paused: training waits for 1 more workers");
  EXPECT_EQ(Shown(), "");
  display.Clear();
  EXPECT_EQ(Shown(), "\r\x1b[K");
  display.SetNotice("");
  EXPECT_EQ(Shown(), "\repoch 1.5/3  loss 0.2500\x1b[K");

  ProgressDisplay lines(path(), Progress(3000, 1000), program_, /*terminal=*/false,
                        LogLevel::kInfo);
  lines.SetNotice("paused: it waits");
  lines.SetNotice("");
  EXPECT_THAT(Shown(), EndsWith(" paused: it waits\n"));
}

TEST_F(ProgressDisplayTest, ColorsAreSparingAndMayBeRefused) {
  Append(R"({"kind":"train","step":1,"samples":10,"time":1,"loss":null})"
         "\n"
         R"({"kind":"test","step":1,"loss":1,"accuracy":0.5})"
         "\n");
  setenv("TERM", "xterm", 1);
  for (const bool refused : {false, true}) {
    refused ? setenv("NO_COLOR", "1", 1) : unsetenv("NO_COLOR");
    ProgressDisplay display(path(), Progress(20, 20), program_, true, LogLevel::kInfo);
    display.Update(start_);
    const std::string shown = Shown();
    EXPECT_THAT(shown, HasSubstr("loss not finite"));
    EXPECT_EQ(absl::StrContains(shown, "\x1b[1;31mloss not finite\x1b[0m"), !refused) << shown;
    EXPECT_EQ(absl::StrContains(shown, "\x1b[1mtest 50.0 %\x1b[0m"), !refused) << shown;
  }
  unsetenv("NO_COLOR");
}

TEST_F(ProgressDisplayTest, JsonLinesHaveNumbers) {
  Append(R"({"kind":"train","step":1,"samples":10,"time":1,"loss":null})"
         "\n");
  ProgressDisplay display(path(), Progress(20, 20), program_, false, LogLevel::kInfo,
                          LogFormat::kJson);
  display.Update(start_);
  EXPECT_THAT(Shown(), HasSubstr("\"role\":\"launcher\",\"rank\":0,\"level\":\"info\",\"message\":"
                                 "\"\",\"fields\":{\"step\":1,\"epoch\":0.5,\"loss\":null"));
}

TEST_F(ProgressDisplayTest, KnowsATerminal) {
  setenv("TERM", "xterm", 1);
  EXPECT_TRUE(IsTerminal(program_));
  setenv("TERM", "dumb", 1);
  EXPECT_FALSE(IsTerminal(program_));
  setenv("TERM", "xterm", 1);
  int fds[2];
  ASSERT_EQ(pipe(fds), 0);
  EXPECT_FALSE(IsTerminal(fds[1]));
}

}  // namespace
}  // namespace rubato
