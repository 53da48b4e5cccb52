#include "tools/simulator/scenario_run.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status.h"
#include "common/space/modes.h"
#include "tools/simulator/invariants.h"
#include "tools/simulator/scenario_watch.h"

namespace rubato {
namespace {

// In what a job says that has diverged.
constexpr char kDiverged[] = " not finite";

// Judges a run that has ended with `end`.
class Judge {
 public:
  Judge(const Scenario& scenario, const ScenarioWatch& watch, const Simulation& simulation,
        absl::Status end)
      : scenario_(scenario),
        watch_(watch),
        invariants_(watch.invariants()),
        simulation_(simulation),
        end_(std::move(end)),
        is_interrupted_(absl::IsCancelled(end_) && watch.signals() > 0) {
    for (const auto& change : scenario.switches) asked_.insert(ModeName(change.mode));
  }

  // Whether the run came to the end of its training; else OK, or what is wrong.
  absl::StatusOr<bool> CheckEnd(Coverage* coverage) const;
  // Of one that did.
  absl::Status CheckWhole() const;
  void Count(Coverage* coverage) const;

 private:
  // A job whose server has died ends soon, and everybody says which.
  absl::Status CheckDeath() const;
  bool IsNamed(const absl::Status& status) const {
    const int server = watch_.fatal()->server;
    const bool is_apart = server == scenario_.job.servers;
    return absl::StrContains(status.message(),
                             is_apart ? "the coordinator" : absl::StrCat("shard ", server));
  }
  // Whether the worker, which has ended, took part until it could be told why the job has ended.
  bool WasTold(const WorkerProcess& worker) const {
    const SimTime said = std::max(simulation_.ended_at(), watch_.late_until());
    const SimTime until = worker.took_part_until();
    return until != kNever && until > said + watch_.bound().view_time();
  }
  // Who does not fit was refused, and nobody else.
  absl::Status CheckMisfits() const;
  // A job in which somebody has found what it is to end with did not end well.
  absl::Status CheckDiverged() const;
  // What is wrong with a job that has ended with an error.
  absl::Status WhatEndedIt() const;

