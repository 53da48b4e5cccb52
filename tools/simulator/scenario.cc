#include "tools/simulator/scenario.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status.h"
#include "common/space/modes.h"
#include "tools/simulator/symbol.h"

namespace rubato {

namespace {

// For those who do not work out when the job must be over: the longest take minutes.
constexpr SimTime kLimit = 2 * 3600 * kSecond;

// In the place of a worker that gives values: model.init_from.
constexpr int kOfFile = -1;

constexpr const char* kMisfitNames[kMisfits] = {"job", "version", "data set", "layout"};

}  // namespace

std::string Scenario::ToString() const {
  std::string text = absl::StrFormat(
      "seed %d: %s, %d workers, %d shards, %d blocks, %d micro-batches of %d, %d steps in %d "
      "epochs, "
      "each short by %d, speeds %s, latency %d ns, jitter %d ns, %g B/s, changes %g B/s",
      seed, ModeName(job.mode), job.workers, job.servers, job.blocks, job.micro_batches,
      job.micro_batch, job.steps, job.epochs, job.short_by, speeds.text, latency, jitter,
      bytes_per_second, change_bytes_per_second);
  for (const SmallJob::Stage& stage : job.schedule) {
    absl::StrAppend(&text, "; ", ModeName(stage.mode));
    if (&stage != &job.schedule.back()) {
      absl::StrAppend(&text, " until sample ", stage.until_samples);
    }
  }
  if (job.seconds > 0) absl::StrAppend(&text, "; until ", job.seconds, " s");
  if (job.target > 0) absl::StrAppend(&text, "; stops by a test at unit ", job.target);
  if (!job.learning_rate_parity) absl::StrAppend(&text, "; no learning rate parity");
  if (job.is_script) absl::StrAppend(&text, "; a script");
  if (job.gives_values) {
    absl::StrAppend(&text, ", which gives values in ", job.pieces, " pieces");
  }
  if (begins_from_file) absl::StrAppend(&text, "; begins from a file");
  if (script_changes) absl::StrAppend(&text, ", and changes");
  if (job.leaves_out) absl::StrAppend(&text, "; leaves out what is not finite");
  if (job.diverges_in > 0) {
    absl::StrAppend(&text, "; one gradient of ", job.diverges_in, " ends it");
  }
  if (job.clip_grad_norm > 0) absl::StrAppend(&text, "; clips to ", job.clip_grad_norm);
  if (job.top_k) absl::StrAppend(&text, "; pushes top-k");
  if (job.checkpoint_every.steps > 0) {
    absl::StrAppend(&text, "; checkpoints every ",
                    PointOf(job, job.checkpoint_every).ShortDebugString());
  }
  if (job.checkpoint_seconds > 0) {
    absl::StrAppend(&text, "; checkpoints every ", job.checkpoint_seconds, " s");
  }
  if (job.keep_best.has_value()) {
    absl::StrAppend(&text, "; keeps the last ", job.keep_last, " and the ",
                    *job.keep_best == proto::KeepBest::MODE_MAX ? "most" : "least", " accurate");
  }
  if (disk_is_full) absl::StrAppend(&text, "; its disk is full now and then");
  if (disk_stands_still) absl::StrAppend(&text, "; its disk stands still now and then");
  if (job.max_restarts > 0) absl::StrAppend(&text, "; servers come back");
  if (job.max_restarts > 0 && job.max_restarts < kManyRestarts) {
    absl::StrAppend(&text, ", in vain ", job.max_restarts, " times");
  }
  if (job.dedicated_coordinator) absl::StrAppend(&text, "; the coordinator is apart");
  for (const int64_t at : checkpoints) absl::StrAppend(&text, "; checkpoint at message ", at);
  for (const SimulationSetting::Stop& stop : stops) {
    absl::StrAppend(&text, "; ", stop.is_signal ? "signal " : "stop ", stop.after,
                    " ns after message ", stop.at);
  }
  if (checkpoint_time > 0) {
    absl::StrAppend(&text, "; checkpoints take ", checkpoint_time, " ns");
  }
  if (job.evaluate_every.steps > 0) {
    absl::StrAppend(&text, "; tests every ", PointOf(job, job.evaluate_every).ShortDebugString(),
                    " take ", test_time, " ns");
  }
  if (final_test_time > 0) {
    absl::StrAppend(&text, "; the last test takes ", final_test_time, " ns more");
  }
  if (last_tester_dies) absl::StrAppend(&text, "; its tester dies");
  if (held_back > 0) absl::StrAppend(&text, "; progress is held back for ", held_back, " ns");
  if (pulls_ahead) absl::StrAppend(&text, "; pulls before it pushes");
  absl::StrAppend(&text, "; is given ", ahead, " ns of work ahead");
  if (job.min_workers > 1) {
    absl::StrAppend(&text, "; pauses below ", job.min_workers, " workers, replaced after ",
                    replaced_after, " ns");
  }
  if (first.has_value()) {
    absl::StrAppend(&text, "; first comes one of another ", kMisfitNames[static_cast<int>(*first)]);
  }
  for (const auto& change : switches) {
    absl::StrAppend(&text, "; to ", ModeName(change.mode), " at message ", change.at);
  }
  for (const Fault& fault : faults) absl::StrAppend(&text, "; ", fault.ToString());
  absl::StrAppend(&text, "; goes on in ", ModeName(later_mode),
                  later_on_arrival ? " from on arrival" : "");
  if (power_fails) absl::StrAppend(&text, "; its power fails with the coordinator");
  if (continues) absl::StrAppend(&text, "; is started again after a signal");
  if (comes_late) absl::StrAppend(&text, "; a worker comes when the training is over");
  if (later_misfit) {
    absl::StrAppend(&text, ", first comes one of other ", job.is_script ? "constants" : "data");
  }
  for (const Fault& fault : later_faults) absl::StrAppend(&text, ", ", fault.ToString());
  return text;
}

Scenario Scenario::Later() const {
  Scenario later = *this;
  later.first.reset();
  if (later_misfit) later.first = job.is_script ? Misfit::kLayout : Misfit::kData;
  later.faults = later_faults;
  later.switches.clear();
  later.checkpoints.clear();
  later.stops.clear();
  later.job.mode = later_mode;
  later.job.schedule.clear();
  later.job.seconds *= 2;
  later.job.checkpoint_every = {};
  later.job.checkpoint_seconds = 0;
  later.later_faults.clear();
  later.later_misfit = false;
  later.script_changes = false;
  later.continues = false;
  later.begins_from_file = false;
  return later;
}

absl::StatusOr<SimulationSetting> SettingOf(const Scenario& scenario) {
  SimulationSetting setting = MakeSetting(scenario.job);
  setting.job.mutable_cluster()->set_lease(kDrawnLease / 1e9);
  setting.job.mutable_cluster()->set_stall_timeout(kDrawnStallTimeout / 1e9);
  setting.job.mutable_cluster()->set_start_timeout(kDrawnStartTimeout / 1e9);
  setting.micro_batch_time = kDrawnMicroBatchTime;
  setting.seed = scenario.seed;
  RUBATO_ASSIGN_OR_RETURN(setting.speeds, Speeds::Parse(scenario.speeds.text, scenario.seed));
  setting.card.latency = scenario.latency;
  if (scenario.bytes_per_second > 0) setting.card.bytes_per_second = scenario.bytes_per_second;
  setting.jitter = scenario.jitter;
  setting.streams = StreamLimits::Draw(scenario.seed);
  setting.change_bytes_per_second = scenario.change_bytes_per_second;
  setting.first = scenario.first;
  setting.faults = scenario.faults;
  setting.switches = scenario.switches;
  setting.checkpoints = scenario.checkpoints;
  setting.stops = scenario.stops;
  setting.checkpoint_time = scenario.checkpoint_time;
  setting.test_time = scenario.test_time;
  setting.final_test_time = scenario.final_test_time;
  setting.held_back = scenario.held_back;
  setting.ahead = scenario.ahead;
  setting.pulls_ahead = scenario.pulls_ahead;
  setting.replaced_after = scenario.replaced_after;
  setting.power_fails = scenario.power_fails;
  setting.comes_late = scenario.comes_late;
  setting.last_tester_dies = scenario.last_tester_dies;
  setting.continues = scenario.continues;
  setting.script_changes = scenario.script_changes;
  setting.disk_is_full = scenario.disk_is_full;
  setting.disk_stands_still = scenario.disk_stands_still;
  for (int64_t block = 0; scenario.begins_from_file && block < scenario.job.blocks; ++block) {
    setting.initial_symbols.push_back(GivenSymbol(scenario.seed, kOfFile, block));
  }
  setting.limit = kLimit;
  return setting;
}

}  // namespace rubato
