#include "tools/simulator/scenario.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/random.h"
#include "common/base/status.h"
#include "common/space/modes.h"
#include "server/run/journal.h"
#include "tools/simulator/invariants.h"
#include "tools/simulator/liveness.h"

namespace rubato {
namespace {

// A run that takes longer than this does nothing useful any more: the longest take minutes.
constexpr SimTime kLimit = 2 * 3600 * kSecond;

// Seconds.
constexpr double kLease = 2;
constexpr double kStallTimeout = 60;

// As many as are sent before a view holds everywhere, more or less.
constexpr double kBytesOfAView = 20000;

template <typename T, size_t N>
T OneOf(RandomStream* random, const T (&choices)[N]) {
  return choices[random->Below(N)];
}

}  // namespace

namespace {

proto::Mode DrawMode(RandomStream* random) {
  proto::Mode mode;
  mode.set_mode(static_cast<proto::Mode::Name>(random->Below(kModes)));
  if (mode.mode() == proto::Mode::NAME_BOUNDED) mode.set_staleness(random->Below(4));
  return mode;
}

Fault DrawFault(RandomStream* random, int64_t at) {
  Fault fault;
  fault.kind = static_cast<Fault::Kind>(random->Below(kSurvivable));
  fault.at = at;
  fault.sender = random->Below(2) == 0;
  // What the coordinator says does not come twice.
  fault.message = static_cast<int>(
      random->Below(fault.kind == Fault::Kind::kDuplicate ? 4 : SimMessage::kKindNames.size()));
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
          random->Below(2) == 0 ? between(0, 5) : between(kStallTimeout, 2 * kStallTimeout);
      break;
    case Fault::Kind::kRestart:
      fault.duration = between(0, 2);
      break;
    default:
      break;
  }
  return fault;
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
  if (random.Below(3) == 0) job.checkpoint_every = 1 + random.Below(8);
  for (int64_t count = random.Below(3); count > 0; --count) {
    scenario->checkpoints.push_back(random.Below(static_cast<uint32_t>(messages)));
  }
  std::sort(scenario->checkpoints.begin(), scenario->checkpoints.end());
  if (random.Below(20) == 0) {
    Fault kill;
    kill.kind = Fault::Kind::kKillShard;
    kill.at = random.Below(random.Below(4) == 0 ? 20 : static_cast<uint32_t>(messages));
    scenario->faults.push_back(kill);
  }
}

// Stops, how many workers it takes to go on, and what takes its time.
void DrawStops(int64_t messages, Scenario* scenario) {
  RandomStream random(Key(scenario->seed, "stops"));
  SmallJob& job = scenario->job;
  if (random.Below(3) == 0) {
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
    job.evaluate_every = 1 + random.Below(10);
    scenario->test_time = static_cast<SimTime>(random.Unit() * 5 * kSecond);
  }
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
  job.blocks = job.servers - 1 + random.Below(5);  // a shard may own none
  job.micro_batches = job.workers * (1 + random.Below(3));
  if (random.Below(3) == 0) job.micro_batches = 1 + random.Below(16);
  job.micro_batch = 1 + random.Below(3);
  job.steps = 20;  // 20 clocks of each worker
  job.short_by = random.Below(static_cast<uint32_t>(job.micro_batches * job.micro_batch));
  constexpr const char* kSpeeds[] = {"fixed", "exponential", "lognormal:sigma=1",
                                     "jitter+straggler:factor=5", "transient:p=0.1,factor=20"};
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
    scenario.faults.push_back(DrawFault(&random, at));
  }
  DrawRest(messages, &scenario);
  DrawStops(messages, &scenario);
  return scenario;
}

