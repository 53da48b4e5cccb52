#include "server/process/engine_watch.h"

#include <atomic>
#include <functional>

#include "absl/synchronization/notification.h"
#include "common/base/lease.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

constexpr absl::Duration kLease = absl::Milliseconds(20);

// As a clock that is moved by hand: how long the watch runs until it says so.
absl::Duration UntilStuck(StuckRule* rule) {
  absl::Duration time;
  rule->OnAsked();
  while (!rule->is_stuck()) {
    time += rule->between_looks();
    rule->OnInVain();
  }
  return time;
}

TEST(StuckRuleTest, SpeaksBeforeTheLeaseOfOneWhoIsNotHeardEnds) {
  for (const double seconds : {0.2, 1.0, 5.0, 3600.0}) {  // cluster.lease is 0.2 s at least
    const absl::Duration lease = absl::Seconds(seconds);
    StuckRule rule(lease);
    EXPECT_EQ(UntilStuck(&rule), lease * 3 / 5);
    EXPECT_EQ(UntilStuck(&rule), lease * 3 / 5);
    // The question may come a look after the engine got stuck.
    EXPECT_LT(rule.between_looks() + UntilStuck(&rule) + HeartbeatInterval(lease), lease);
  }
}

TEST(StuckRuleTest, AFreezeOfTheWholeProcessIsOneLook) {
  StuckRule rule(kLease);
  rule.OnAsked();
  rule.OnInVain();  // however long ago the one before was
  EXPECT_FALSE(rule.is_stuck());
}

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
