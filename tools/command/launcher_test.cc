#include "tools/command/launcher.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <set>
#include <sstream>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/process_exit.h"
#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

// How a line of a process that logs JSON begins.
constexpr char kJson[] = R"({"time":"2026-11-21T07:59:01.123Z","role":"worker",)";

using ::testing::HasSubstr;
using Event = Launcher::Event;

// Real processes, told what to do by arguments, in an empty folder. A FIFO shows the test who has
// started and whether anyone still lives; the test fails by Bazel's own limit if what it waits for
// never comes.
class LauncherTest : public testing::Test {
 protected:
  LauncherTest() {
    if (mkdtemp(folder_.data()) == nullptr || mkfifo(Path("alive").c_str(), 0600) != 0) abort();
    alive_ = open(Path("alive").c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (alive_ < 0) abort();
  }
  ~LauncherTest() override { close(alive_); }

  std::string Path(absl::string_view name) const { return absl::StrCat(folder_, "/", name); }

  Command Fake(absl::string_view role, int rank, std::vector<std::string> script) const {
    Command command{std::string(role),
                    rank,
                    {"tests/fake_process"},
                    Path(absl::StrCat(role, "-", rank, ".log"))};
    command.arguments.insert(command.arguments.end(), script.begin(), script.end());
    return command;
  }

  std::string Log(absl::string_view role, int rank) const {
    std::stringstream text;
    text << std::ifstream(Path(absl::StrCat(role, "-", rank, ".log"))).rdbuf();
    return text.str();
  }

  // Reads announcements until `count` processes have made one. Their numbers.
  std::set<pid_t> AwaitStarted(size_t count) {
    std::set<pid_t> pids;
    while (pids.size() < count) {
      std::string line;
      char byte;
      while (ReadByte(&byte) && byte != '\n') line.push_back(byte);
      pid_t pid = 0;
      if (absl::SimpleAtoi(line, &pid)) pids.insert(pid);
    }
    return pids;
  }

  // Returns when no process that has announced itself lives any more. Exact: the kernel closes a
  // dead process's files.
  void AwaitAllDead() {
    char byte;
    while (ReadByte(&byte)) {
    }
  }

  bool NobodyAlive() {
    char byte;
    return read(alive_, &byte, 1) == 0;
  }

  std::string folder_ = testing::TempDir() + "/launcher_XXXXXX";
  int alive_ = -1;

 private:
  bool ReadByte(char* byte) {
    pollfd fd = {alive_, POLLIN, 0};
    while (poll(&fd, 1, -1) < 0) {
    }
    return read(alive_, byte, 1) == 1;
  }
};

TEST_F(LauncherTest, WaitsUntilAllHaveEndedWell) {
  Launcher launcher;
  RUBATO_ASSERT_OK(launcher.Start(Fake("server", 0, {"print", "out", "complain", "err"})));
  RUBATO_ASSERT_OK(launcher.Start(Fake("worker", 1, {"exit", "0"})));
  EXPECT_EQ(launcher.Wait(absl::InfiniteDuration()), Event::kAllEnded);
  EXPECT_EQ(Log("server", 0), "out\nerr\n");
  EXPECT_FALSE(launcher.failure().has_value());
}

// As what a script prints in place, and is then killed and started again.
TEST_F(LauncherTest, WhatIsStartedAgainBeginsWithALineOfItsOwn) {
  std::ofstream(Path("worker-0.log")) << "one\n 50%";
  for (const char* line : {"two", "three"}) {
    Launcher launcher;
    RUBATO_ASSERT_OK(launcher.Start(Fake("worker", 0, {"print", line})));
    EXPECT_EQ(launcher.Wait(absl::InfiniteDuration()), Event::kAllEnded);
  }
  EXPECT_EQ(Log("worker", 0), "one\n 50%\ntwo\nthree\n");
}

TEST_F(LauncherTest, AChildMayUseTheProcessorsOfItsCommand) {
  const int processor = sched_getcpu();  // one of the test's own
  Launcher launcher;
  Command command{
      "worker", 0, {"/bin/grep", "Cpus_allowed_list", "/proc/self/status"}, Path("worker-0.log")};
  command.processors = {processor};
  RUBATO_ASSERT_OK(launcher.Start(command));
  EXPECT_EQ(launcher.Wait(absl::InfiniteDuration()), Event::kAllEnded);
  EXPECT_EQ(Log("worker", 0), absl::StrCat("Cpus_allowed_list:\t", processor, "\n"));
}

TEST_F(LauncherTest, ChildrenStartWithACleanSlate) {
  // Blocks SIGINT and SIGTERM, ignores SIGPIPE and SIGXFSZ: children must not.
  SignalWatcher watcher;
  Launcher launcher;
  RUBATO_ASSERT_OK(launcher.Start(Fake("server", 0, {"describe"})));
  EXPECT_EQ(launcher.Wait(absl::InfiniteDuration()), Event::kAllEnded);
  EXPECT_EQ(Log("server", 0), "leads_group=1 blocked=0 ignored=0 open_files=3 stdin_bytes=0\n");
}

TEST_F(LauncherTest, TimeoutIsReportedWhileAllIsWell) {
  Launcher launcher;
  RUBATO_ASSERT_OK(launcher.Start(Fake("server", 0, {"pause"})));
  EXPECT_EQ(launcher.Wait(absl::Milliseconds(1)), Event::kTimeout);
  EXPECT_EQ(launcher.running(), 1);
}

TEST_F(LauncherTest, FirstFailureIsKeptWithItsCodeAndReason) {
  Launcher launcher;
  RUBATO_ASSERT_OK(
      launcher.Start(Fake("server", 0, {"on-term", "143", "announce", Path("alive"), "pause"})));
  AwaitStarted(1);
  RUBATO_ASSERT_OK(launcher.Start(Fake("worker", 1,
                                       {"complain", "noise", "complain", "error: no such data",
                                        "complain", "error: in /x", "exit", "2"})));
  EXPECT_EQ(launcher.Wait(absl::InfiniteDuration()), Event::kFailure);
  launcher.Stop();
  EXPECT_TRUE(NobodyAlive());
  EXPECT_EQ(launcher.Wait(absl::InfiniteDuration()), Event::kFailure);
  ASSERT_TRUE(launcher.failure().has_value());
  EXPECT_EQ(launcher.failure()->role, "worker");
  EXPECT_EQ(launcher.failure()->rank, 1);
  EXPECT_EQ(launcher.failure()->exit_code, 2);
  EXPECT_EQ(launcher.failure()->reason, "no such data\nin /x");
  EXPECT_EQ(launcher.failure()->log_path, Path("worker-1.log"));
}

TEST_F(LauncherTest, AProcessWhoseLogTakesNothingIsExplained) {
  Launcher launcher;
  Command command = Fake("server", 0, {"complain", "error: cannot write x", "exit", "1"});
  command.log_path = "/dev/full";
  RUBATO_ASSERT_OK(launcher.Start(command));
  EXPECT_EQ(launcher.Wait(absl::InfiniteDuration()), Event::kFailure);
  EXPECT_EQ(launcher.failure()->reason,
            "exited with code 1; cannot write /dev/full: No space left on device");
}

TEST_F(LauncherTest, LastWordsThatTheLogDoesNotTakeAreRead) {
  Launcher launcher;
  RUBATO_ASSERT_OK(launcher.Start(
      {"server",
       0,
       {"/bin/sh", "-c", "echo 'error: it is in /x instead' >> $RUBATO_LAST_WORDS; exit 1"},
       "/dev/full"}));
  EXPECT_EQ(launcher.Wait(absl::InfiniteDuration()), Event::kFailure);
  EXPECT_EQ(launcher.failure()->reason, "it is in /x instead");
}

// A limit of the size of files stands for a full disk.
TEST_F(LauncherTest, ALineThatIsCutOffIsNoReason) {
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small = {10, before.rlim_max};
  signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  Launcher launcher;
  const Command command = {
      "server",
      0,
      {"/bin/sh", "-c", "trap '' XFSZ; printf 'error: cut off\\n' >&2; exit 1"},
      Path("server-0.log")};
  const absl::Status started = launcher.Start(command);
  const Event event = launcher.Wait(absl::InfiniteDuration());
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  signal(SIGXFSZ, SIG_DFL);
  RUBATO_ASSERT_OK(started);
  EXPECT_EQ(event, Event::kFailure);
  EXPECT_EQ(Log("server", 0), "error: cut");
  EXPECT_EQ(launcher.failure()->reason, absl::StrCat("exited with code 1; cannot write ",
                                                     Path("server-0.log"), ": File too large"));
}

TEST_F(LauncherTest, OthersMayEndByThemselvesAfterAFailure) {
  ASSERT_EQ(mkfifo(Path("go").c_str(), 0600), 0);
  Launcher launcher(/*grace=*/absl::InfiniteDuration());
  // Ends in its own way when the failing process does, and would exit with 9 on SIGTERM.
  RUBATO_ASSERT_OK(launcher.Start(Fake("server", 0,
                                       {"on-term", "9", "announce", Path("alive"), "await",
                                        Path("go"), "complain", "lost worker 1", "exit", "1"})));
  RUBATO_ASSERT_OK(launcher.Start(Fake("worker", 1, {"announce", Path("go"), "exit", "3"})));
  AwaitStarted(1);
  EXPECT_EQ(launcher.Wait(absl::InfiniteDuration()), Event::kFailure);
  EXPECT_EQ(launcher.running(), 0);
  EXPECT_EQ(Log("server", 0), "lost worker 1\n");
}

TEST_F(LauncherTest, AVictimThatIsSeenFirstIsNotBlamed) {
  ASSERT_EQ(mkfifo(Path("go").c_str(), 0600), 0);
  Launcher launcher(/*grace=*/absl::InfiniteDuration());
  RUBATO_ASSERT_OK(launcher.Start(
      Fake("server", 1,
           {"complain", "stopped: worker 0 is gone", "announce", Path("go"), "exit", "1"})));
  RUBATO_ASSERT_OK(launcher.Start(
      Fake("worker", 0, {"await", Path("go"), "complain", "error: disk full", "exit", "1"})));
  EXPECT_EQ(launcher.Wait(absl::InfiniteDuration()), Event::kFailure);
  EXPECT_EQ(launcher.failure()->role, "worker");
  EXPECT_EQ(launcher.failure()->reason, "disk full");
}

TEST_F(LauncherTest, AVictimThatLogsJsonIsNotBlamed) {
  ASSERT_EQ(mkfifo(Path("go").c_str(), 0600), 0);
  Launcher launcher(/*grace=*/absl::InfiniteDuration());
  RUBATO_ASSERT_OK(launcher.Start(Fake("server", 1,
                                       {"complain",
                                        absl::StrCat(kJson, R"("level":"fatal",)"
                                                            R"("message":"worker 0 is gone",)"
                                                            R"("fields":{"stopped":true}})"),
                                        "announce", Path("go"), "exit", "1"})));
  RUBATO_ASSERT_OK(launcher.Start(
      Fake("worker", 0,
           {"await", Path("go"), "complain",
            absl::StrCat(kJson, R"("level":"fatal","message":"disk full","fields":{}})"), "exit",
            "1"})));
  EXPECT_EQ(launcher.Wait(absl::InfiniteDuration()), Event::kFailure);
  EXPECT_EQ(launcher.failure()->role, "worker");
  EXPECT_EQ(launcher.failure()->reason, "disk full");
}

// The others end one after the other, each by its own keep-alive.
TEST_F(LauncherTest, TheOneThatStillRunsWhenAllOthersOnlyFollowedIsBlamed) {
  ASSERT_EQ(mkfifo(Path("go").c_str(), 0600), 0);
  Launcher launcher(/*grace=*/absl::ZeroDuration());
  RUBATO_ASSERT_OK(launcher.Start(Fake("server", 0, {"announce", Path("alive"), "pause"})));
  RUBATO_ASSERT_OK(launcher.Start(Fake(
      "server", 1, {"complain", "stopped: shard 0 is gone", "announce", Path("go"), "exit", "1"})));
  RUBATO_ASSERT_OK(launcher.Start(Fake(
      "server", 2, {"await", Path("go"), "complain", "stopped: shard 0 is gone", "exit", "1"})));
  AwaitStarted(1);
  EXPECT_EQ(launcher.Wait(absl::InfiniteDuration()), Event::kFailure);
  EXPECT_EQ(launcher.failure()->rank, 0);
  EXPECT_EQ(launcher.failure()->reason, "stands still: shard 0 is gone");
  pollfd alive = {alive_, POLLIN, 0};
  poll(&alive, 1, -1);  // it would not end by itself
  EXPECT_TRUE(NobodyAlive());
}

TEST_F(LauncherTest, KilledProcessCountsAsOneAndIsSaidToBeKilled) {
  Launcher launcher;
  RUBATO_ASSERT_OK(launcher.Start(Fake("worker", 0, {"raise", "9"})));
  EXPECT_EQ(launcher.Wait(absl::InfiniteDuration()), Event::kFailure);
  EXPECT_EQ(launcher.failure()->exit_code, 1);
  EXPECT_EQ(launcher.failure()->reason, "killed by signal 9 (SIGKILL)");
}

TEST_F(LauncherTest, OthersGoOnWithoutAnExpendableProcessWhichMayBeStartedAgain) {
  ASSERT_EQ(mkfifo(Path("go").c_str(), 0600), 0);
  Launcher launcher;
  RUBATO_ASSERT_OK(launcher.Start(Fake("server", 0, {"await", Path("go"), "exit", "0"})));
  Command worker = Fake("worker", 1, {"complain", "error: out of memory", "exit", "1"});
  worker.expendable = true;
  RUBATO_ASSERT_OK(launcher.Start(worker));
  EXPECT_EQ(launcher.Wait(absl::InfiniteDuration()), Event::kLost);
  EXPECT_EQ(launcher.lost().role, "worker");
  EXPECT_EQ(launcher.lost().rank, 1);
  EXPECT_EQ(launcher.lost().exit_code, 1);
  EXPECT_EQ(launcher.lost().reason, "out of memory");
  EXPECT_EQ(launcher.running("worker"), 0);
  EXPECT_EQ(launcher.running("server"), 1);
  // What it says of the second end is not what the first left in the log.
  worker.arguments = {"tests/fake_process", "raise", "9"};
  RUBATO_ASSERT_OK(launcher.Start(worker));
  EXPECT_EQ(launcher.Wait(absl::InfiniteDuration()), Event::kLost);
  EXPECT_EQ(launcher.lost().reason, "killed by signal 9 (SIGKILL)");
  RUBATO_ASSERT_OK(launcher.Start(Fake("other", 0, {"announce", Path("go")})));
  EXPECT_EQ(launcher.Wait(absl::InfiniteDuration()), Event::kAllEnded);
}

TEST_F(LauncherTest, AnExpendableProcessIsBlamedForAFailureThatFollowsItsOwn) {
  ASSERT_EQ(mkfifo(Path("go").c_str(), 0600), 0);
  Launcher launcher(/*grace=*/absl::InfiniteDuration());
  RUBATO_ASSERT_OK(launcher.Start(
      Fake("server", 0, {"await", Path("go"), "complain", "error: worker 1 failed", "exit", "1"})));
  Command worker =
      Fake("worker", 1, {"complain", "error: no such data", "announce", Path("go"), "exit", "2"});
  worker.expendable = true;
  RUBATO_ASSERT_OK(launcher.Start(worker));
  EXPECT_EQ(launcher.Wait(absl::InfiniteDuration()), Event::kFailure);
  EXPECT_EQ(launcher.failure()->reason, "no such data");
  EXPECT_EQ(launcher.failure()->exit_code, 2);
}

// A worker dies, and just after it a server by the same signal: only the latter ends the job.
TEST_F(LauncherTest, OfTwoThatExplainAsMuchTheExpendableOneIsNotBlamed) {
  ASSERT_EQ(mkfifo(Path("go").c_str(), 0600), 0);
  Launcher launcher(/*grace=*/absl::Seconds(5));
  Command worker = Fake("worker", 1, {"announce", Path("go"), "raise", "9"});
  worker.expendable = true;
  RUBATO_ASSERT_OK(launcher.Start(worker));
  RUBATO_ASSERT_OK(launcher.Start(Fake("server", 1, {"await", Path("go"), "raise", "9"})));
  EXPECT_EQ(launcher.Wait(absl::InfiniteDuration()), Event::kFailure);
  EXPECT_EQ(launcher.failure()->role, "server");
}

TEST_F(LauncherTest, AllHaveEndedWithoutAnExpendableProcessThatDoesNotEnd) {
  Launcher launcher;
  RUBATO_ASSERT_OK(launcher.Start(Fake("server", 0, {"exit", "0"})));
  Command worker = Fake("worker", 0, {"announce", Path("alive"), "pause"});
  worker.expendable = true;
  RUBATO_ASSERT_OK(launcher.Start(worker));
  AwaitStarted(1);
  EXPECT_EQ(launcher.Wait(absl::InfiniteDuration()), Event::kAllEnded);
  EXPECT_EQ(launcher.running(), 1);
  launcher.Stop();
  EXPECT_TRUE(NobodyAlive());
}

TEST_F(LauncherTest, StopInOrderAsksOneAndLetsItEndTheOthers) {
  ASSERT_EQ(mkfifo(Path("go").c_str(), 0600), 0);
  Launcher launcher;
  RUBATO_ASSERT_OK(launcher.Start(Fake(
      "server", 0, {"on-term", "7", "announce", Path("go"), "announce", Path("alive"), "pause"})));
  // Ends when the server has ended, and would exit with 9 on SIGTERM.
  RUBATO_ASSERT_OK(launcher.Start(
      Fake("worker", 0, {"on-term", "9", "await", Path("go"), "complain", "of itself"})));
  AwaitStarted(1);
  launcher.Stop("server", 0, absl::InfiniteDuration(), [] { return false; });
  EXPECT_EQ(launcher.running(), 0);
  EXPECT_EQ(Log("worker", 0), "of itself\n");
}

TEST_F(LauncherTest, StopInOrderDoesNotWaitForEver) {
  Launcher launcher;
  RUBATO_ASSERT_OK(
      launcher.Start(Fake("server", 0, {"ignore-term", "announce", Path("alive"), "pause"})));
  AwaitStarted(1);
  int asked = 0;
  launcher.Stop("server", 0, absl::Milliseconds(1), [&] { return ++asked < 3; });
  EXPECT_EQ(asked, 3);
  EXPECT_TRUE(NobodyAlive());
}

TEST_F(LauncherTest, StopInOrderWaitsForWhoIsStillAtIt) {
  ASSERT_EQ(mkfifo(Path("disk").c_str(), 0600), 0);
  Launcher launcher;
  RUBATO_ASSERT_OK(launcher.Start(Fake("server", 0,
                                       {"ignore-term", "announce", Path("alive"), "await",
                                        Path("disk"), "complain", "written", "exit", "0"})));
  AwaitStarted(1);
  int asked = 0;
  launcher.Stop("server", 0, absl::Milliseconds(1), [&] {
    if (++asked == 3) close(open(Path("disk").c_str(), O_WRONLY | O_CLOEXEC));
    return true;
  });
  EXPECT_GE(asked, 3);
  EXPECT_EQ(Log("server", 0), "written\n");
}

TEST_F(LauncherTest, StubbornProcessIsKilled) {
  Launcher launcher;
  RUBATO_ASSERT_OK(
      launcher.Start(Fake("server", 0, {"ignore-term", "announce", Path("alive"), "pause"})));
  AwaitStarted(1);
  launcher.Interrupt(SIGINT);
  EXPECT_EQ(launcher.Wait(absl::InfiniteDuration()), Event::kInterrupt);
  launcher.Stop();
  EXPECT_EQ(launcher.running(), 0);
  EXPECT_TRUE(NobodyAlive());
  EXPECT_EQ(launcher.interrupted_by(), SIGINT);
}

TEST_F(LauncherTest, WhatAProcessHasStartedEndsWithIt) {
  Launcher launcher;
  // The grandchild inherits the FIFO.
  RUBATO_ASSERT_OK(
      launcher.Start(Fake("server", 0, {"announce", Path("alive"), "fork", "exit", "0"})));
  AwaitStarted(1);
  EXPECT_EQ(launcher.Wait(absl::InfiniteDuration()), Event::kAllEnded);
  AwaitAllDead();
}

TEST_F(LauncherTest, WhatCannotBeStartedIsNamed) {
  Launcher launcher;
  Command missing = Fake("server", 0, {});
  missing.arguments[0] = "/no/such/program";
  EXPECT_THAT(launcher.Start(missing),
              IsError(absl::StatusCode::kNotFound, HasSubstr("cannot start /no/such/program")));
  Command unlogged = Fake("server", 0, {});
  unlogged.log_path = "/no/such/folder/log";
  EXPECT_THAT(launcher.Start(unlogged),
              IsError(absl::StatusCode::kNotFound, HasSubstr("cannot create /no/such/folder/log")));
  EXPECT_EQ(launcher.Wait(absl::InfiniteDuration()), Event::kAllEnded);
}

// A launcher in a process of its own, that starts three stubborn children and reacts to signals as
// `rubato train` does.
class LauncherProcessTest : public LauncherTest {
 protected:
  pid_t Fork() {
    const pid_t pid = fork();
    if (pid != 0) return pid;
    SignalWatcher watcher;
    Launcher launcher;
    watcher.OnSignal([&](int number) { launcher.Interrupt(number); });
    for (int i = 0; i < 3; ++i) {
      if (!launcher.Start(Fake("worker", i, {"ignore-term", "announce", Path("alive"), "pause"}))
               .ok())
        _exit(99);
    }
    if (launcher.Wait(absl::InfiniteDuration()) != Event::kInterrupt) _exit(98);
    launcher.Stop();
    _exit(ExitCode(InterruptedBy(launcher.interrupted_by())));
  }