std::string Scenario::ToString() const {
  std::string text = absl::StrFormat(
      "seed %d: %s, %d workers, %d shards, %d blocks, %d micro-batches of %d, %d steps, short by "
      "%d, speeds %s, latency %d ns, jitter %d ns, %g B/s, changes %g B/s",
      seed, ModeName(job.mode), job.workers, job.servers, job.blocks, job.micro_batches,
      job.micro_batch, job.steps, job.short_by, speeds, latency, jitter, bytes_per_second,
      change_bytes_per_second);
  for (const SmallJob::Stage& stage : job.schedule) {
    absl::StrAppend(&text, "; ", ModeName(stage.mode));
    if (&stage != &job.schedule.back()) {
      absl::StrAppend(&text, " until sample ", stage.until_samples);
    }
  }
  if (job.leaves_out) absl::StrAppend(&text, "; leaves out what is not finite");
  if (job.clip_grad_norm > 0) absl::StrAppend(&text, "; clips to ", job.clip_grad_norm);
  if (job.checkpoint_every > 0) {
    absl::StrAppend(&text, "; checkpoints every ", job.checkpoint_every, " steps");
  }
  for (const int64_t at : checkpoints) absl::StrAppend(&text, "; checkpoint at message ", at);
  for (const SimulationSetting::Stop& stop : stops) {
    absl::StrAppend(&text, "; ", stop.is_signal ? "signal " : "stop ", stop.after,
                    " ns after message ", stop.at);
  }
  if (checkpoint_time > 0) {
    absl::StrAppend(&text, "; checkpoints take ", checkpoint_time, " ns");
  }
  if (job.evaluate_every > 0) {
    absl::StrAppend(&text, "; tests every ", job.evaluate_every, " steps take ", test_time, " ns");
  }
  if (job.min_workers > 1) {
    absl::StrAppend(&text, "; pauses below ", job.min_workers, " workers, replaced after ",
                    replaced_after, " ns");
  }
  for (const auto& change : switches) {
    absl::StrAppend(&text, "; to ", ModeName(change.mode), " at message ", change.at);
  }
  for (const Fault& fault : faults) absl::StrAppend(&text, "; ", fault.ToString());
  return text;
}

namespace {

struct Checkpoint {
  proto::Manifest manifest;
  std::vector<uint64_t> symbols;  // by block
};

// The job goes on from the checkpoint, in sync and without faults.
absl::Status GoOn(const Scenario& scenario, const Checkpoint& checkpoint) {
  SmallJob job = scenario.job;
  job.mode = SyncMode();
  job.schedule.clear();
  job.checkpoint_every = 0;
  SimulationSetting setting = MakeSetting(job);
  setting.resume = checkpoint.manifest;
  setting.initial_symbols = checkpoint.symbols;
  Invariants invariants(setting.job, setting.train_samples, job.blocks);
  invariants.OnResume(checkpoint.manifest, checkpoint.symbols);
  setting.observer = &invariants;
  RUBATO_ASSIGN_OR_RETURN(std::unique_ptr<Simulation> simulation,
                          Simulation::Create(std::move(setting)));
  RUBATO_RETURN_IF_ERROR(simulation->Run());
  return invariants.Check(*simulation);
}

// A job whose shard has died ends, and says which.
absl::Status CheckDeath(int shard, const absl::Status& end) {
  const bool is_the_jobs = absl::IsAborted(end) || absl::IsDeadlineExceeded(end);
  if (is_the_jobs && absl::StrContains(end.message(), absl::StrCat("shard ", shard))) {
    return absl::OkStatus();
  }
  return absl::InternalError(absl::StrFormat("death: shard %d has died, and the job ended with: %s",
                                             shard, end.ToString()));
}

}  // namespace

absl::StatusOr<SimulationSetting> SettingOf(const Scenario& scenario) {
  SimulationSetting setting = MakeSetting(scenario.job);
  setting.job.mutable_cluster()->set_lease(kLease);
  setting.job.mutable_cluster()->set_stall_timeout(kStallTimeout);
  setting.micro_batch_time = 100 * kMillisecond;
  setting.seed = scenario.seed;
  RUBATO_ASSIGN_OR_RETURN(setting.speeds, Speeds::Parse(scenario.speeds, scenario.seed));
  setting.card.latency = scenario.latency;
  if (scenario.bytes_per_second > 0) setting.card.bytes_per_second = scenario.bytes_per_second;
  setting.jitter = scenario.jitter;
  setting.streams = StreamLimits::Draw(scenario.seed);
  setting.change_bytes_per_second = scenario.change_bytes_per_second;
  setting.faults = scenario.faults;
  setting.switches = scenario.switches;
  setting.checkpoints = scenario.checkpoints;
  setting.stops = scenario.stops;
  setting.checkpoint_time = scenario.checkpoint_time;
  setting.test_time = scenario.test_time;
  setting.replaced_after = scenario.replaced_after;
  setting.limit = kLimit;
  return setting;
}

