#include "tools/simulator/timing_model.h"

#include <memory>
#include <utility>

#include "common/base/status_matchers.h"
#include "common/space/modes.h"
#include "gtest/gtest.h"
#include "tools/simulator/simulation.h"
#include "tools/simulator/small_job.h"

namespace rubato {
namespace {

proto::Mode On(proto::Mode::Name name) {
  proto::Mode mode;
  mode.set_mode(name);
  return mode;
}

// A job in all modes, in which all that can take time does.
SimulationSetting EverythingTakesTime() {
  SmallJob job;
  job.workers = 3;
  job.steps = 60;
  job.schedule = {
      {SyncMode(), 160}, {On(proto::Mode::NAME_ASYNC), 320}, {On(proto::Mode::NAME_BOUNDED), 480}};
  job.evaluate_every = {4};
  job.checkpoint_every = {16};
  SimulationSetting setting = MakeSetting(job);
  setting.speeds = *Speeds::Parse("transient:p=0.1,factor=3+straggler:factor=2", /*seed=*/1);
  setting.micro_batch_time = 10 * kMillisecond;
  setting.test_time = 90 * kMillisecond;
  setting.final_test_time = 50 * kMillisecond;
  setting.held_back = kMillisecond;
  setting.checkpoint_time = 20 * kMillisecond;
  setting.card = {100 * kMicrosecond, /*bytes_per_second=*/1e6};
  setting.jitter = 50 * kMicrosecond;
  setting.change_bytes_per_second = 1e5;
  return setting;
}

TEST(TimingModelTest, WhatASettingTakesIsThatOfTheNumber) {
  absl::StatusOr<std::unique_ptr<Simulation>> simulation =
      Simulation::Create(EverythingTakesTime());
  RUBATO_ASSERT_OK(simulation);
  RUBATO_ASSERT_OK((*simulation)->Run());
  EXPECT_EQ(std::pair(kTimingModel, (*simulation)->ended_at()), std::pair(2, SimTime{3905818020}))
      << "raise kTimingModel if it has not been raised for this, and put both here";
}

}  // namespace
}  // namespace rubato
