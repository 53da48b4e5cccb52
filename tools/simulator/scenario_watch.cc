#include "tools/simulator/scenario_watch.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "common/base/bytes.h"
#include "common/base/random.h"
#include "common/base/status.h"
#include "common/space/modes.h"
#include "server/run/journal.h"
#include "tools/simulator/reference.h"
#include "tools/simulator/symbolic_values.h"

namespace rubato {
namespace {

// In the place of a mode's number: that of a fault in a term that is over.
constexpr size_t kOfEarlierTerm = ~size_t{0};

}  // namespace

ScenarioWatch::ScenarioWatch(const Scenario& scenario, SimulationSetting* setting,
                             std::ostream* log)
    : scenario_(scenario),
      log_(log),
      epoch_samples_(setting->train_samples),
      samples_(TotalSamples(setting->job, setting->train_samples)),
      bound_(scenario),
      invariants_(setting->job, setting->train_samples, scenario.job.blocks, scenario.ahead,
                  setting->non_finite_in),
      non_finite_in_(setting->non_finite_in),
      liveness_(kDrawnLease, kDrawnStallTimeout, bound_.view_time()) {
  if (scenario.job.keep_best.has_value()) folder_.emplace(setting->job);
  initial_ = setting->initial_symbols;
  if (!initial_.empty()) invariants_.OnInitialValues(initial_);
  setting->observer = this;
  setting->limit = bound_.From(samples_);
  setting->ends_within = bound_.EndsWithin();
  setting->callbacks.on_text = [this](bool is_warning, const std::string& text, absl::Time now) {
    if (is_warning && absl::StartsWith(text, "worker ")) has_lost_worker_ = true;
    OnText(text, now);
  };
  setting->callbacks.on_view = [this](const proto::View& view, const std::string& reason,
                                      absl::Time now) { OnView(view, reason, now); };
  setting->callbacks.checkpoint = [this](uint32_t snapshot, const proto::Manifest& manifest) {
    return OnCheckpoint(snapshot, manifest);
  };
  setting->on_fault = [this](const Fault& fault, SimMessage::Kind message, ProcessId process) {
    OnFault(fault, message, process);
  };
  setting->before_stop = [this](const SimulationSetting::Stop& stop) {
    stop_lasts_ = stop_lasts_ || !stop.is_signal;
    OnStop(stop.is_signal);
  };
  setting->on_term = [this](const proto::RunState& state,
                            const std::optional<proto::Manifest>& resume) {
    OnTerm(state, resume);
  };
  setting->on_initial_values = [this](const std::vector<float>& values) {
    OnInitialValues(values);
  };
  setting->before_continue = [this] {
    // Nobody else finishes what has begun.
    if (simulation_->coordinator().Status(SimStart()).members_size() == 0) {
      return Violated(invariants_.CheckAbandoned(*simulation_));
    }
    Violated(invariants_.Check(*simulation_));
    Violated(CheckResumable());
  };
  setting->on_power_loss = [this] { OnPowerLoss(); };
  setting->on_switch = [this](const proto::Mode& mode) { OnSwitch(mode); };
  setting->callbacks.on_metrics = [this](const MetricsLine& line, absl::Time) { OnMetrics(line); };
  setting->after_event = [this](const Simulation& simulation) { liveness_.OnEvent(simulation); };
}

void ScenarioWatch::OnResume(const Checkpoint& from) {
  invariants_.OnResume(from.manifest, from.symbols, from.books);
  newest_ = flushed_.newest = from;
  residuals_.lost = from.manifest.residuals();
  began_with_ = from.manifest.samples();
  seconds_before_ = from.manifest.seconds();
}

void ScenarioWatch::Begin(Simulation* simulation) {
  simulation_ = simulation;
  ExtendUntil(harmed_until_);
}

absl::Status ScenarioWatch::violated() const {
  for (const absl::Status& status : {invariants_.violated(), liveness_.violated(), violated_}) {
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

void ScenarioWatch::ExtendUntil(SimTime until) {
  harmed_until_ = std::max(harmed_until_, until);
  const SimTime now = simulation_->queue().now();
  const int64_t done = simulation_->coordinator().Status(ToTime(now)).samples();
  // Before the first view the others wait for who does not come.
  const bool has_begun = simulation_->coordinator().view().number() > 0;
  const SmallJob& job = scenario_.job;
  // When its time is over, no more than what has begun.
  const int64_t left = job.seconds > 0 ? job.micro_batches * job.micro_batch : samples_ - done;
  simulation_->SetLimit(harmed_until_ + static_cast<SimTime>(job.seconds * kSecond) +
                        bound_.From(left) + (has_begun ? 0 : kDrawnStartTimeout));
}

void ScenarioWatch::OnFault(const Fault& fault, SimMessage::Kind message, ProcessId process) {
  const size_t modes = invariants_.Modes().size();
  struck_.push_back({fault.kind, message, modes == 0 ? 0 : modes - 1});
  if (log_ != nullptr) *log_ << "  " << fault.ToString() << "\n";
  const SimTime now = simulation_->queue().now();
  ExtendUntil(now + fault.duration);
  if (fault.kind == Fault::Kind::kDelay || fault.kind == Fault::Kind::kCut ||
      fault.kind == Fault::Kind::kFreeze) {
    late_until_ = std::max(late_until_, now + fault.duration);
  }
  const int server = simulation_->ServerOf(process);
  if (!IsSurvivable(fault.kind) && scenario_.job.max_restarts > 0) {
    struck_servers_.insert(server);
  } else if (!IsSurvivable(fault.kind) && !fatal_.has_value()) {
    OnFatal(fault, server, now);
  }
  std::optional<WorkerId> worker;
  for (const auto& other : simulation_->workers()) {
    if (other->self() != process) continue;
    if (other->id().rank >= 0) worker = other->id();
    liveness_.OnStruck(other->index());
    struck_workers_.insert(other->index());
  }
  // What a server is not to hear, or to say in time.
  if ((server >= 0 || !worker.has_value()) &&
      (fault.kind == Fault::Kind::kCut || fault.kind == Fault::Kind::kCutServer ||
       fault.kind == Fault::Kind::kDelay)) {
    liveness_.OnStruckServer();
  }
  liveness_.OnFault(fault, worker, *simulation_);
}

void ScenarioWatch::OnFatal(const Fault& fault, int server, SimTime now) {
  const std::string state = simulation_->coordinator().Status(ToTime(now)).state();
  // Nobody watches an engine before there is a shard.
  if (fault.kind == Fault::Kind::kStickEngine && simulation_->shards()[server]->core() == nullptr) {
    return;
  }
  fatal_ = {fault.kind, server, now, state == "training" || state == "paused"};
}

Observer* ScenarioWatch::OfTerm(uint32_t term) {
  if (term == invariants_.term()) return &invariants_;
  return before_.has_value() && term == before_->term() ? &*before_ : nullptr;
}

void ScenarioWatch::CountResiduals(const proto::View& view) {
  const proto::JobStatus status =
      simulation_->coordinator().Status(ToTime(simulation_->queue().now()));
  std::set<WorkerId> here;
  for (const proto::JobStatus::Member& worker : status.members()) {
    here.insert({worker.rank(), worker.incarnation()});
  }
  Residuals now{residuals_.lost, {}};
  for (const proto::Member& member : view.members()) {
    const WorkerId worker = {static_cast<int>(member.rank()), member.incarnation()};
    if (here.count(worker) > 0) now.of.insert(worker);
  }
  for (const WorkerId& worker : residuals_.of) {
    if (view.number() == 1 || now.of.count(worker) == 0) ++now.lost;
  }
  residuals_ = now;
}

absl::Status ScenarioWatch::CheckResiduals() const {
  if (!scenario_.job.top_k) return absl::OkStatus();
  const int64_t told = simulation_->coordinator().summary().residuals_lost.value_or(-1);
  const int64_t least = residuals_.lost;
  const int64_t most = least + scenario_.job.max_workers;
  if (least <= told && told <= most) return absl::OkStatus();
  return absl::InternalError(absl::StrFormat(
      "account: the summary counts %d residuals lost; %d to %d were", told, least, most));
}

absl::Status ScenarioWatch::CheckDue() const {
  if (has_lost_worker_ || deaths_ > 0 || has_continued_ || signals_ > 0) return absl::OkStatus();
  RUBATO_RETURN_IF_ERROR(recurring_.CheckTests());
  const bool are_late = std::any_of(struck_.begin(), struck_.end(), [](const Struck& what) {
    return what.fault <= Fault::Kind::kFreeze || what.fault == Fault::Kind::kLateEngine;
  });
  if (are_late || scenario_.jitter > 0 || scenario_.disk_is_full || scenario_.disk_stands_still) {
    return absl::OkStatus();
  }
  return recurring_.CheckFirstCheckpoint();
}

absl::Status ScenarioWatch::CheckMetrics() const {
  const Summary& summary = simulation_->coordinator().summary();
  // Who was lost has told nobody of what it has done last; and there is no line of what weighs
  // nothing.
  const bool are_told = !has_lost_worker_ && has_trained_ && !scenario_.job.is_script;
  if (!are_told || told_ == summary.samples) return absl::OkStatus();
  return absl::InternalError(
      absl::StrFormat("account: the last line of training tells of %d samples, the summary of %d",
                      told_, summary.samples));
}

absl::Status ScenarioWatch::CheckBest() const {
  if (!folder_.has_value()) return absl::OkStatus();
  RUBATO_RETURN_IF_ERROR(folder_->CheckTruth());
  // Where a signal has ended it, there is no test of the end.
  return signals_ > 0 ? absl::OkStatus() : folder_->CheckBest();
}

void ScenarioWatch::OnView(const proto::View& view, SimTime now) {
  CountResiduals(view);
  if (view.number() == 1) {
    if (invariants_.term() > 1) OnFirstView();
    OnFlush();
    if (!initial_.empty() && giver_ < simulation_->first_of_script()) {
      Violated(absl::InternalError("given: the values are of a script that has changed since"));
    }
  }
  invariants_.OnView(view, now);
}

void ScenarioWatch::OnView(const proto::View& view, const std::string& reason, absl::Time now) {
  if (!begun_at_.has_value()) begun_at_ = now;
  if (log_ != nullptr) {
    *log_ << absl::FormatDuration(now - SimStart()) << " " << JournalLine(view, reason, now);
  }
  const proto::JobStatus status = simulation_->coordinator().Status(now);
  for (const auto& member : status.members()) {
    if (absl::StartsWith(member.process(), "simulated misfit") && violated_.ok()) {
      violated_ = absl::InternalError(absl::StrFormat("misfits refused: %s takes part in view %d",
                                                      member.process(), view.number()));
    }
  }
}

absl::Status ScenarioWatch::CheckBegin(const proto::RunState& state,
                                       const std::optional<proto::Manifest>& resume) const {
  RUBATO_RETURN_IF_ERROR(invariants_.violated());
  if (newest_is_of_term_) RUBATO_RETURN_IF_ERROR(invariants_.CheckUpTo(newest_->manifest));
  const int64_t step = newest_.has_value() ? newest_->manifest.step() : 0;
  if (resume.has_value() != newest_.has_value() || (resume.has_value() && resume->step() != step)) {
    return absl::InternalError(
        absl::StrFormat("terms: term %d begins with step %d; the last checkpoint is of step %d",
                        state.term(), resume.has_value() ? resume->step() : 0, step));
  }
  return absl::OkStatus();
}

absl::Status ScenarioWatch::CheckTerm(const proto::RunState& state,
                                      const std::optional<proto::Manifest>& resume) const {
  RUBATO_RETURN_IF_ERROR(CheckBegin(state, resume));
  // Of a shard that cannot be given its values it is not said which it is.
  const bool is_explained =
      (scenario_.disk_stands_still &&
       absl::StrContains(state.reason(), "has not read its part of")) ||
      struck_servers_.count(simulation_->head()) > 0 ||
      struck_servers_.count(state.lost_shard()) > 0 ||
      (scenario_.job.dedicated_coordinator && state.lost_shard() == 0 && !struck_servers_.empty());
  if (!is_explained) {
    return absl::InternalError(
        absl::StrFormat("blame: nothing has happened to shard %d, of which is said: %s",
                        state.lost_shard(), state.reason()));
  }
  // One that had no view yet had what its checkpoint holds.
  const Invariants& begun =
      invariants_.view().number() > 0 || !before_.has_value() ? invariants_ : *before_;
  // With its power a coordinator loses what its term has done, and knows what was before.
  const int64_t most =
      std::max({begun.begun_samples(), newest_.has_value() ? newest_->manifest.samples() : 0,
                knows_less_ ? samples_before_ : 0});
  if (state.samples() > most || state.samples() < told_) {
    return absl::InternalError(
        absl::StrFormat("account: term %d ended after %d samples; %d had begun, and %d were told",
                        begun.term(), state.samples(), most, told_));
  }
  return absl::OkStatus();
}

Invariants ScenarioWatch::InvariantsOf(uint32_t term) const {
  Invariants invariants(invariants_.job(), epoch_samples_, scenario_.job.blocks, scenario_.ahead,
                        non_finite_in_, term);
  if (!initial_.empty()) invariants.OnInitialValues(initial_);
  return invariants;
}

void ScenarioWatch::OnTerm(const proto::RunState& state,
                           const std::optional<proto::Manifest>& resume) {
  if (log_ != nullptr) *log_ << "  term " << state.term() << ": " << state.reason() << "\n";
  if (state.interrupted()) return OnContinued(state, resume);
  Violated(CheckTerm(state, resume));
  // A coordinator that was lost leaves nothing but the lines.
  const bool has_trained = state.has_lost_shard() ? HasTrained(state.samples()) : has_trained_;
  if (state.has_lost_shard() && !has_trained && in_vain_ >= scenario_.job.max_restarts) {
    Violated(absl::InternalError(
        absl::StrFormat("in vain: term %d follows %d that have trained nothing, and %d are borne",
                        state.term(), in_vain_ + 1, scenario_.job.max_restarts)));
  }
  in_vain_ = has_trained ? 0 : in_vain_ + 1;
  ++deaths_;
  BeginTerm(state);
}

void ScenarioWatch::OnContinued(const proto::RunState& state,
                                const std::optional<proto::Manifest>& resume) {
  has_continued_ = true;
  Violated(CheckBegin(state, resume));
  if (has_trained_) in_vain_ = 0;
  signals_ = 0;
  BeginTerm(state);
}

absl::Status ScenarioWatch::CheckResumable() const {
  if (stops_ == 0 || (stopped_ != "training" && stopped_ != "paused") ||
      last_step_ == invariants_.units() || has_no_last_checkpoint_) {
    return absl::OkStatus();
  }
  return absl::InternalError(
      absl::StrFormat("stopped resumable: the job was stopped, and ended at unit %d; its last "
                      "checkpoint is of %d",
                      invariants_.units(), last_step_.value_or(-1)));
}

void ScenarioWatch::BeginTerm(const proto::RunState& state) {
  OnFlush();
  if (folder_.has_value()) {
    Violated(folder_->OnTerm(newest_.has_value() ? std::make_optional(newest_->manifest.step())
                                                 : std::nullopt));
  }
  recurring_.OnTerm();
  samples_before_ = state.samples();
  told_ = 0;
  has_trained_ = false;
  began_with_ = std::numeric_limits<int64_t>::max();  // until it has begun
  Invariants of_term = InvariantsOf(static_cast<uint32_t>(state.term()));
  if (invariants_.view().number() > 0) before_ = std::move(invariants_);
  invariants_ = std::move(of_term);
  newest_is_of_term_ = false;
  begun_at_.reset();
  is_stopped_ = stop_lasts_;
  if (!stop_lasts_) {
    stops_ = 0;
    stopped_.clear();
    has_reached_time_ = has_met_target_ = false;
  }
  for (Struck& what : struck_) what.mode = kOfEarlierTerm;
  liveness_.OnTerm();
  ExtendUntil(simulation_->queue().now());
}

void ScenarioWatch::OnInitialValues(const std::vector<float>& values) {
  const FlatSpace& space = simulation_->blocks().placement.space();
  const auto& workers = simulation_->workers();
  const auto giver = std::find_if(workers.rbegin(), workers.rend(), [&](const auto& worker) {
    const std::vector<float> given = GivenValues(scenario_.seed, worker->index(), space);
    // Some symbols are no numbers as floats, which equal nothing.
    return AsBytes(absl::MakeConstSpan(given)) == AsBytes(absl::MakeConstSpan(values));
  });
  if (giver == workers.rend()) {
    Violated(absl::InternalError(absl::StrFormat(
        "given: no worker has the %d values that the job begins with", values.size())));
    return;
  }
  giver_ = static_cast<size_t>(workers.rend() - giver) - 1;
  initial_.clear();
  for (int64_t block = 0; block < space.blocks(); ++block) {
    initial_.push_back(GivenSymbol(scenario_.seed, (*giver)->index(), block));
  }
  invariants_.OnInitialValues(initial_);
}

void ScenarioWatch::OnPowerLoss() {
  if (folder_.has_value()) {
    folder_->OnPowerLoss(Key(scenario_.seed, "power", static_cast<uint64_t>(deaths_)));
  }
  has_lost_power_ = knows_less_ = true;
  newest_ = flushed_.newest;
  newest_is_of_term_ = false;
  asked_ = flushed_.asked;
  stop_lasts_ = flushed_.stop_lasts;
  rolled_back_ = flushed_.rolled_back;
  residuals_ = flushed_.residuals;
  told_ = 0;
  has_trained_ = false;
}

void ScenarioWatch::OnFlush() {
  flushed_ = {std::move(flushed_.newest), asked_, stop_lasts_, rolled_back_, residuals_};
}

void ScenarioWatch::CheckGoesBack() {
  const uint32_t values_of = std::exchange(values_of_, invariants_.term());
  const auto& shards = simulation_->shards();
  const bool are_kept = std::all_of(shards.begin(), shards.end(), [values_of](const auto& shard) {
    return shard->offered() == values_of;
  });
  if (!before_.has_value() || !are_kept) return;
  Violated(absl::InternalError(
      absl::StrFormat("kept: term %d goes back, and all shards have kept the values of term %d",
                      invariants_.term(), before_->term())));
}

void ScenarioWatch::OnFirstView() {
  const proto::Manifest* const manifest = simulation_->coordinator().kept();
  // Who has been stopped meanwhile has stopped before it.
  invariants_ = InvariantsOf(invariants_.term());
  seconds_before_ = 0;
  begins_at_ = 0;
  if (manifest != nullptr) {
    ++kept_;
    begins_at_ = manifest->samples();
    seconds_before_ = manifest->seconds();
    if (!before_.has_value()) {
      Violated(absl::InternalError(
          absl::StrFormat("kept: term %d goes on from step %d, and no term has begun",
                          invariants_.term(), manifest->step())));
      return;
    }
    Violated(before_->violated());
    invariants_.GoOnFrom(&*before_, *manifest, [this](int64_t block) -> std::optional<uint64_t> {
      // A shard may be lost again.
      if (!simulation_->HasLedger(block)) return std::nullopt;
      return simulation_->Value(block);
    });
  } else {
    CheckGoesBack();
    if (folder_.has_value()) {
      folder_->GoBack(newest_.has_value() ? newest_->manifest.step() : 0);
    }
    const int64_t kept = newest_.has_value() ? newest_->manifest.samples() : 0;
    rolled_back_ += std::max<int64_t>(0, samples_before_ - kept);
    if (newest_.has_value()) {
      invariants_.OnResume(newest_->manifest, newest_->symbols, newest_->books);
      seconds_before_ = newest_->manifest.seconds();
      begins_at_ = newest_->manifest.samples();
      last_step_ = newest_->manifest.step();
    } else {
      last_step_.reset();
    }
  }
  began_with_ = begins_at_;
  before_.reset();
  knows_less_ = false;
  if (is_stopped_) invariants_.OnStop();
  if (asked_.has_value()) invariants_.BeginAsked(asked_->mode, asked_->until);
}

void ScenarioWatch::OnSwitch(const proto::Mode& mode) {
  const proto::View& view = invariants_.view();
  // What a term does first, of a lineage before, may have the mode after it.
  const int64_t begun =
      view.lineage() == 1 ? std::max(begins_at_, view.origin_samples()) : view.origin_samples();
  const bool is_pending =
      asked_.has_value() && !IsSame(asked_->mode, view.mode()) && begun < asked_->until;
  if (IsSame(mode, view.mode()) && !is_pending) {
    // It holds already, or the lineage has just ended and the next one is to have it, too.
    if (asked_.has_value() && !IsSame(asked_->mode, mode)) asked_.reset();
    return;
  }
  const reference::Stage stage =
      reference::StageAt(invariants_.job(), epoch_samples_, view.origin_samples());
  asked_ = {mode, stage.until};
}

// The reference says which tests end the training, not the coordinator.
void ScenarioWatch::OnMetrics(const MetricsLine& line) {
  if (line.kind == MetricsLine::Kind::kTrain) {
    if (line.samples <= told_) {
      Violated(absl::InternalError(absl::StrFormat(
          "account: a line of training tells of %d samples, behind one of %d in the same term",
          line.samples, told_)));
    }
    if (const std::string mode = ModeName(invariants_.view().mode()); line.mode != mode) {
      Violated(absl::InternalError(absl::StrFormat(
          "account: a line of training is of mode %s, in a view of %s", line.mode, mode)));
    }
    told_ = line.samples;
    has_trained_ = true;
  }
  if (folder_.has_value()) folder_->OnLine(line);
  if (line.kind != MetricsLine::Kind::kEval) return;
  if (line.loss != TestLoss(line.due) && violated_.ok()) {
    violated_ = absl::InternalError(
        absl::StrFormat("tests: at unit %d a test shows %g", line.due, line.loss));
  }
  Violated(recurring_.OnTest(line.due, simulation_->coordinator().is_ending()));
  const SimTime now = simulation_->queue().now();
  const std::string state = simulation_->coordinator().Status(ToTime(now)).state();
  if (!reference::IsTarget(invariants_.job(), line.due)) return;
  if (state != "training" && state != "paused") return;
  has_met_target_ = true;
  OnStop(/*is_signal=*/false);
}

void ScenarioWatch::OnStop(bool is_signal) {
  signals_ += is_signal ? 1 : 0;
  if (++stops_ > 1) return;
  stopped_ = simulation_->coordinator().Status(ToTime(simulation_->queue().now())).state();
  invariants_.OnStop();
  is_stopped_ = true;
}

absl::StatusOr<std::string> ScenarioWatch::OnCheckpoint(uint32_t snapshot,
                                                        const proto::Manifest& manifest) {
  ++checkpoints_;
  const auto value = [&](int64_t block) { return simulation_->SnapshotValue(snapshot, block); };
  invariants_.OnCheckpoint(manifest, value);
  Violated(recurring_.OnCheckpoint(manifest, simulation_->coordinator().is_ending()));
  last_step_ = manifest.step();
  std::optional<Checkpoint>& last =
      manifest.mode() == proto::Manifest::MODE_SYNC ? last_ : last_on_arrival_;
  last = {manifest, {}, invariants_.BooksOf(manifest)};
  for (int64_t block = 0; block < scenario_.job.blocks; ++block) {
    last->symbols.push_back(value(block));
  }
  flushed_.newest = std::exchange(newest_, last);
  newest_is_of_term_ = true;
  if (folder_.has_value()) folder_->OnCheckpoint(manifest);
  return "a checkpoint";
}

void ScenarioWatch::OnText(const std::string& text, absl::Time now) {
  liveness_.OnText(text);
  if (absl::StartsWith(text, "no checkpoint of the end, ")) has_no_last_checkpoint_ = true;
  if (absl::EndsWith(text, " train.until has been reached")) {
    const double seconds =
        seconds_before_ + (begun_at_ ? absl::ToDoubleSeconds(now - *begun_at_) : 0);
    if (seconds < scenario_.job.seconds && violated_.ok()) {
      violated_ = absl::InternalError(absl::StrFormat(
          "until: the training has ended after %.3f s of %g s", seconds, scenario_.job.seconds));
    }
    has_reached_time_ = true;
    OnStop(/*is_signal=*/false);
  }
  if (log_ != nullptr) *log_ << absl::FormatDuration(now - SimStart()) << " " << text << "\n";
}

double ScenarioWatch::share_of_bound() const {
  const SimTime given = simulation_->limit() - harmed_until_;
  return static_cast<double>(simulation_->ended_at() - harmed_until_) / static_cast<double>(given);
}

}  // namespace rubato