  static int Await(pid_t pid) {
    int status = 0;
    EXPECT_EQ(waitpid(pid, &status, 0), pid);
    return status;
  }
};

TEST_F(LauncherProcessTest, NothingIsLeftWhenTheLauncherIsKilled) {
  const pid_t launcher = Fork();
  for (const pid_t pid : AwaitStarted(3)) EXPECT_EQ(kill(pid, 0), 0);
  ASSERT_EQ(kill(launcher, SIGKILL), 0);
  AwaitAllDead();
  EXPECT_TRUE(WIFSIGNALED(Await(launcher)));
}

TEST_F(LauncherProcessTest, FirstSignalEndsAllAndGivesTheSignalsCode) {
  for (const int number : {SIGINT, SIGTERM}) {
    const pid_t launcher = Fork();
    AwaitStarted(3);
    ASSERT_EQ(kill(launcher, number), 0);
    const int status = Await(launcher);
    EXPECT_TRUE(NobodyAlive());  // at once: the launcher has reaped them
    ASSERT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 128 + number);
  }
}

TEST_F(LauncherProcessTest, SecondSignalKillsAtOnce) {
  const pid_t launcher = Fork();
  AwaitStarted(3);
  ASSERT_EQ(kill(launcher, SIGINT), 0);
  ASSERT_EQ(kill(launcher, SIGTERM), 0);
  const int status = Await(launcher);
  AwaitAllDead();
  ASSERT_TRUE(WIFEXITED(status));
  // Which of two pending signals is delivered first is the kernel's choice; each means the end.
  EXPECT_THAT(WEXITSTATUS(status), testing::AnyOf(130, 143));
}

