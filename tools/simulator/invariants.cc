// Long because all invariants read the same books of one run, which are kept here beside them.
#include "tools/simulator/invariants.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "common/base/status.h"
#include "common/space/modes.h"
#include "common/space/sum_of_squares.h"
#include "tools/simulator/symbolic_worker.h"

namespace rubato {
namespace {

bool IsIn(const proto::View& view, const WorkerId& worker) {
  return std::any_of(view.members().begin(), view.members().end(), [&](const auto& member) {
    return member.rank() == worker.rank && member.incarnation() == worker.incarnation;
  });
}

}  // namespace

Invariants::Invariants(const proto::Job& job, int64_t train_samples, int64_t blocks)
    : job_(job), train_samples_(train_samples), blocks_(blocks) {}

void Invariants::OnView(const proto::View& view, SimTime) {
  if (view.number() != view_.number() + 1) {
    Violated(absl::InternalError(
        absl::StrFormat("view %d follows view %d", view.number(), view_.number())));
  }
  // What is begun is the step at hand; the first view may be on its way.
  if (stopped_.has_value() && view.number() > 1) {
    const bool is_new = view.lineage() != view_.lineage();
    const int64_t most = OnArrival(view.mode()) && !is_new
                             ? MostAfterStop()
                             : (is_new ? view.origin_unit() : view.from_step());
    if (view.until_step() > most) {
      Violated(absl::InternalError(
          absl::StrFormat("view %d was opened after the job was stopped, and ends at unit %d: at "
                          "most %d had begun",
                          view.number(), view.until_step(), most)));
    }
  }
  if (view.lineage() != view_.lineage()) {
    if (view.origin_unit() < begun_) {
      Violated(absl::InternalError(
          absl::StrFormat("lineage %d begins with unit %d; units up to %d were computed before",
                          view.lineage(), view.origin_unit(), begun_ - 1)));
    }
    begun_ = view.origin_unit();
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
    Violated(absl::InternalError(
        absl::StrFormat("block %d went from version %d to %d", block, own.log.size(), version)));
  }
  if (contribution.lineage != view_.lineage()) {
    Violated(absl::InternalError(absl::StrFormat("block %d took a contribution of lineage %d in %d",
                                                 block, contribution.lineage, view_.lineage())));
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
                           int64_t version, uint64_t, uint64_t value) {
  Append(block, contribution, version, {contribution, terms, value});
  if (!OnArrival(view_.mode())) return;
  const WorkerId worker{static_cast<int>(contribution.worker), contribution.incarnation};
  Law& law = LawOf(block, contribution.lineage, version - 1);
  if (!law.conservation.IsMember(worker)) {
    Violated(absl::InternalError(absl::StrFormat(
        "block %d took a contribution of worker %d (incarnation %d), who is no member", block,
        worker.rank, worker.incarnation)));
  }
  law.conservation.OnApplied(worker, version);
  law.staleness += version - 1 - static_cast<int64_t>(contribution.version);
}

void Invariants::OnTaken(int64_t block, const WorkerId& worker, uint32_t lineage, int64_t version) {
  Block& own = blocks_[block];
  const bool on_arrival = OnArrival(lineages_[lineage].mode());
  int64_t& last = own.taken[{lineage, worker}];
  // In sync a step may have to be computed once more.
  if (version < last - (on_arrival ? 0 : 1)) {
    Violated(absl::InternalError(
        absl::StrFormat("worker %d took version %d of block %d after version %d", worker.rank,
                        version, block, last)));
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

void Invariants::CheckGap(const WorkerId& worker, uint32_t lineage, int64_t clock, int64_t most,
                          const char* when) {
  if (lineage != view_.lineage() || view_.mode().mode() != proto::Mode::NAME_BOUNDED) return;
  if (!IsIn(view_, worker)) return;
  for (const auto& [name, runner] : runners_) {
    if (name.first != lineage || runner.retired || !IsIn(view_, name.second)) continue;
    if (clock - runner.clock > most) {
      Violated(absl::InternalError(absl::StrFormat(
          "worker %d %s clock %d while worker %d has computed %d: staleness is %d", worker.rank,
          when, clock, name.second.rank, runner.clock, view_.mode().staleness())));
    }
  }
}

void Invariants::OnComputeBegins(const WorkerId& worker, uint32_t lineage, int64_t unit,
                                 int64_t clock, SimTime) {
  if (lineage == view_.lineage()) begun_ = std::max(begun_, unit + 1);
  CheckGap(worker, lineage, clock, view_.mode().staleness(), "begins");
}

void Invariants::OnComputeEnds(const WorkerId& worker, uint32_t lineage, int64_t, int64_t clock,
                               SimTime) {
  Runner& runner = runners_[{lineage, worker}];
  runner.clock = std::max(runner.clock, clock + 1);
  CheckGap(worker, lineage, clock + 1, view_.mode().staleness() + 1, "ends");
}

void Invariants::OnPushed(const Frame& frame) {
  const auto lineage = lineages_.find(frame.lineage);
  if (lineage == lineages_.end() || !OnArrival(lineage->second.mode())) return;
  std::vector<int64_t>& versions = read_[NameOf(frame)];
  versions.resize(blocks_.size(), -1);
  int64_t& version = versions[frame.block];
  if (version >= 0 && version != static_cast<int64_t>(frame.version)) {
    Violated(absl::InternalError(absl::StrFormat(
        "worker %d (incarnation %d) sends clock %d of lineage %d twice, computed at versions %d "
        "and %d of block %d",
        frame.worker, frame.incarnation, frame.clock, frame.lineage, version, frame.version,
        frame.block)));
  }
  version = static_cast<int64_t>(frame.version);
}

std::vector<proto::Mode> Invariants::Modes() const {
  std::vector<proto::Mode> modes;
  for (const auto& [number, view] : lineages_) modes.push_back(view.mode());
  return modes;
}

SampleSchedule Invariants::ScheduleIn(const proto::View& view) const {
  return ScheduleOf(job_, view.mode(), train_samples_, view.origin_unit(), view.origin_samples());
}

uint64_t Invariants::ValueAt(int64_t block, int64_t version) const {
  return version == 0 ? InitialSymbol(job_.seed(), block) : blocks_[block].log[version - 1].value;
}

void Invariants::OnStop() {
  if (stopped_.has_value()) return;
  stopped_ = {view_.number(), view_.lineage(), begun_, 0};
  for (const Block& block : blocks_) {
    stopped_->updates = std::max<int64_t>(stopped_->updates, block.log.size());
  }
}

// Each worker may have been given one that it has not begun, and have asked for another.
int64_t Invariants::MostAfterStop() const {
  return stopped_->begun + 2 * job_.cluster().workers().max();
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
  const bool is_lost = OnArrival(view_.mode())
                           ? stopped_->lineage == view_.lineage() && end > MostAfterStop()
                           : stopped_->view == view_.number() && end > stopped_->updates;
  if (!is_lost) return absl::OkStatus();
  return absl::InternalError(absl::StrFormat(
      "the job was stopped in view %d, when unit %d was the last that had begun, and went on to "
      "unit %d (%s)",
      stopped_->view, stopped_->begun, end, simulation.coordinator().Status(SimStart()).state()));
}

int64_t Invariants::EndOf(const proto::View& view) const {
  const auto next = lineages_.upper_bound(view.lineage());
  if (stopped_.has_value() && next == lineages_.end()) return StoppedAt();
  const int64_t samples = next == lineages_.end() ? train_samples_ : next->second.origin_samples();
  const SampleSchedule schedule = ScheduleIn(view);
  int64_t end = view.origin_unit();
  while (schedule.SamplesBefore(end) < samples) ++end;
  return end;
}

std::pair<int64_t, int64_t> Invariants::Held(int64_t block, int64_t version) const {
  int64_t samples = 0, skipped = 0;
  for (int64_t i = 0; i < version; ++i) {
    samples += blocks_[block].log[i].terms.samples;
    if (blocks_[block].log[i].skipped) ++skipped;
  }
  return {samples, skipped};
}

// Of the updates before, only what they come to is known.
void Invariants::OnResume(const proto::Manifest& manifest, const std::vector<uint64_t>& values) {
  first_unit_ = manifest.step();
  first_samples_ = manifest.samples();
  for (size_t block = 0; block < blocks_.size(); ++block) {
    const proto::BlockState& state = manifest.blocks(static_cast<int>(block));
    std::vector<Update>& log = blocks_[block].log;
    log.assign(state.version(), {{}, {}, values[block]});
    for (int64_t i = 0; i < state.skipped(); ++i) log[i].skipped = true;
    if (!log.empty()) log[0].terms.samples = state.samples();
  }
}

void Invariants::OnCheckpoint(const proto::Manifest& manifest,
                              absl::FunctionRef<uint64_t(int64_t block)> value) {
  if (manifest.blocks_size() != static_cast<int>(blocks_.size())) {
    Violated(absl::InternalError(absl::StrFormat("a checkpoint has %d of %d blocks",
                                                 manifest.blocks_size(), blocks_.size())));
    return;
  }
  const bool on_arrival = OnArrival(FromManifest(manifest.mode()));
  uint32_t lineage = 0;  // another may have begun since
  for (const auto& [number, view] : lineages_) {
    if (view.origin_unit() == manifest.origin_unit() && OnArrival(view.mode()) == on_arrival) {
      lineage = number;
    }
  }
  for (const proto::BlockState& state : manifest.blocks()) {
    const std::vector<Update>& log = blocks_[state.block()].log;
    const int64_t version = state.version();
    if (version > static_cast<int64_t>(log.size()) || (!on_arrival && version != manifest.step()) ||
        value(state.block()) != ValueAt(state.block(), version) ||
        Held(state.block(), version) !=
            std::pair<int64_t, int64_t>(state.samples(), state.skipped())) {
      Violated(absl::InternalError(absl::StrFormat(
          "the checkpoint of step %d has block %d at version %d of %d, with %d samples and %d "
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
    units.insert(state.units_above().begin(), state.units_above().end());
    for (int64_t i = manifest.origin_unit(); i < version; ++i) {
      if (log[i].skipped) continue;
      const int64_t unit = static_cast<int64_t>(log[i].contribution.unit);
      if (units.erase(unit) == 0) {
        Violated(absl::InternalError(
            absl::StrFormat("the checkpoint does not know that block %d holds contribution %d",
                            state.block(), unit)));
      }
    }
    for (const int64_t unit : units) {
      if (left_out_[lineage].count(unit) != 0) continue;
      Violated(absl::InternalError(absl::StrFormat(
          "by the checkpoint block %d holds contribution %d; it does not", state.block(), unit)));
    }
  }
}

absl::Status Invariants::CheckModes(const std::set<std::string>& asked) const {
  const std::vector<ModeSpan> stages = ModesOf(job_, train_samples_);
  for (const auto& [number, view] : lineages_) {
    size_t stage = 0;
    while (stage + 1 < stages.size() && view.origin_samples() >= stages[stage].until_samples) {
      ++stage;
    }
    const proto::Mode& mode = view.mode();
    const SampleSchedule schedule = ScheduleIn(view);
    const int64_t end = EndOf(view);
    if ((IsSame(mode, stages[stage].mode) || asked.count(ModeName(mode)) != 0) &&
        (end == view.origin_unit() ||
         schedule.SamplesBefore(end - 1) < stages[stage].until_samples)) {
      continue;
    }
    return absl::InternalError(absl::StrFormat(
        "lineage %d is %s from sample %d to %d; the schedule has %s up to sample %d", number,
        ModeName(mode), view.origin_samples(), schedule.SamplesBefore(end),
        ModeName(stages[stage].mode), stages[stage].until_samples));
  }
  return absl::OkStatus();
}

absl::Status Invariants::Check(const Simulation& simulation) const {
  RUBATO_RETURN_IF_ERROR(violated_);
  int64_t updates = 0;
  for (const Block& block : blocks_) {
    updates = std::max<int64_t>(updates, block.log.size());
  }
  for (size_t block = 0; block < blocks_.size(); ++block) {
    if (static_cast<int64_t>(blocks_[block].log.size()) != updates &&
        (!OnArrival(view_.mode()) || left_out_.count(view_.lineage()) == 0)) {
      return absl::InternalError(absl::StrFormat("block %d has %d updates, block 0 has %d", block,
                                                 blocks_[block].log.size(), updates));
    }
  }
  int64_t at = first_unit_, samples = first_samples_;
  Counts counts;
  for (auto it = lineages_.begin(); it != lineages_.end(); ++it) {
    const proto::View& view = it->second;
    const auto next = std::next(it);
    const int64_t end = next == lineages_.end() ? updates : next->second.origin_unit();
    if (view.origin_unit() != at || view.origin_samples() != samples || end > updates) {
      return absl::InternalError(absl::StrFormat(
          "lineage %d begins at unit %d and sample %d, and ends at %d of %d; expected %d and %d",
          it->first, view.origin_unit(), view.origin_samples(), end, updates, at, samples));
    }
    RUBATO_RETURN_IF_ERROR(OnArrival(view.mode()) ? CheckOnArrival(view, at, end, &counts)
                                                  : CheckSync(view, at, end, &counts));
    const int64_t unit_end = EndOf(view);
    if (!OnArrival(view.mode()) && unit_end != end) {
      return absl::InternalError(
          absl::StrFormat("lineage %d has steps up to %d and versions up to "
                          "%d",
                          it->first, unit_end, end));
    }
    samples = ScheduleIn(view).SamplesBefore(unit_end);
    at = end;
  }
  if (samples != train_samples_ && !stopped_.has_value()) {
    return absl::InternalError(
        absl::StrFormat("%d samples of %d were trained on", samples, train_samples_));
  }
  if (stopped_.has_value()) RUBATO_RETURN_IF_ERROR(CheckStop(simulation));
  counts.samples = samples;
  return CheckTotals(simulation, counts);
}

// One worker that does it all, one step after the other, from where the lineage begins.
absl::Status Invariants::CheckSync(const proto::View& view, int64_t begin, int64_t end,
                                   Counts* counts) const {
  const SampleSchedule schedule = ScheduleIn(view);
  const int64_t count = static_cast<int64_t>(blocks_.size());
  const bool leaves_out = job_.train().on_non_finite() == proto::Train::ON_NON_FINITE_SKIP;
  std::vector<std::pair<int64_t, int64_t>> before;  // by block: samples, updates left out
  for (int64_t block = 0; block < count; ++block) before.push_back(Held(block, begin));
  for (int64_t step = begin; step < end; ++step) {
    uint64_t parameters = 0;
    for (int64_t block = 0; block < count; ++block) {
      parameters = AppendSymbol(parameters, ValueAt(block, step));
    }
    std::vector<uint64_t> gradients;
    double squares = 0;
    bool skipped = false;
    for (int64_t block = 0; block < count; ++block) {
      gradients.push_back(
          NodeSymbol(job_.seed(), schedule, step, {0, view.leaves()}, block, parameters));
      squares += double{NormOf(gradients.back())} * NormOf(gradients.back());
      if (leaves_out && !IsFinite(gradients.back())) skipped = true;
    }
    const int64_t samples = schedule.SamplesBefore(step + 1) - schedule.SamplesBefore(step);
    const double factor = job_.optimizer().has_clip_grad_norm()
                              ? ClipFactor(squares, samples, job_.optimizer().clip_grad_norm())
                              : 1;
    if (skipped) ++counts->skipped;
    for (int64_t block = 0; block < count; ++block) {
      const UpdateTerms terms{samples, before[block].first, step - before[block].second, 1, factor};
      before[block].first += samples;
      if (skipped) ++before[block].second;
      const Update& update = blocks_[block].log[step];
      const uint64_t old = ValueAt(block, step);
      if (update.contribution.lineage != view.lineage() || update.skipped != skipped ||
          update.terms.samples != samples ||
          update.value != (skipped ? old : UpdateSymbol(old, gradients[block], terms))) {
        return absl::InternalError(
            absl::StrFormat("block %d differs from the reference after step %d", block, step));
      }
    }
  }
  return absl::OkStatus();
}

absl::Status Invariants::CheckOnArrival(const proto::View& view, int64_t begin, int64_t end,
                                        Counts* counts) const {
  const SampleSchedule schedule = ScheduleIn(view);
  const int64_t count = static_cast<int64_t>(blocks_.size());
  const int64_t unit_end = EndOf(view);
  const auto left_out = left_out_.find(view.lineage());
  std::map<int64_t, int64_t> holders;  // by unit: blocks that hold it
  for (int64_t block = 0; block < count; ++block) {
    std::set<int64_t> done;
    std::map<WorkerId, int64_t> clocks;
    auto [samples, skipped] = Held(block, begin);
    const int64_t size = static_cast<int64_t>(blocks_[block].log.size());
    for (int64_t i = begin; i < std::min(end, size); ++i) {
      const Update& update = blocks_[block].log[i];
      if (update.skipped) continue;  // as the next lineage begins
      const Frame& frame = update.contribution;
      const int64_t unit = static_cast<int64_t>(frame.unit);
      if (frame.lineage != view.lineage() || unit < begin || unit >= unit_end) {
        return absl::InternalError(
            absl::StrFormat("block %d holds contribution %d of lineage %d; lineage %d has %d to %d",
                            block, unit, frame.lineage, view.lineage(), begin, unit_end));
      }
      if (!done.insert(unit).second) {
        return absl::InternalError(
            absl::StrFormat("block %d holds contribution %d twice", block, unit));
      }
      const int64_t clock = static_cast<int64_t>(frame.clock);
      int64_t& next = clocks[{static_cast<int>(frame.worker), frame.incarnation}];
      if (clock < next) {
        return absl::InternalError(absl::StrFormat(
            "block %d took clock %d of worker %d out of turn", block, clock, frame.worker));
      }
      next = clock + 1;
      ++holders[unit];
      const auto read = read_.find(NameOf(frame));
      uint64_t parameters = 0;
      for (int64_t other = 0; other < count; ++other) {
        const int64_t version = read == read_.end() ? -1 : read->second[other];
        if (version < 0) {
          return absl::InternalError(
              absl::StrFormat("contribution %d of block %d was never computed", unit, block));
        }
        parameters = AppendSymbol(parameters, ValueAt(other, version));
      }
      const uint64_t gradient =
          NodeSymbol(job_.seed(), schedule, unit, {0, view.leaves()}, block, parameters);
      const int64_t own = schedule.SamplesBefore(unit + 1) - schedule.SamplesBefore(unit);
      const double rate = static_cast<double>(own) / job_.train().batch_size();
      const UpdateTerms terms{own, samples, i - skipped, rate, 1};
      if (UpdateSymbol(ValueAt(block, i), gradient, terms) != update.value) {
        return absl::InternalError(absl::StrFormat(
            "update %d of block %d has other bits than contribution %d makes (worker %d, "
            "incarnation %d, clock %d, lineage %d): %d samples after %d, expected %d after %d",
            i, block, unit, frame.worker, frame.incarnation, frame.clock, frame.lineage,
            update.terms.samples, update.terms.samples_before, own, samples));
      }
      samples += own;
    }
    const auto law = blocks_[block].laws.find(view.lineage());
    if (law != blocks_[block].laws.end() &&
        !law->second.conservation.Holds(law->second.staleness)) {
      return absl::InternalError(absl::StrFormat(
          "block %d: staleness is not conserved in lineage %d: %s", block, view.lineage(),
          law->second.conservation.ToString(law->second.staleness)));
    }
  }
  for (int64_t unit = begin; unit < unit_end; ++unit) {
    if (holders[unit] == count) {
      ++counts->applied;
      continue;
    }
    ++counts->left_out;
    if (left_out == left_out_.end() || left_out->second.count(unit) == 0) {
      return absl::InternalError(absl::StrFormat(
          "%d of %d blocks hold contribution %d of lineage %d, and nobody left it out",
          holders[unit], count, unit, view.lineage()));
    }
  }
  return absl::OkStatus();
}

absl::Status Invariants::CheckTotals(const Simulation& simulation, const Counts& counts) const {
  for (size_t i = 0; i < blocks_.size(); ++i) {
    const int64_t block = static_cast<int64_t>(i);
    const int64_t updates = static_cast<int64_t>(blocks_[i].log.size());
    const BlockLedger& ledger = simulation.ledger(block);
    int64_t staleness = 0;
    for (const auto& [lineage, law] : blocks_[i].laws) staleness += law.staleness;
    const auto [samples, skipped] = Held(block, updates);
    if (ledger.version != updates || ledger.samples != samples || ledger.skipped != skipped ||
        ledger.staleness_sum != staleness || simulation.Value(block) != ValueAt(block, updates)) {
      return absl::InternalError(absl::StrFormat(
          "block %d has %d updates, version %d, %d samples of %d, staleness %d; its updates' was "
          "%d; its bits are %s",
          block, updates, ledger.version, ledger.samples, samples, ledger.staleness_sum, staleness,
          simulation.Value(block) == ValueAt(block, updates) ? "theirs" : "others"));
    }
  }
  for (int shard = 0; shard < job_.cluster().servers(); ++shard) {
    if (simulation.HeldPayloads(shard) == 0) continue;
    return absl::InternalError(absl::StrFormat("shard %d still holds %d payloads at the end", shard,
                                               simulation.HeldPayloads(shard)));
  }
  const Summary& summary = simulation.coordinator().summary();
  const WorkCounts& work = summary.work;
  if (work.given != work.applied + work.left_out + work.partial + work.lost ||
      work.applied != counts.applied || work.left_out != counts.left_out ||
      summary.skipped != counts.left_out + counts.skipped) {
    return absl::InternalError(absl::StrFormat(
        "the account of work does not close: %d given = %d applied + %d left out + %d partial + %d "
        "lost; %d were applied and %d left out, and %d steps; of all, %d counted as left out",
        work.given, work.applied, work.left_out, work.partial, work.lost, counts.applied,
        counts.left_out, counts.skipped, summary.skipped));
  }
  for (size_t i = 0; i < std::max(blocks_.size(), summary.blocks.size()); ++i) {
    if (summary.blocks.empty() && stopped_.has_value()) break;  // by a signal: no reports
    if (i < summary.blocks.size() && summary.blocks[i].block() == static_cast<int64_t>(i)) continue;
    return absl::InternalError(absl::StrFormat("the summary has %d reports for %d blocks",
                                               summary.blocks.size(), blocks_.size()));
  }
  if (summary.samples != counts.samples) {
    return absl::InternalError(
        absl::StrFormat("the summary counts %d samples of %d", summary.samples, counts.samples));
  }
  return absl::OkStatus();
}

absl::Status Invariants::CheckAbandoned(const Simulation& simulation) const {
  RUBATO_RETURN_IF_ERROR(violated_);
  const WorkCounts& work = simulation.coordinator().summary().work;
  if (work.given == work.applied + work.left_out + work.partial + work.lost) {
    return absl::OkStatus();
  }
  return absl::InternalError(absl::StrFormat(
      "the account of abandoned work does not close: %d given = %d applied + %d left out + %d "
      "partial + %d lost",
      work.given, work.applied, work.left_out, work.partial, work.lost));
}

}  // namespace rubato
