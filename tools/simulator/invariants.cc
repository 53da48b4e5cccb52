#include "tools/simulator/invariants.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_format.h"
#include "common/space/modes.h"
#include "tools/simulator/symbol.h"

namespace rubato {
namespace {

bool IsIn(const proto::View& view, const WorkerId& worker) {
  return std::any_of(view.members().begin(), view.members().end(), [&](const auto& member) {
    return member.rank() == worker.rank && member.incarnation() == worker.incarnation;
  });
}

}  // namespace

Invariants::Invariants(const proto::Job& job, int64_t epoch_samples, int64_t blocks, SimTime ahead,
                       uint64_t non_finite_in, uint32_t term)
    : job_(job),
      term_(term),
      epoch_samples_(epoch_samples),
      train_samples_(reference::TotalSamples(job, epoch_samples)),
      ahead_(ahead),
      non_finite_in_(non_finite_in),
      blocks_(blocks) {
  for (int64_t block = 0; block < blocks; ++block) {
    initial_.push_back(InitialSymbol(job.seed(), block));
  }
}

void Invariants::OnView(const proto::View& view, SimTime) {
  if (view.term() != term_) {
    Violated(absl::InternalError(
        absl::StrFormat("terms: a view of term %d holds in term %d", view.term(), term_)));
  }
  if (view.number() == 1) CheckFirstView(view);
  if (view.number() != view_.number() + 1) {
    Violated(absl::InternalError(
        absl::StrFormat("views: view %d follows view %d", view.number(), view_.number())));
  }
  // What is begun is the step at hand; the first view may be on its way. Of a lineage that begins
  // after the stop nothing new is given out.
  if (stopped_.has_value()) {
    const bool is_new = view.lineage() != view_.lineage();
    if (is_new) stopped_->most = view.number() == 1 ? stopped_->begun : view.origin_unit();
    const int64_t most = OnArrival(view.mode()) || is_new ? stopped_->most : view.from_step();
    if (view.number() > 1 && view.until_step() > most) {
      Violated(absl::InternalError(absl::StrFormat(
          "stop: view %d was opened after the job was stopped, and ends at unit %d: at "
          "most %d had begun",
          view.number(), view.until_step(), most)));
    }
  }
  if (view.lineage() != view_.lineage()) {
    if (view.origin_unit() < begun_) {
      Violated(absl::InternalError(absl::StrFormat(
          "lineages: lineage %d begins with unit %d; units up to %d were computed before",
          view.lineage(), view.origin_unit(), begun_ - 1)));
    }
    begun_ = std::max(view.origin_unit(), view_.number() == 0 ? resumed_.given : 0);
    // A block that lacks a contribution of others begins as if it had left it out.
    for (Block& block : blocks_) {
      while (static_cast<int64_t>(block.log.size()) < view.origin_unit()) {
        const uint64_t value = ValueAt(&block - blocks_.data(), block.log.size());
        block.log.push_back({{}, {}, value, /*skipped=*/true});
      }
    }
  }
  view_ = view;
  lineages_[view.lineage()] = view;
  if (!OnArrival(view.mode())) return;
  for (const proto::Member& member : view.members()) {
    Runner& runner = runners_[{view.lineage(), {member.rank(), member.incarnation()}}];
    runner.clock = std::max(runner.clock, member.start_clock());
  }
  for (Block& block : blocks_) {
    const auto law = block.laws.find(view.lineage());
    if (law == block.laws.end()) continue;
    std::vector<WorkerId> gone;
    for (const auto& [worker, version] : law->second.conservation.members()) {
      if (!IsIn(view, worker)) gone.push_back(worker);
    }
    for (const WorkerId& worker : gone) law->second.conservation.OnLeave(worker);
  }
}

Invariants::Law& Invariants::LawOf(int64_t block, uint32_t lineage, int64_t version) {
  return blocks_[block].laws.try_emplace(lineage, Law{Conservation(version)}).first->second;
}

void Invariants::Append(int64_t block, const Frame& contribution, int64_t version,
                        const Update& update) {
  Block& own = blocks_[block];
  if (version != static_cast<int64_t>(own.log.size()) + 1) {
    Violated(absl::InternalError(absl::StrFormat("versions: block %d went from version %d to %d",
                                                 block, own.log.size(), version)));
  }
  if (contribution.lineage != view_.lineage()) {
    Violated(absl::InternalError(
        absl::StrFormat("lineages: block %d took a contribution of lineage %d in %d", block,
                        contribution.lineage, view_.lineage())));
  }
  own.log.push_back(update);
}

void Invariants::OnSkipped(int64_t block, const Frame& contribution, int64_t samples,
                           int64_t version) {
  UpdateTerms terms;
  terms.samples = samples;
  Append(block, contribution, version,
         {contribution, terms, ValueAt(block, version - 1), /*skipped=*/true});
}

void Invariants::OnLeftOut(uint32_t lineage, int64_t unit) { left_out_[lineage].insert(unit); }

void Invariants::OnApplied(int64_t block, const Frame& contribution, const UpdateTerms& terms,
                           int64_t version, uint64_t gradient, uint64_t value) {
  Append(block, contribution, version, {contribution, terms, value});
  if (IsJudged(view_) && !IsFinite(gradient, non_finite_in_)) {
    Violated(absl::InternalError(absl::StrFormat(
        "diverged: version %d of block %d has a gradient that is not finite", version, block)));
  }
  if (!OnArrival(view_.mode())) return;
  const WorkerId worker{static_cast<int>(contribution.worker), contribution.incarnation};
  Law& law = LawOf(block, contribution.lineage, version - 1);
  if (!law.conservation.IsMember(worker)) {
    Violated(absl::InternalError(absl::StrFormat(
        "members: block %d took a contribution of worker %d (incarnation %d), who is no member",
        block, worker.rank, worker.incarnation)));
  }
  law.conservation.OnApplied(worker, version);
  const int64_t staleness = version - 1 - static_cast<int64_t>(contribution.version);
  law.staleness += staleness;
  ++blocks_[block].stale[staleness];
}

void Invariants::OnTaken(int64_t block, const WorkerId& worker, uint32_t lineage, int64_t version) {
  Block& own = blocks_[block];
  const bool on_arrival = OnArrival(lineages_[lineage].mode());
  int64_t& last = own.taken[{lineage, worker}];
  // In sync a step may have to be computed once more.
  if (version < last - (on_arrival ? 0 : 1)) {
    Violated(absl::InternalError(
        absl::StrFormat("reads: worker %d took version %d of block %d after version %d",
                        worker.rank, version, block, last)));
  }
  last = std::max(last, version);
  if (!on_arrival || lineage != view_.lineage() || !IsIn(view_, worker)) return;
  Law& law = LawOf(block, lineage, static_cast<int64_t>(own.log.size()));
  if (law.conservation.IsMember(worker)) {
    law.conservation.OnPulled(worker, version);
  } else {
    law.conservation.OnJoin(worker, version);
  }
}

void Invariants::OnRetired(const WorkerId& worker, uint32_t lineage) {
  runners_[{lineage, worker}].retired = true;
}

void Invariants::OnAsked(const WorkerId& worker, uint32_t lineage, int64_t count) {
  runners_[{lineage, worker}].asked = count;
}

void Invariants::OnGiven(const WorkerId& worker, uint32_t lineage, int64_t count) {
  Runner& runner = runners_[{lineage, worker}];
  runner.asked = 0;
  runner.given += count;
  if (count > 1) ++given_ahead_;
  if (runner.given > MostAhead(runner)) {
    Violated(absl::InternalError(absl::StrFormat(
        "ahead: worker %d has %d contributions that it has not begun: by its pace at most %d",
        worker.rank, runner.given, MostAhead(runner))));
  }
}

int64_t Invariants::MostAhead(const Runner& runner) const {
  if (runner.least == kNever) return 1;
  return std::clamp<int64_t>(ahead_ / std::max<SimTime>(1, runner.least), 1,
                             WorkerSession::kMostAhead);
}

void Invariants::CheckGap(const WorkerId& worker, uint32_t lineage, int64_t clock, int64_t most,
                          const char* when) {
  if (lineage != view_.lineage() || view_.mode().mode() != proto::Mode::NAME_BOUNDED) return;
  if (!IsIn(view_, worker)) return;
  for (const auto& [name, runner] : runners_) {
    if (name.first != lineage || runner.retired || !IsIn(view_, name.second)) continue;
    if (clock - runner.clock > most) {
      Violated(absl::InternalError(absl::StrFormat(
          "staleness bound: worker %d %s clock %d while worker %d has computed %d: staleness is %d",
          worker.rank, when, clock, name.second.rank, runner.clock, view_.mode().staleness())));
    }
  }
}

void Invariants::OnComputeBegins(const WorkerId& worker, uint32_t lineage, int64_t unit,
                                 int64_t clock, SimTime) {
  if (lineage == view_.lineage()) begun_ = std::max(begun_, unit + 1);
  if (OnArrival(lineages_[lineage].mode())) --runners_[{lineage, worker}].given;
  CheckGap(worker, lineage, clock, view_.mode().staleness(), "begins");
}

void Invariants::OnComputeEnds(const WorkerId& worker, uint32_t lineage, int64_t, int64_t clock,
                               SimTime now) {
  Runner& runner = runners_[{lineage, worker}];
  runner.clock = std::max(runner.clock, clock + 1);
  if (runner.computed_at.has_value()) {
    runner.least = std::min(runner.least, now - *runner.computed_at);
  }
  runner.computed_at = now;
  CheckGap(worker, lineage, clock + 1, view_.mode().staleness() + 1, "ends");
}

void Invariants::OnPushed(const Frame& frame) {
  const auto lineage = lineages_.find(frame.lineage);
  if (lineage == lineages_.end() || !OnArrival(lineage->second.mode())) return;
  std::vector<int64_t>& versions = read_[NameOf(frame)];
  versions.resize(blocks_.size(), -1);
  int64_t& version = versions[frame.block];
  if (version >= 0 && version != static_cast<int64_t>(frame.version)) {
    Violated(
        absl::InternalError(absl::StrFormat("exactly once: worker %d (incarnation %d) sends clock "
                                            "%d of lineage %d twice, computed at versions %d "
                                            "and %d of block %d",
                                            frame.worker, frame.incarnation, frame.clock,
                                            frame.lineage, version, frame.version, frame.block)));
  }
  version = static_cast<int64_t>(frame.version);
}

std::vector<proto::Mode> Invariants::Modes() const {
  std::vector<proto::Mode> modes;
  for (const auto& [number, view] : lineages_) modes.push_back(view.mode());
  return modes;
}

reference::Units Invariants::UnitsIn(const proto::View& view) const {
  return reference::Units(job_, OnArrival(view.mode()), epoch_samples_, view.origin_unit(),
                          view.origin_samples());
}

uint64_t Invariants::ValueAt(int64_t block, int64_t version) const {
  return version == 0 ? initial_[block] : blocks_[block].log[version - 1].value;
}

void Invariants::OnStop() {
  if (stopped_.has_value()) return;
  const int64_t begun = view_.number() > 0 ? begun_ : std::max(first_unit_, resumed_.given);
  // One that says that it has nothing to do may be given one that it has not asked for.
  int64_t given = job_.cluster().workers().max();
  for (const auto& [name, runner] : runners_) {
    if (name.first == view_.lineage()) given += runner.given + runner.asked;
  }
  stopped_ = {view_.number(), begun, begun + given, 0};
  for (const Block& block : blocks_) {
    stopped_->updates = std::max<int64_t>(stopped_->updates, block.log.size());
  }
}

int64_t Invariants::StoppedAt() const {
  int64_t end = view_.origin_unit();
  for (const Block& block : blocks_) {
    const int64_t updates = static_cast<int64_t>(block.log.size());
    if (!OnArrival(view_.mode())) end = std::max(end, updates);
    for (int64_t i = view_.origin_unit(); i < updates && OnArrival(view_.mode()); ++i) {
      if (block.log[i].skipped) continue;
      end = std::max(end, static_cast<int64_t>(block.log[i].contribution.unit) + 1);
    }
  }
  const auto left_out = left_out_.find(view_.lineage());
  if (left_out != left_out_.end() && OnArrival(view_.mode())) {
    end = std::max(end, *left_out->second.rbegin() + 1);
  }
  return end;
}

absl::Status Invariants::CheckStop(const Simulation& simulation) const {
  const int64_t end = StoppedAt();
  int64_t most = std::numeric_limits<int64_t>::max();  // views say it
  if (OnArrival(view_.mode())) {
    most = stopped_->most;
  } else if (stopped_->view == 0) {
    most = stopped_->begun + 2;  // the first view's, and the one at hand when that is closed
  } else if (stopped_->view == view_.number()) {
    most = stopped_->updates;
  }
  if (end <= most) return absl::OkStatus();
  return absl::InternalError(absl::StrFormat(
      "stop: the job was stopped in view %d, when unit %d was the last that had begun, and went on "
      "to unit %d: expected at most %d (%s)",
      stopped_->view, stopped_->begun, end, most,
      simulation.coordinator().Status(SimStart()).state()));
}

int64_t Invariants::EndOf(const proto::View& view) const {
  const auto next = lineages_.upper_bound(view.lineage());
  if (stopped_.has_value() && next == lineages_.end()) return StoppedAt();
  const int64_t samples = next == lineages_.end() ? train_samples_ : next->second.origin_samples();
  return UnitsIn(view).From(samples);
}

bool Invariants::IsDue(const proto::Point& every, int64_t unit) const {
  const proto::View* of = nullptr;
  for (const auto& [number, view] : lineages_) {
    if (view.origin_unit() < unit) of = &view;
  }
  if (of == nullptr) return false;
  return reference::IsDue(job_, every, OnArrival(of->mode()), epoch_samples_, UnitsIn(*of),
                          of->origin_unit(), unit);
}

std::pair<int64_t, int64_t> Invariants::Held(int64_t block, int64_t version) const {
  int64_t samples = 0, skipped = 0;
  for (int64_t i = 0; i < version; ++i) {
    samples += blocks_[block].log[i].terms.samples;
    if (blocks_[block].log[i].skipped) ++skipped;
  }
  return {samples, skipped};
}

void Invariants::OnCheckpoint(const proto::Manifest& manifest,
                              absl::FunctionRef<uint64_t(int64_t block)> value) {
  if (manifest.blocks_size() != static_cast<int>(blocks_.size())) {
    Violated(absl::InternalError(absl::StrFormat("checkpoint: a checkpoint has %d of %d blocks",
                                                 manifest.blocks_size(), blocks_.size())));
    return;
  }
  const bool on_arrival = OnArrival(FromManifest(manifest.mode()));
  const uint32_t lineage = LineageOf(manifest);
  for (const proto::BlockState& state : manifest.blocks()) {
    const std::vector<Update>& log = blocks_[state.block()].log;
    const int64_t version = state.version();
    if (version > static_cast<int64_t>(log.size()) || (!on_arrival && version != manifest.step()) ||
        value(state.block()) != ValueAt(state.block(), version) ||
        Held(state.block(), version) !=
            std::pair<int64_t, int64_t>(state.samples(), state.skipped())) {
      Violated(absl::InternalError(absl::StrFormat(
          "checkpoint: the checkpoint of step %d has block %d at version %d of %d, with %d samples "
          "and %d "
          "updates left out, and %s bits",
          manifest.step(), state.block(), version, log.size(), state.samples(), state.skipped(),
          version <= static_cast<int64_t>(log.size()) &&
                  value(state.block()) == ValueAt(state.block(), version)
              ? "its"
              : "other")));
      return;
    }
    if (!on_arrival) continue;
    std::set<int64_t> units;  // that it says it holds
    for (int64_t unit = manifest.origin_unit(); unit < state.units_below(); ++unit) {
      units.insert(unit);
    }
    for (const proto::UnitRun& run : state.unit_runs()) {
      for (int64_t unit = run.begin(); unit < run.end(); ++unit) units.insert(unit);
    }
    for (int64_t i = manifest.origin_unit(); i < version; ++i) {
      if (log[i].skipped) continue;
      const int64_t unit = static_cast<int64_t>(log[i].contribution.unit);
      if (units.erase(unit) == 0) {
        Violated(absl::InternalError(absl::StrFormat(
            "checkpoint: the checkpoint does not know that block %d holds contribution %d",
            state.block(), unit)));
      }
    }
    for (const int64_t unit : units) {
      if (left_out_[lineage].count(unit) != 0) continue;
      Violated(absl::InternalError(absl::StrFormat(
          "checkpoint: by the checkpoint block %d holds contribution %d; it does not",
          state.block(), unit)));
    }
  }
}

}  // namespace rubato