TEST(FailureReasonTest, LastErrorLinesWinThenTheSignalThenTheLastLine) {
  const int exit_3 = 3 << 8, killed = SIGKILL;
  EXPECT_EQ(FailureReason("error: old\nx\nerror: a\nerror: b\nmore\n", exit_3), "a\nb");
  EXPECT_EQ(FailureReason("x\nerror: a\n", killed), "a");
  EXPECT_EQ(FailureReason("error: old\nx\n", killed), "killed by signal 9 (SIGKILL)");
  // The same from a process that logs JSON.
  const auto json = [](const char* fields) { return absl::StrCat(kJson, fields, "}\n"); };
  EXPECT_EQ(FailureReason(absl::StrCat(json(R"("level":"info","message":"x")"),
                                       json(R"("level":"fatal","message":"a \"b\"")"),
                                       json(R"("level":"fatal","message":"c")"),
                                       json(R"("level":"info","message":"y")")),
                          exit_3),
            "a \"b\"\nc");
  // A script's own.
  EXPECT_EQ(FailureReason("{\"level\":\"fatal\",\"message\":\"c\"}\ny\n", exit_3),
            "exited with code 3: y");
  EXPECT_EQ(FailureReason("{\"level\":\"fatal\"}\n{nonsense\n{}\n", exit_3),
            "exited with code 3: {}");
  EXPECT_EQ(FailureReason("x\ny\n", killed), "killed by signal 9 (SIGKILL)");
  EXPECT_EQ(FailureReason("x\ny\n\n", exit_3), "exited with code 3: y");
  EXPECT_EQ(FailureReason("", exit_3), "exited with code 3");
}