absl::Status RunScenario(const Scenario& scenario, Coverage* coverage, std::ostream* log) {
  RUBATO_ASSIGN_OR_RETURN(SimulationSetting setting, SettingOf(scenario));
  // What struck which message while which of the modes that held was the last.
  struct Struck {
    int fault, message;
    size_t mode;
  };
  std::vector<Struck> struck;
  std::optional<ProcessId> killed;  // a shard
  // Views, and what they are told of, are small beside the times of the other cards.
  const double bytes = scenario.bytes_per_second;
  Liveness liveness(static_cast<SimTime>(kLease * kSecond),
                    static_cast<SimTime>(kStallTimeout * kSecond),
                    10 * (scenario.latency + scenario.jitter) +
                        (bytes > 0 ? static_cast<SimTime>(kBytesOfAView / bytes * kSecond) : 0));
  Simulation* running = nullptr;
  Invariants invariants(setting.job, setting.train_samples, scenario.job.blocks);
  setting.observer = &invariants;
  std::set<std::string> asked;
  for (const auto& change : scenario.switches) asked.insert(ModeName(change.mode));
  setting.callbacks.on_text = [&](bool, const std::string& text, absl::Time now) {
    liveness.OnText(text);
    if (log != nullptr) *log << absl::FormatDuration(now - SimStart()) << " " << text << "\n";
  };
  if (log != nullptr) {
    setting.callbacks.on_view = [log](const proto::View& view, const std::string& reason,
                                      absl::Time now) {
      *log << absl::FormatDuration(now - SimStart()) << " " << JournalLine(view, reason, now);
    };
  }
  setting.on_fault = [&](const Fault& fault, SimMessage::Kind kind, ProcessId process) {
    const size_t modes = invariants.Modes().size();
    struck.push_back(
        {static_cast<int>(fault.kind), static_cast<int>(kind), modes == 0 ? 0 : modes - 1});
    if (fault.kind == Fault::Kind::kKillShard) killed = process;
    if (running == nullptr) return;  // the first messages of all
    std::optional<WorkerId> worker;
    for (const auto& other : running->workers()) {
      if (other->self() != process) continue;
      if (other->id().rank >= 0) worker = other->id();
      liveness.OnStruck(other->index());
    }
    // What a server is not to hear, or to say in time.
    if (running->ShardOf(process) >= 0 || !worker.has_value()) {
      if (fault.kind == Fault::Kind::kCut || fault.kind == Fault::Kind::kDelay) {
        liveness.OnStruckServer();
      }
    }
    liveness.OnFault(fault, worker, *running);
  };
  setting.after_event = [&](const Simulation& simulation) { liveness.OnEvent(simulation); };
  // What the job was doing when it was stopped first, and whether that was by a signal.
  std::string stopped;
  int64_t stops = 0, signals = 0;
  setting.before_stop = [&](const SimulationSetting::Stop& stop) {
    signals += stop.is_signal ? 1 : 0;
    if (++stops > 1) return;
    stopped = running->coordinator().Status(ToTime(running->queue().now())).state();
    invariants.OnStop();
  };
  int64_t checkpoints = 0;
  std::optional<Checkpoint> last;  // in sync
  std::optional<int64_t> last_step;
  setting.callbacks.checkpoint = [&](uint32_t snapshot, const proto::Manifest& manifest) {
    ++checkpoints;
    const auto value = [&](int64_t block) { return running->SnapshotValue(snapshot, block); };
    invariants.OnCheckpoint(manifest, value);
    last_step = manifest.step();
    if (manifest.mode() == proto::Manifest::MODE_SYNC) {
      last = {manifest, {}};
      for (int64_t block = 0; block < scenario.job.blocks; ++block) {
        last->symbols.push_back(value(block));
      }
    }
    return absl::StatusOr<std::string>("a checkpoint");
  };
  RUBATO_ASSIGN_OR_RETURN(std::unique_ptr<Simulation> simulation,
                          Simulation::Create(std::move(setting)));
  running = simulation.get();
  const absl::Status status = simulation->Run();
  // A rule that was broken tells more than what came of it.
  RUBATO_RETURN_IF_ERROR(invariants.violated());
  RUBATO_RETURN_IF_ERROR(liveness.violated());
  const bool is_interrupted = absl::IsCancelled(status) && signals > 0;
  if (killed.has_value() && !status.ok() && !is_interrupted) {
    coverage->killed = 1;
    return CheckDeath(simulation->ShardOf(*killed), status);
  }
  if (stops > 0) {
    ++coverage->stopped;
    if (stopped == "paused") ++coverage->stopped_in_pauses;
    // The second signal ends it at once.
    if (is_interrupted && signals > 1) return absl::OkStatus();
    if (invariants.view().number() == 0 && (status.ok() || is_interrupted)) return absl::OkStatus();
    // Nobody is left to finish what is begun.
    if (simulation->coordinator().Status(SimStart()).members_size() == 0) {
      if (!status.ok() && !is_interrupted &&
          !absl::StrContains(status.message(), "was stopped while no worker was there")) {
        return status;
      }
      return invariants.CheckAbandoned(*simulation);
    }
  }
  if (!is_interrupted) RUBATO_RETURN_IF_ERROR(status);
  const std::vector<proto::Mode> modes = invariants.Modes();
  for (size_t i = 1; i < modes.size(); ++i) {
    for (const Struck& what : struck) {
      if (what.mode != i - 1 && what.mode != i) continue;
      ++coverage->struck[{static_cast<int>(modes[i - 1].mode()), static_cast<int>(modes[i].mode()),
                          what.fault, what.message}];
    }
  }
  ++coverage->runs;
  coverage->switches += static_cast<int64_t>(modes.size()) - 1;
  coverage->faults += static_cast<int64_t>(struck.size());
  const Summary& summary = simulation->coordinator().summary();
  coverage->lost += summary.workers_lost + summary.workers_left;
  coverage->left_out += summary.skipped;
  coverage->checkpoints += checkpoints;
  for (size_t i = 1; i < modes.size(); ++i) {
    if (asked.count(ModeName(modes[i])) == 0) ++coverage->scheduled;
  }
  RUBATO_RETURN_IF_ERROR(invariants.CheckModes(asked));
  RUBATO_RETURN_IF_ERROR(invariants.Check(*simulation));
  if (stops > 0 && (stopped == "training" || stopped == "paused") &&
      last_step != invariants.units()) {
    return absl::InternalError(absl::StrFormat(
        "stop: the job was stopped, and ended at unit %d; its last checkpoint is of %d",
        invariants.units(), last_step.value_or(-1)));
  }
  return last.has_value() ? GoOn(scenario, *last) : absl::OkStatus();
}

Scenario Shrink(Scenario scenario) {
  // Whether it fails without that too; then it goes on without.
  const auto replace = [&scenario](const Scenario& smaller) {
    Coverage unused;
    if (RunScenario(smaller, &unused).ok()) return false;
    scenario = smaller;
    return true;
  };
  const auto erase = [&](auto Scenario::*list) {
    for (size_t i = 0; i < (scenario.*list).size();) {
      Scenario smaller = scenario;
      (smaller.*list).erase((smaller.*list).begin() + static_cast<int64_t>(i));
      if (!replace(smaller)) ++i;
    }
  };
  erase(&Scenario::faults);
  erase(&Scenario::switches);
  erase(&Scenario::checkpoints);
  erase(&Scenario::stops);
  Scenario smaller = scenario;
  smaller.job.schedule.clear();
  replace(smaller);
  smaller = scenario;
  smaller.job.leaves_out = false;
  replace(smaller);
  smaller = scenario;
  smaller.job.clip_grad_norm = 0;
  replace(smaller);
  smaller = scenario;
  smaller.job.checkpoint_every = 0;
  replace(smaller);
  return scenario;
}

}  // namespace rubato
