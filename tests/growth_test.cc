// What the cores keep does not grow with the length of a run. Counted by the allocator: bytes that
// are in use, at most, in windows of one simulated job of real cores.
#include <malloc.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "common/base/status_matchers.h"
#include "common/space/modes.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/coordinator/evaluations.h"
#include "server/coordinator/work_ledger.h"
#include "server/run/kept_checkpoints.h"
#include "tools/simulator/simulation.h"
#include "tools/simulator/small_job.h"

namespace rubato {
namespace {

size_t BytesInUse() { return mallinfo2().uordblks; }

// The most that is in use in each of `windows` equal parts of a simulated job.
std::vector<size_t> MostInUse(SimulationSetting setting, size_t windows) {
  std::vector<size_t> most(windows);
  int64_t samples = 0, events = 0;
  const int64_t total = setting.train_samples;
  setting.callbacks.on_metrics = [&](const MetricsLine& line, absl::Time) {
    samples = std::max(samples, line.samples);
  };
  setting.after_event = [&](const Simulation&) {
    if (++events % 64 != 0) return;
    const size_t window = static_cast<size_t>(samples) * windows / total;
    most[std::min(window, windows - 1)] =
        std::max(most[std::min(window, windows - 1)], BytesInUse());
  };
  const auto simulation = Simulation::Create(std::move(setting));
  EXPECT_THAT(simulation, IsOk());
  if (!simulation.ok()) return most;
  EXPECT_THAT((*simulation)->Run(), IsOk());
  return most;
}

SimulationSetting LongJob(const std::vector<SmallJob::Stage>& schedule) {
  SmallJob small;
  small.workers = 4;
  small.blocks = 8;
  small.steps = 20'000;
  small.schedule = schedule;
  small.mode = AsyncMode();
  small.leaves_out = true;  // some symbols are not finite
  small.checkpoint_every = {40};
  small.evaluate_every = {2};
  SimulationSetting setting = MakeSetting(small);
  setting.job.mutable_metrics()->mutable_every()->set_steps(10);
  setting.jitter = kMillisecond;
  setting.speeds = *Speeds::Parse("exponential", /*seed=*/1);
  return setting;
}

// Hundreds of changes of mode, 10,000 tests, 500 checkpoints, contributions that are left out.
TEST(GrowthTest, ARunWithSwitchesKeepsAsMuchAtItsEndAsAtItsBeginning) {
  std::vector<SmallJob::Stage> schedule;
  const proto::Mode modes[] = {AsyncMode(), SyncMode(), BoundedMode(2)};
  for (int64_t stage = 1; stage <= 300; ++stage) {
    schedule.push_back({modes[stage % 3], stage * 20'000 * 8 / 300});
  }
  const std::vector<size_t> most = MostInUse(LongJob(schedule), 4);
  EXPECT_LE(most[3], most[1] + most[1] / 20);  // what is under way differs
}

TEST(GrowthTest, ALineageOnArrivalKeepsAsMuchAtItsEndAsAtItsBeginning) {
  const std::vector<size_t> most = MostInUse(LongJob({}), 4);
  EXPECT_LE(most[3], most[1] + most[1] / 20);  // what is under way differs
}

// What is asked of `add` with 0, 1, 2, … takes no more memory after many times than after few.
template <typename Add>
void ExpectNoGrowth(Add add) {
  size_t few = 0;
  for (int64_t i = 0; i < 100'000; ++i) {
    add(i);
    if (i == 10'000) few = BytesInUse();
  }
  EXPECT_LE(BytesInUse(), few + 4096);
}

TEST(GrowthTest, TestsThatAreToldAreForgotten) {
  proto::Job job;
  job.mutable_train()->set_batch_size(1);
  job.mutable_train()->set_micro_batches(1);
  job.mutable_evaluation()->mutable_every()->set_steps(1);
  Evaluations evaluations(job, 1000);
  ExpectNoGrowth([&](int64_t unit) { evaluations.OnResult(unit, MetricsLine()); });
}

TEST(GrowthTest, TestsOfWorkersThatAreLostAreForgotten) {
  proto::Job job;
  job.mutable_train()->set_batch_size(1);
  job.mutable_train()->set_micro_batches(1);
  job.mutable_train()->mutable_until()->set_steps(1 << 20);
  job.mutable_evaluation()->mutable_every()->set_steps(1);
  Evaluations evaluations(job, 1 << 20);
  Lineage lineage(job, 1 << 20);
  lineage.Begin(SyncMode(), 0, 0);
  ExpectNoGrowth([&](int64_t unit) {
    const WorkerId worker{0, static_cast<uint32_t>(unit) + 1};
    proto::Progress progress;
    progress.set_unit(unit + 1);
    evaluations.OnComputed(worker, progress, lineage);
    evaluations.OnLost(worker);
  });
}

TEST(GrowthTest, OfTestsThoseAreRememberedThatCheckpointsNeed) {
  KeptCheckpoints kept;
  proto::Checkpoint settings;
  settings.set_keep_last(1);
  settings.mutable_keep_best()->set_metric("eval/loss");
  settings.mutable_keep_best()->set_mode(proto::KeepBest::MODE_MIN);
  kept.OnEvaluation(7, 0.5);  // the best of all
  kept.Add({"best", 8, 7});
  ExpectNoGrowth([&](int64_t i) {
    kept.OnEvaluation(10 + i, 1);
    if (i % 1000 == 0) {
      kept.Add({"other", 10 + i, 10 + i});
      EXPECT_THAT(kept.Expire(settings), testing::Not(testing::Contains("best")));
    }
  });
}

// Until it is seen to hang, the others go on.
TEST(GrowthTest, AContributionThatNeverComesLeavesOneGap) {
  UnitSet units;
  ExpectNoGrowth([&](int64_t i) { units.Insert(i + 1); });
}

TEST(GrowthTest, WorkersThatComeAndGoLeaveNothingInTheLedger) {
  WorkLedger ledger;
  ExpectNoGrowth([&](int64_t i) {
    const WorkerId worker{static_cast<int>(i % 4), static_cast<uint32_t>(i / 4 + 1)};
    const std::optional<int64_t> unit = ledger.Give(worker, i + 2);
    ASSERT_TRUE(unit.has_value());
    ledger.OnComputed(worker, *unit, 0, false);
    ledger.OnApplied(worker, i % 2);
    ledger.OnLost(worker, {UnitSet(i % 3 == 0 ? *unit : *unit + 1)}, {});
  });
}

}  // namespace
}  // namespace rubato
