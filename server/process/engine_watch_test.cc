#include "server/process/engine_watch.h"

#include <atomic>
#include <functional>

#include "absl/synchronization/notification.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

constexpr absl::Duration kLease = absl::Milliseconds(20);

TEST(EngineWatchTest, OneThatAnswersIsAskedAgainAndNeverStuck) {
  std::atomic<int> asked{0};
  std::atomic<bool> stuck{false};
  absl::Notification often;
  {
    EngineWatch watch(
        kLease,
        [&](const std::function<void()>& answer) {
          answer();
          if (++asked == 20) often.Notify();
        },
        [&] { stuck = true; });
    often.WaitForNotification();
  }
  EXPECT_FALSE(stuck);
}

TEST(EngineWatchTest, OneThatAnswersNoMoreIsStuck) {
  std::atomic<int> asked{0};
  absl::Notification stuck;
  EngineWatch watch(
      kLease,
      [&](const std::function<void()>& answer) {
        if (++asked < 3) answer();
      },
      [&] { stuck.Notify(); });
  stuck.WaitForNotification();
  EXPECT_EQ(asked, 3);
}

TEST(EngineWatchTest, TellsForHowLongAQuestionHasWaited) {
  std::function<void()> answer;
  absl::Notification asked;
  EngineWatch watch(
      absl::Hours(1),
      [&](std::function<void()> to_answer) {
        answer = std::move(to_answer);
        asked.Notify();
      },
      [] {});
  asked.WaitForNotification();
  while (watch.busy() < absl::Milliseconds(1)) {
  }
  answer();
  EXPECT_EQ(watch.busy(), absl::ZeroDuration());
}

TEST(EngineWatchTest, AnAnswerMayComeWhenTheWatchIsGone) {
  std::function<void()> late;
  absl::Notification asked;
  {
    EngineWatch watch(
        absl::Hours(1),
        [&](std::function<void()> answer) {
          late = std::move(answer);
          asked.Notify();
        },
        [] {});
    asked.WaitForNotification();
  }
  late();
}

}  // namespace
}  // namespace rubato