  const Scenario& scenario_;
  const ScenarioWatch& watch_;
  const Invariants& invariants_;
  const Simulation& simulation_;
  const absl::Status end_;
  const bool is_interrupted_;    // by a signal
  std::set<std::string> asked_;  // modes, by hand
};

absl::Status Judge::CheckDeath() const {
  const ScenarioWatch::Fatal& fatal = *watch_.fatal();
  // Who is cut off, or was gone before all were here, cannot know whose fault that is.
  const bool may_know = fatal.in_training && !(fatal.kind == Fault::Kind::kCutServer &&
                                               fatal.server == simulation_.head());
  if (may_know && !IsNamed(end_)) {
    return absl::InternalError(
        absl::StrFormat("named end: server %d was struck, and the job ended with: %s", fatal.server,
                        end_.ToString()));
  }
  // A frozen coordinator does nothing; nor does a dead one.
  const SimTime took = simulation_.ended_at() - fatal.at;
  if (fatal.in_training && fatal.server != simulation_.head() &&
      took > kDrawnLease + watch_.bound().view_time()) {
    return absl::InternalError(
        absl::StrFormat("ends soon: server %d was struck %.3f s before the job ended: %s",
                        fatal.server, static_cast<double>(took) * 1e-9, end_.ToString()));
  }
  for (const auto& worker : simulation_.workers()) {
    if (!may_know || !worker->ended() || worker->ended_at() < fatal.at || worker->end()->ok() ||
        worker->leaves() || watch_.has_struck(worker->index()) || IsNamed(*worker->end()) ||
        invariants_.diverged().count(worker->index()) > 0) {
      continue;
    }
    // One that was joining anew when the job ended, or leaves with its broken stream before it is
    // told, finds the coordinator gone and knows no more.
    if (!WasTold(*worker) && absl::StrContains(worker->end()->message(), "shard 0")) continue;
    // One for which there was no place was told so, and ended, meanwhile.
    if (worker->took_part_until() == kNever &&
        absl::StrContains(worker->end()->message(), "no more workers are wanted")) {
      continue;
    }
    return absl::InternalError(
        absl::StrFormat("named end: server %d was struck, and worker %d ended with: %s",
                        fatal.server, worker->index(), worker->end()->ToString()));
  }
  return absl::OkStatus();
}

absl::Status Judge::CheckMisfits() const {
  // Who comes to a job that is stopped before it has begun is told so, fit or not.
  if (simulation_.coordinator().view().number() == 0) return absl::OkStatus();
  for (const auto& misfit : simulation_.misfits()) {
    if (misfit->took_part_until() != kNever) {
      return absl::InternalError(
          absl::StrFormat("misfits refused: worker %d has taken part", misfit->index()));
    }
  }
  return absl::OkStatus();
}

absl::Status Judge::CheckDiverged() const {
  for (const auto& worker : simulation_.workers()) {
    if (!end_.ok() || invariants_.diverged().count(worker->index()) == 0 ||
        watch_.has_struck(worker->index())) {
      continue;
    }
    return absl::InternalError(absl::StrFormat(
        "diverged: worker %d has found a gradient that is not finite, and the job ended well",
        worker->index()));
  }
  return absl::OkStatus();
}

absl::Status Judge::WhatEndedIt() const {
  if (absl::IsInternal(end_) && simulation_.job_end() != end_) return end_;  // a rule was broken
  return absl::InternalError(
      absl::StrCat("survives: the job ended with an error: ", end_.ToString()));
}

absl::StatusOr<bool> Judge::CheckEnd(Coverage* coverage) const {
  // A rule that was broken tells more than what came of it.
  RUBATO_RETURN_IF_ERROR(watch_.violated());
  RUBATO_RETURN_IF_ERROR(CheckMisfits());
  if (!invariants_.diverged().empty() && absl::StrContains(end_.message(), kDiverged)) {
    coverage->diverged = 1;
    return false;
  }
  RUBATO_RETURN_IF_ERROR(CheckDiverged());
  if (watch_.fatal().has_value() && !end_.ok() && !absl::IsInternal(end_) && !is_interrupted_) {
    coverage->killed = 1;
    RUBATO_RETURN_IF_ERROR(CheckDeath());
    return false;
  }
  // What fails each time anew does not get better.
  if (scenario_.job.max_restarts > 0 && watch_.is_in_vain() && !end_.ok() &&
      !absl::IsInternal(end_) && absl::StrContains(end_.message(), "shard ")) {
    coverage->killed = coverage->in_vain = 1;
    return false;
  }
  // Who was to end by a signal ends with a server.
  if (watch_.has_struck_server() && watch_.signals() > 0 && !end_.ok() && !absl::IsInternal(end_)) {
    coverage->killed = 1;
    return false;
  }
  // The one that is to give a script's values may die when the others' time to come is over.
  if (scenario_.job.gives_values && invariants_.view().number() == 0 && !end_.ok() &&
      absl::StrContains(end_.message(), "(cluster.start_timeout)")) {
    coverage->killed = 1;
    return false;
  }
  if (scenario_.job.seconds > 0 && watch_.stops() == 0 && end_.ok()) {
    return absl::InternalError("until: the training ended by itself, and has no end but its time");
  }
  if (watch_.stops() > 0) {
    ++coverage->stopped;
    if (watch_.has_met_target()) ++coverage->met_targets;
    if (watch_.has_reached_time()) ++coverage->reached_times;
    if (watch_.stopped() == "paused") ++coverage->stopped_in_pauses;
    if (invariants_.view().number() == 0 && (end_.ok() || is_interrupted_)) return false;
    // Nobody is left to finish what is begun.
    if (simulation_.coordinator().Status(SimStart()).members_size() == 0) {
      if (!end_.ok() && !is_interrupted_ &&
          !absl::StrContains(end_.message(), "was stopped while no worker was there")) {
        return WhatEndedIt();
      }
      RUBATO_RETURN_IF_ERROR(invariants_.CheckAbandoned(simulation_));
      return false;
    }
  }
  if (!end_.ok() && !is_interrupted_) return WhatEndedIt();
  return true;
}

absl::Status Judge::CheckWhole() const {
  RUBATO_RETURN_IF_ERROR(invariants_.CheckModes(asked_));
  RUBATO_RETURN_IF_ERROR(invariants_.Check(simulation_));
  const Summary& summary = simulation_.coordinator().summary();
  if (summary.servers_lost != watch_.deaths() ||
      summary.samples_rolled_back != watch_.rolled_back()) {
    return absl::InternalError(absl::StrFormat(
        "account: the summary counts %d servers lost and %d samples rolled back; %d and %d were",
        summary.servers_lost, summary.samples_rolled_back, watch_.deaths(), watch_.rolled_back()));
  }
  RUBATO_RETURN_IF_ERROR(watch_.CheckDue());
  RUBATO_RETURN_IF_ERROR(watch_.CheckMetrics());
  RUBATO_RETURN_IF_ERROR(watch_.CheckBest());
  RUBATO_RETURN_IF_ERROR(watch_.CheckResiduals());
  return watch_.CheckResumable();
}

void Judge::Count(Coverage* coverage) const {
  const std::vector<proto::Mode> modes = invariants_.Modes();
  for (size_t i = 1; i < modes.size(); ++i) {
    for (const ScenarioWatch::Struck& what : watch_.struck()) {
      if (what.mode != i - 1 && what.mode != i) continue;
      ++coverage->struck[{static_cast<int>(modes[i - 1].mode()), static_cast<int>(modes[i].mode()),
                          static_cast<int>(what.fault), static_cast<int>(what.message)}];
    }
    if (asked_.count(ModeName(modes[i])) == 0) ++coverage->scheduled;
  }
  ++coverage->runs;
  coverage->switches += static_cast<int64_t>(modes.size()) - 1;
  coverage->faults += static_cast<int64_t>(watch_.struck().size());
  const Summary& summary = simulation_.coordinator().summary();
  coverage->lost += summary.workers_lost + summary.workers_left;
  coverage->left_out += summary.skipped;
  coverage->checkpoints += watch_.checkpoints();
  if (watch_.deaths() > 0) ++coverage->went_back;
  if (watch_.deaths() > 1) ++coverage->went_back_again;
  if (watch_.kept() > 0) ++coverage->kept;
  if (watch_.has_lost_power()) ++coverage->lost_power;
  if (watch_.has_continued()) ++coverage->continued;
  if (scenario_.job.is_script) ++coverage->scripts;
  if (invariants_.given_ahead() > 0) ++coverage->given_ahead;
  coverage->longest = std::max(coverage->longest, watch_.share_of_bound());
}

// Runs the case, from a checkpoint or from the beginning. The last checkpoint goes to `last`, if it
// came to its end: in sync or on arrival, as the case says.
absl::Status RunOnce(const Scenario& scenario, const ScenarioWatch::Checkpoint* from,
                     Coverage* coverage, std::ostream* log,
                     std::optional<ScenarioWatch::Checkpoint>* last) {
  RUBATO_ASSIGN_OR_RETURN(SimulationSetting setting, SettingOf(scenario));
  ScenarioWatch watch(scenario, &setting, log);
  if (from != nullptr) {
    setting.resume = from->manifest;
    setting.layout = from->manifest.layout();
    setting.initial_symbols = from->symbols;
    watch.OnResume(*from);
  }
  RUBATO_ASSIGN_OR_RETURN(std::unique_ptr<Simulation> simulation,
                          Simulation::Create(std::move(setting)));
  watch.Begin(simulation.get());
  const Judge judge(scenario, watch, *simulation, simulation->Run());
  RUBATO_ASSIGN_OR_RETURN(const bool is_whole, judge.CheckEnd(coverage));
  if (!is_whole) return absl::OkStatus();
  judge.Count(coverage);
  RUBATO_RETURN_IF_ERROR(judge.CheckWhole());
  if (last != nullptr) {
    *last = scenario.later_on_arrival ? watch.last_on_arrival() : watch.last_in_sync();
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status RunScenario(const Scenario& scenario, Coverage* coverage, std::ostream* log) {
  std::optional<ScenarioWatch::Checkpoint> last;
  RUBATO_RETURN_IF_ERROR(RunOnce(scenario, nullptr, coverage, log, &last));
  if (!last.has_value()) return absl::OkStatus();
  Coverage later;
  const absl::Status status = RunOnce(scenario.Later(), &*last, &later, log, nullptr);
  if (later.faults > 0) ++coverage->resumed;
  if (scenario.later_on_arrival) ++coverage->resumed_on_arrival;
  if (status.ok()) return status;
  return absl::InternalError(
      absl::StrFormat("%s (when going on from step %d)", status.message(), last->manifest.step()));
}

}  // namespace rubato
