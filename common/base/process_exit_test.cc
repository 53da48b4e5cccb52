#include "common/base/process_exit.h"

#include <unistd.h>

#include <future>

#include "absl/time/clock.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

TEST(ExitCodeTest, FollowsTheStatus) {
  EXPECT_EQ(ExitCode(absl::OkStatus()), 0);
  for (const auto code : {absl::StatusCode::kInvalidArgument, absl::StatusCode::kNotFound,
                          absl::StatusCode::kFailedPrecondition, absl::StatusCode::kOutOfRange,
                          absl::StatusCode::kAlreadyExists}) {
    EXPECT_EQ(ExitCode(absl::Status(code, "x")), 2) << code;
  }
  for (const auto code : {absl::StatusCode::kUnavailable, absl::StatusCode::kDeadlineExceeded,
                          absl::StatusCode::kResourceExhausted, absl::StatusCode::kInternal,
                          absl::StatusCode::kPermissionDenied, absl::StatusCode::kUnknown}) {
    EXPECT_EQ(ExitCode(absl::Status(code, "x")), 1) << code;
  }
  EXPECT_EQ(ExitCode(InterruptedBy(SIGINT)), 130);
  EXPECT_EQ(ExitCode(InterruptedBy(SIGTERM)), 143);
  EXPECT_EQ(ExitCode(InterruptedBy(SIGHUP)), 129);
  EXPECT_EQ(ExitCode(absl::CancelledError("x")), 130);
  EXPECT_EQ(InterruptedBy(SIGTERM).message(), "interrupted by SIGTERM");
}

TEST(SignalWatcherTest, CallsBackWithTheSignal) {
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    SignalWatcher watcher;
    std::promise<int> called;
    watcher.OnSignal([&](int got) { called.set_value(got); });
    EXPECT_EQ(watcher.signal(), 0);
    ASSERT_EQ(kill(getpid(), number), 0);
    EXPECT_EQ(called.get_future().get(), number);
    EXPECT_EQ(watcher.signal(), number);
  }
}

// Libraries start threads before main, which know nothing of the watcher.
TEST(SignalWatcherTest, ASignalThatReachesAnotherThreadCounts) {
  std::promise<void> end;
  std::thread other([&] { end.get_future().wait(); });
  {
    SignalWatcher watcher;
    std::promise<int> called;
    watcher.OnSignal([&](int got) { called.set_value(got); });
    ASSERT_EQ(pthread_kill(other.native_handle(), SIGTERM), 0);
    EXPECT_EQ(called.get_future().get(), SIGTERM);
  }
  end.set_value();
  other.join();
}

TEST(SignalWatcherTest, WithoutACallbackASignalEndsTheProcess) {
  EXPECT_EXIT(
      {
        SignalWatcher watcher;
        kill(getpid(), SIGTERM);
        while (true) pause();
      },
      testing::ExitedWithCode(143), "");
}

TEST(SignalWatcherTest, AnIgnoredSighupStaysIgnored) {
  EXPECT_EXIT(
      {
        signal(SIGHUP, SIG_IGN);
        SignalWatcher watcher;
        kill(getpid(), SIGHUP);
        kill(getpid(), SIGTERM);
        while (true) pause();
      },
      testing::ExitedWithCode(143), "");
}

// Until the process ends: its callback does not return.
void KeepBusyBy(int number, SignalWatcher* watcher) {
  static std::promise<void> called;
  watcher->OnSignal([](int) {
    called.set_value();
    while (true) pause();
  });
  kill(getpid(), number);
  called.get_future().wait();
}

TEST(SignalWatcherTest, SecondSignalEndsTheProcessWhileTheCallbackStillRuns) {
  EXPECT_EXIT(
      {
        SignalWatcher watcher;
        KeepBusyBy(SIGTERM, &watcher);
        kill(getpid(), SIGINT);
        while (true) pause();
      },
      testing::ExitedWithCode(130), "");
}

// A supervisor's, and that of the launcher that it has ended, too.
TEST(SignalWatcherTest, TwoSigtermsInARowAreOneRequest) {
  EXPECT_EXIT(
      {
        SignalWatcher watcher;
        KeepBusyBy(SIGTERM, &watcher);
        kill(getpid(), SIGTERM);
        absl::SleepFor(absl::Milliseconds(200));
        _exit(7);
      },
      testing::ExitedWithCode(7), "");
  EXPECT_EXIT(
      {
        SignalWatcher watcher;
        KeepBusyBy(SIGTERM, &watcher);
        absl::SleepFor(SignalWatcher::kSameRequest + absl::Milliseconds(100));
        kill(getpid(), SIGTERM);
        while (true) pause();
      },
      testing::ExitedWithCode(143), "");
}

// Of a closed terminal the kernel tells, and then the shell; a supervisor may send both signals.
TEST(SignalWatcherTest, ASighupIsNoSecondRequest) {
  for (const int first : {SIGHUP, SIGTERM}) {
    for (const int second : {SIGHUP, SIGTERM}) {
      EXPECT_EXIT(
          {
            SignalWatcher watcher;
            KeepBusyBy(first, &watcher);
            kill(getpid(), second);
            absl::SleepFor(absl::Milliseconds(200));
            _exit(7);
          },
          testing::ExitedWithCode(7), "");
    }
  }
  EXPECT_EXIT(
      {
        SignalWatcher watcher;
        KeepBusyBy(SIGHUP, &watcher);
        kill(getpid(), SIGINT);
        while (true) pause();
      },
      testing::ExitedWithCode(130), "");
}

TEST(SignalWatcherTest, RemovingTheCallbackWaitsForIt) {
  SignalWatcher watcher;
  std::promise<void> called;
  std::promise<void> go;
  bool done = false;  // written by the callback, read after OnSignal(nullptr): ordered by it
  watcher.OnSignal([&](int) {
    called.set_value();
    go.get_future().wait();
    done = true;
  });
  kill(getpid(), SIGINT);
  called.get_future().wait();
  go.set_value();
  watcher.OnSignal(nullptr);
  EXPECT_TRUE(done);
}

TEST(SignalWatcherTest, BrokenPipesDoNotKill) {
  SignalWatcher watcher;
  int fds[2];
  ASSERT_EQ(pipe(fds), 0);
  close(fds[0]);
  EXPECT_EQ(write(fds[1], "x", 1), -1);
  EXPECT_EQ(errno, EPIPE);
  close(fds[1]);
}

}  // namespace
}  // namespace rubato