TEST(FailureReasonTest, ScriptsExceptionWinsAndAnEventIsNoReason) {
  const int exit_1 = 1 << 8;
  const std::string event = "2026-11-21T07:59:01.123Z worker 0 takes part view=2 workers=1\n";
  const std::string json = absl::StrCat(kJson, R"("level":"info","message":"takes part"})", "\n");
  const std::string traceback =
      "Traceback (most recent call last):\n  File \"train.py\", line 9, in <module>\n    f(x)\n";
  const std::string error = "NameError: name 'f' is not defined";
  for (const std::string& line : {event, json}) {
    EXPECT_EQ(FailureReason("x\n" + line, exit_1), "exited with code 1: x");
    EXPECT_EQ(FailureReason(line, exit_1), "exited with code 1");
    EXPECT_EQ(FailureReason(traceback + line + error + "\nof two lines\n" + line, exit_1),
              "exited with code 1: " + error);
  }
  const std::string original = "RuntimeError: in process 0.\nOriginal " + traceback + error;
  EXPECT_EQ(FailureReason(traceback + original, exit_1), "exited with code 1: " + error);
  EXPECT_EQ(FailureReason(traceback, exit_1), "exited with code 1:     f(x)");
  const std::string warning = "2026-11-21T07:59:01.123Z worker warning: slow";
  EXPECT_EQ(FailureReason("x\n" + warning + "\n" + event, exit_1),
            "exited with code 1: " + warning);
  EXPECT_EQ(FailureReason("error: a\n" + traceback + error, exit_1), "a");
}

}  // namespace
}  // namespace rubato
