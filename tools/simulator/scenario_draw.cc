// What is drawn of a seed.
#include <algorithm>
#include <cmath>

#include "common/base/random.h"
#include "common/space/modes.h"
#include "tools/simulator/scenario.h"

namespace rubato {
namespace {

constexpr double kStallSeconds = kDrawnStallTimeout / 1e9;

// Kinds of faults in which a server stands still or dies.
constexpr uint32_t kDeaths = static_cast<uint32_t>(Fault::Kind::kBreakControl) - kSurvivable;

template <typename T, size_t N>
T OneOf(RandomStream* random, const T (&choices)[N]) {
  return choices[random->Below(N)];
}

proto::Mode DrawMode(RandomStream* random) {
  proto::Mode mode;
  mode.set_mode(static_cast<proto::Mode::Name>(random->Below(kModes)));
  if (mode.mode() == proto::Mode::NAME_BOUNDED) mode.set_staleness(random->Below(4));
  return mode;
}

Fault DrawFault(RandomStream* random, Fault::Kind kind, int64_t at) {
  Fault fault;
  fault.kind = kind;
  fault.at = at;
  fault.sender = random->Below(2) == 0;
  fault.message = static_cast<int>(random->Below(SimMessage::kKindNames.size()));
  const auto between = [&](double low, double high) {
    return static_cast<SimTime>((low + (high - low) * random->Unit()) * kSecond);
  };
  switch (fault.kind) {
    case Fault::Kind::kDelay:
      fault.duration = between(0, 3);
      break;
    case Fault::Kind::kCut:
      fault.duration = random->Below(4) == 0 ? between(20, 30) : between(0, 4);
      break;
    case Fault::Kind::kFreeze:
      fault.duration = between(0, 5);
      break;
    case Fault::Kind::kHang:
      fault.duration =
          random->Below(2) == 0 ? between(0, 5) : between(kStallSeconds, 2 * kStallSeconds);
      break;
    case Fault::Kind::kRestart:
      fault.duration = between(0, 2);
      break;
    case Fault::Kind::kLateEngine:  // some of them longer than its watch bears, 1.2 s
      fault.duration = between(0, 1.5);
      break;
    case Fault::Kind::kLateTicks:
      fault.duration = between(0, 6);
      break;
    case Fault::Kind::kFreezeServer:
    case Fault::Kind::kCutServer:
    case Fault::Kind::kStickEngine:
      fault.duration = between(3, 15);
      break;
    default:
      break;
  }
  return fault;
}

// Of a server, which begins anew within 4 s; struck by whatever message.
Fault DrawDeath(RandomStream* random, int64_t at) {
  const auto kind = static_cast<Fault::Kind>(kSurvivable + random->Below(kDeaths));
  Fault fault = DrawFault(random, kind, at);
  fault.message = -1;
  if (kind == Fault::Kind::kKillServer) {
    fault.duration = static_cast<SimTime>(random->Unit() * 4 * kSecond);
  }
  return fault;
}

Fault::Kind DrawKind(RandomStream* random) {
  return static_cast<Fault::Kind>(random->Below(kSurvivable));
}

// What comes by itself: changes of mode, steps and contributions that are left out, checkpoints.
void DrawRest(int64_t messages, Scenario* scenario) {
  RandomStream random(Key(scenario->seed, "rest"));
  SmallJob& job = scenario->job;
  if (random.Below(3) == 0) {
    const int64_t samples = job.steps * job.micro_batches * job.micro_batch - job.short_by;
    const int64_t stages = 2 + random.Below(2);
    proto::Mode mode = job.mode;
    for (int64_t stage = 0; stage < stages; ++stage) {
      const int64_t part = samples / stages;
      job.schedule.push_back({mode, stage * part + 1 + random.Below(static_cast<uint32_t>(part))});
      const proto::Mode before = mode;
      while (IsSame(mode, before)) mode = DrawMode(&random);
    }
  }
  job.leaves_out = random.Below(4) == 0;
  if (random.Below(4) == 0) job.clip_grad_norm = 1 + random.Below(100);
  if (random.Below(3) == 0) job.checkpoint_every.steps = 1 + random.Below(8);
  for (int64_t count = random.Below(3); count > 0; --count) {
    scenario->checkpoints.push_back(random.Below(static_cast<uint32_t>(messages)));
  }
  std::sort(scenario->checkpoints.begin(), scenario->checkpoints.end());
}

// In one of ten of the other seeds the job ends with the first gradient that is not finite.
void DrawDivergence(Scenario* scenario) {
  RandomStream random(Key(scenario->seed, "divergence"));
  SmallJob& job = scenario->job;
  if (job.leaves_out || random.Below(10) != 0) return;
  constexpr uint64_t kOneIn[] = {50, 200, 1000, 5000};
  job.diverges_in = OneOf(&random, kOneIn);
}

// In some seeds: many faults, several at once; what a job does not survive; who does not fit.
void DrawHarsher(int64_t messages, Scenario* scenario) {
  RandomStream random(Key(scenario->seed, "harsher"));
  const auto anywhere = [&] { return random.Below(static_cast<uint32_t>(messages)); };
  if (random.Below(4) == 0) {
    const int64_t at = anywhere();
    const uint32_t spread = random.Below(2) == 0 ? 1 : 1 + random.Below(200);
    for (int64_t more = 3 + random.Below(8); more > 0; --more) {
      scenario->faults.push_back(DrawFault(&random, DrawKind(&random), at + random.Below(spread)));
    }
  }
  if (random.Below(20) == 0) {
    const uint32_t fatal = kSurvivable + random.Below(kDeaths);
    const int64_t at = random.Below(4) == 0 ? random.Below(20) : anywhere();
    Fault fault = DrawFault(&random, static_cast<Fault::Kind>(fatal), at);
    fault.message = -1;
    scenario->faults.push_back(fault);
  }
  if (random.Below(30) == 0) scenario->first = static_cast<Misfit>(random.Below(kMisfits));
}

// In some seeds servers come back that die, freeze, are stuck or cut off: once or twice.
void DrawDeaths(int64_t messages, Scenario* scenario) {
  RandomStream random(Key(scenario->seed, "deaths"));
  std::vector<Fault>& faults = scenario->faults;
  const bool has_one = std::any_of(faults.begin(), faults.end(),
                                   [](const Fault& fault) { return !IsSurvivable(fault.kind); });
  if (random.Below(has_one ? 2 : 10) != 0) return;
  scenario->job.max_restarts = kManyRestarts;
  int64_t at =
      random.Below(4) == 0 ? random.Below(20) : random.Below(static_cast<uint32_t>(messages));
  for (int64_t more = (has_one ? 0 : 1) + random.Below(2); more > 0; --more) {
    const uint32_t kind = kSurvivable + random.Below(kDeaths);
    faults.push_back(DrawFault(&random, static_cast<Fault::Kind>(kind), at));
    faults.back().message = -1;
    at = random.Below(2) == 0 ? at + random.Below(200)
                              : random.Below(static_cast<uint32_t>(messages));
  }
  for (Fault& fault : faults) {
    if (fault.kind == Fault::Kind::kKillServer) {
      fault.duration = static_cast<SimTime>(random.Unit() * 4 * kSecond);
    }
  }
}

// In some seeds control calls of shards break while all live: once to three times.
void DrawBreaks(int64_t messages, Scenario* scenario) {
  RandomStream random(Key(scenario->seed, "breaks"));
  std::vector<Fault>& faults = scenario->faults;
  const bool ends = scenario->job.max_restarts == 0 &&
                    std::any_of(faults.begin(), faults.end(),
                                [](const Fault& fault) { return !IsSurvivable(fault.kind); });
  if (ends || random.Below(8) != 0) return;
  scenario->job.max_restarts = kManyRestarts;
  for (int64_t more = 1 + random.Below(3); more > 0; --more) {
    const int64_t at =
        random.Below(4) == 0 ? random.Below(40) : random.Below(static_cast<uint32_t>(messages));
    faults.push_back(DrawFault(&random, Fault::Kind::kBreakControl, at));
    faults.back().message = -1;
  }
}

// In some of these jobs going back soon is in vain, and servers are lost again and again before a
// term has got on.
void DrawInVain(Scenario* scenario) {
  RandomStream random(Key(scenario->seed, "in vain"));
  SmallJob& job = scenario->job;
  if (job.max_restarts == 0 || random.Below(6) != 0) return;
  job.max_restarts = 1 + static_cast<int>(random.Below(2));
  int64_t at = random.Below(100);
  for (int64_t more = 2 + random.Below(3); more > 0; --more) {
    scenario->faults.push_back(DrawDeath(&random, at));
    // All register, and are told to begin.
    at += 1 + random.Below(static_cast<uint32_t>(6 * (job.workers + job.servers)));
  }
}

// Every second job whose servers come back has a coordinator of its own, which every second time
// dies; and so have some whose servers do not, where that ends the job.
void DrawCoordinator(int64_t messages, Scenario* scenario) {
  RandomStream random(Key(scenario->seed, "coordinator"));
  if (scenario->job.max_restarts == 0) {
    const bool is_apart = random.Below(8) == 0;
    scenario->job.dedicated_coordinator = is_apart;
    if (!is_apart || random.Below(4) != 0) return;
  } else if (random.Below(2) == 0) {
    return;
  }
  scenario->job.dedicated_coordinator = true;
  if (random.Below(2) == 0) return;
  Fault fault =
      DrawFault(&random, Fault::Kind::kKillServer, random.Below(static_cast<uint32_t>(messages)));
  fault.message = static_cast<int>(SimMessage::Kind::kFromCoordinator);
  fault.sender = true;
  fault.duration = static_cast<SimTime>(random.Unit() * 4 * kSecond);
  scenario->faults.push_back(fault);
}

// What the training goes through besides, and what comes when it goes on from its last checkpoint.
void DrawMore(int64_t messages, Scenario* scenario) {
  RandomStream random(Key(scenario->seed, "more"));
  SmallJob& job = scenario->job;
  constexpr int64_t kEpochs[] = {1, 1, 2, 4, 5};
  job.epochs = OneOf(&random, kEpochs);
  job.learning_rate_parity = random.Below(8) != 0;
  scenario->comes_late = RandomStream(Key(scenario->seed, "comes late")).Below(2) == 0;
  scenario->later_misfit = RandomStream(Key(scenario->seed, "later misfit")).Below(30) == 0;
  scenario->later_on_arrival = RandomStream(Key(scenario->seed, "later from")).Below(2) == 0;
  if (random.Below(3) != 0) return;
  scenario->later_mode = DrawMode(&random);
  for (int64_t count = 1 + random.Below(4); count > 0; --count) {
    const int64_t at = random.Below(static_cast<uint32_t>(messages / (1 + random.Below(4))));
    scenario->later_faults.push_back(DrawFault(&random, DrawKind(&random), at));
  }
}

// In two of three seeds workers are given several contributions at once.
void DrawAhead(Scenario* scenario) {
  RandomStream random(Key(scenario->seed, "ahead"));
  const SimTime aheads[] = {scenario->ahead, kSecond, 10 * kSecond};
  scenario->ahead = OneOf(&random, aheads);
}

// In every third seed the last test takes longer; in some of these who makes it dies.
void DrawFinalTest(Scenario* scenario) {
  RandomStream random(Key(scenario->seed, "final test"));
  if (random.Below(3) != 0) return;
  scenario->final_test_time = static_cast<SimTime>(random.Unit() * 5 * kSecond);
  scenario->last_tester_dies = random.Below(8) == 0;
}

// What may end it sooner or later than its steps: its time, and a test that meets its target.
void DrawEnd(Scenario* scenario) {
  RandomStream random(Key(scenario->seed, "end"));
  SmallJob& job = scenario->job;
  if (random.Below(10) == 0) {
    job.seconds = 1 + random.Below(20);
    // The end waits for all tests, of which there is no saying how many there will be.
    scenario->test_time = 0;
  }
  if (random.Below(8) == 0) job.target = 1 + random.Below(static_cast<uint32_t>(job.steps));
}

// Stops, how many workers it takes to go on, and what takes its time.
void DrawStops(int64_t messages, Scenario* scenario) {
  RandomStream random(Key(scenario->seed, "stops"));
  SmallJob& job = scenario->job;
  if (random.Below(3) == 0 && job.workers > 1) {
    job.min_workers =
        random.Below(2) == 0
            ? job.workers
            : 2 + static_cast<int>(random.Below(static_cast<uint32_t>(job.workers - 1)));
    scenario->replaced_after = (1 + random.Below(10)) * kSecond;
  }
  if (random.Below(2) == 0) {
    scenario->checkpoint_time = static_cast<SimTime>(random.Unit() * 10 * kSecond);
  }
  if (random.Below(3) == 0) {
    job.evaluate_every.steps = 1 + random.Below(10);
    scenario->test_time = static_cast<SimTime>(random.Unit() * 5 * kSecond);
  }
  if (random.Below(2) == 0) {
    scenario->held_back = static_cast<SimTime>(random.Unit() * 10 * kDrawnMicroBatchTime);
  }
  scenario->pulls_ahead = random.Below(2) == 0;
  if (random.Below(4) != 0) return;
  SimulationSetting::Stop stop;
  // At any moment, or soon after something else has happened.
  stop.at = random.Below(static_cast<uint32_t>(messages));
  const uint32_t kind = random.Below(4);
  const uint32_t soon = random.Below(static_cast<uint32_t>(10 * job.workers));
  if (kind == 0) stop.at = random.Below(20);
  if (kind == 1) stop.at = scenario->switches[0].at + soon;
  if (kind == 2) {  // while the job pauses nothing is sent
    for (const Fault& fault : scenario->faults) {
      if (fault.kind == Fault::Kind::kCrash || fault.kind == Fault::Kind::kRestart) {
        stop.at = fault.at;
      }
    }
    stop.after = static_cast<SimTime>(random.Unit() * 5 * kSecond);
  }
  stop.is_signal = random.Below(2) == 0;
  scenario->stops.push_back(stop);
  if (random.Below(8) == 0) {
    scenario->stops.push_back({stop.at + soon, 0, random.Below(2) == 0});
  }
}

// One job of four is a script's. In three of four of these a worker gives the values that the job
// begins with; and in every second of these something happens meanwhile.
void DrawScript(Scenario* scenario) {
  RandomStream random(Key(scenario->seed, "script"));
  SmallJob& job = scenario->job;
  job.is_script = random.Below(4) == 0;
  job.gives_values = job.is_script && random.Below(4) != 0;
  if (!job.gives_values) return;
  job.pieces = 1 + random.Below(8);
  if (random.Below(2) == 0) return;
  // Others are there when the one that gives the values goes.
  constexpr Fault::Kind kMembers[] = {Fault::Kind::kRestart, Fault::Kind::kLeave,
                                      Fault::Kind::kJoin};
  for (int64_t more = 1 + random.Below(3); more > 0; --more) {
    // All register; each piece is asked for, and given.
    const int64_t at =
        job.workers + job.servers - 2 + random.Below(static_cast<uint32_t>(2 * job.pieces + 4));
    if (job.max_restarts > 0 && random.Below(4) == 0) {
      scenario->faults.push_back(DrawDeath(&random, at));
      continue;
    }
    const Fault::Kind kind = random.Below(2) == 0 ? OneOf(&random, kMembers) : DrawKind(&random);
    scenario->faults.push_back(DrawFault(&random, kind, at));
    scenario->faults.back().message = -1;
  }
}

// In every fourth of these whose servers do not come back, other workers come when the values are
// being saved.
void DrawScriptChange(Scenario* scenario) {
  RandomStream random(Key(scenario->seed, "script change"));
  SmallJob& job = scenario->job;
  if (!job.gives_values || job.max_restarts > 0 || random.Below(4) != 0) return;
  scenario->script_changes = true;
  job.pieces = 1 + random.Below(2);
  // All have gone by then.
  scenario->checkpoint_time = std::max(scenario->checkpoint_time, job.pieces * 4 * kSecond);
}

// In some seeds the disk takes not everything, and checkpoints are due by time.
void DrawDisk(Scenario* scenario) {
  RandomStream random(Key(scenario->seed, "disk"));
  SmallJob& job = scenario->job;
  scenario->disk_is_full = random.Below(6) == 0;
  scenario->disk_stands_still = random.Below(20) == 0;
  if (random.Below(4) != 0 || job.checkpoint_every.steps > 0) return;
  // In sync each of them is a view: training is to get on between two.
  const double turns = 40 * static_cast<double>(scenario->latency + scenario->jitter) / kSecond;
  const double transfer = scenario->bytes_per_second > 0 ? 4e4 / scenario->bytes_per_second : 0;
  job.checkpoint_seconds = std::ceil(turns + transfer) + 1 + random.Below(10);
}

// Every second of the recurring points is not counted in steps.
void DrawEvery(Scenario* scenario) {
  RandomStream random(Key(scenario->seed, "every"));
  using Said = SmallJob::Every::Said;
  constexpr Said kSaid[] = {Said::kSteps, Said::kSteps, Said::kSamples, Said::kEpochs};
  scenario->job.checkpoint_every.said = OneOf(&random, kSaid);
  scenario->job.evaluate_every.said = OneOf(&random, kSaid);
}

// In every second seed the best checkpoint is kept.
void DrawKeepBest(Scenario* scenario) {
  RandomStream random(Key(scenario->seed, "keep best"));
  if (random.Below(2) == 0) return;
  constexpr proto::KeepBest::Mode kBest[] = {proto::KeepBest::MODE_MIN, proto::KeepBest::MODE_MAX};
  scenario->job.keep_best = OneOf(&random, kBest);
  scenario->job.keep_last = 1 + static_cast<int>(random.Below(3));
}

// Some jobs push top-k, where it may be.
void DrawTopK(Scenario* scenario) {
  SmallJob& job = scenario->job;
  if (job.is_script || job.leaves_out || job.clip_grad_norm > 0) return;
  job.top_k = RandomStream(Key(scenario->seed, "top-k")).Below(3) == 0;
}

// In every second job whose servers come back some die when it goes on from its last checkpoint.
void DrawLaterDeaths(int64_t messages, Scenario* scenario) {
  RandomStream random(Key(scenario->seed, "later deaths"));
  if (scenario->job.max_restarts == 0 || random.Below(2) == 0) return;
  for (int64_t more = 1 + random.Below(2); more > 0; --more) {
    const int64_t at = random.Below(static_cast<uint32_t>(messages / (1 + random.Below(8))));
    scenario->later_faults.push_back(DrawDeath(&random, at));
  }
}

// Where servers come back, or one worker is enough: what would keep the job's own workers out of a
// term that begins.
void SpareTerms(Scenario* scenario) {
  // Whoever is alone when a term begins has the right data.
  if (scenario->first.has_value()) scenario->first = Misfit::kVersion;
  // It waits for workers no longer than start_timeout.
  for (std::vector<Fault>* faults : {&scenario->faults, &scenario->later_faults}) {
    for (Fault& fault : *faults) {
      if (fault.kind == Fault::Kind::kHang && fault.duration >= kDrawnStallTimeout) {
        fault.duration /= 4;
      }
    }
  }
}

}  // namespace

Scenario Scenario::Draw(uint64_t seed) {
  RandomStream random(Key(seed, "scenario"));
  Scenario scenario;
  scenario.seed = seed;
  SmallJob& job = scenario.job;
  job.seed = seed;
  job.mode = DrawMode(&random);
  job.workers = 2 + static_cast<int>(random.Below(7));
  job.max_workers = job.workers + 2;
  job.servers = 2 + static_cast<int>(random.Below(3));
  // Now and then one is alone.
  RandomStream alone(Key(seed, "alone"));
  if (alone.Below(12) == 0) job.workers = 1;
  if (alone.Below(12) == 0) job.servers = 1;
  job.blocks = std::max(job.servers - 1, 1) + random.Below(5);  // a shard may own none
  job.micro_batches = job.workers * (1 + random.Below(3));
  if (random.Below(3) == 0) job.micro_batches = 1 + random.Below(16);
  job.micro_batch = 1 + random.Below(3);
  job.steps = 20;  // 20 clocks of each worker
  job.short_by = random.Below(static_cast<uint32_t>(job.micro_batches * job.micro_batch));
  constexpr Scenario::SpeedsDrawn kSpeeds[] = {{"fixed", 1, 1},
                                               {"exponential", 1, 10},
                                               {"lognormal:sigma=1", 1, 25},
                                               {"jitter+straggler:factor=5", 5, 5},
                                               {"transient:p=0.1,factor=20", 2.9, 20}};
  scenario.speeds = OneOf(&random, kSpeeds);
  constexpr SimTime kTimes[] = {0, 10 * kMicrosecond, kMillisecond, 10 * kMillisecond,
                                100 * kMillisecond};
  scenario.latency = OneOf(&random, kTimes);
  scenario.jitter = OneOf(&random, kTimes);
  constexpr double kRates[] = {0, 10000, 1000000};
  scenario.bytes_per_second = OneOf(&random, kRates);
  scenario.change_bytes_per_second = OneOf(&random, kRates);
  // About as many messages as there will be.
  const int64_t messages = 20 * job.workers * (2 * job.blocks + job.servers + 2);
  const int switches = 1 + static_cast<int>(random.Below(3));
  proto::Mode now = job.mode;
  for (int i = 0; i < switches; ++i) {
    proto::Mode next = DrawMode(&random);
    while (IsSame(next, now)) next = DrawMode(&random);
    const int64_t part = messages * 2 / 3 / switches;
    scenario.switches.push_back(
        {messages / 20 + i * part + random.Below(static_cast<uint32_t>(part)), next});
    now = next;
  }
  const int faults = 2 + static_cast<int>(random.Below(4));
  for (int i = 0; i < faults; ++i) {
    int64_t at = random.Below(static_cast<uint32_t>(messages));
    // Around a switch more happens.
    if (random.Below(2) == 0) {
      at = scenario.switches[random.Below(static_cast<uint32_t>(switches))].at +
           random.Below(static_cast<uint32_t>(10 * job.workers));
    }
    scenario.faults.push_back(DrawFault(&random, DrawKind(&random), at));
  }
  DrawHarsher(messages, &scenario);
  DrawRest(messages, &scenario);
  DrawDivergence(&scenario);
  DrawStops(messages, &scenario);
  DrawMore(messages, &scenario);
  DrawEnd(&scenario);
  DrawFinalTest(&scenario);
  DrawAhead(&scenario);
  DrawDeaths(messages, &scenario);
  DrawBreaks(messages, &scenario);
  DrawInVain(&scenario);
  DrawCoordinator(messages, &scenario);
  DrawLaterDeaths(messages, &scenario);
  DrawScript(&scenario);
  DrawScriptChange(&scenario);
  DrawDisk(&scenario);
  DrawEvery(&scenario);
  DrawTopK(&scenario);
  DrawKeepBest(&scenario);
  scenario.begins_from_file =
      !job.gives_values && RandomStream(Key(seed, "begins from")).Below(4) == 0;
  scenario.continues = RandomStream(Key(seed, "continues")).Below(4) != 0;
  if (job.max_restarts > 0 || job.workers == 1) SpareTerms(&scenario);
  scenario.power_fails = job.max_restarts > 0 && RandomStream(Key(seed, "power")).Below(3) == 0;
  return scenario;
}

}  // namespace rubato
