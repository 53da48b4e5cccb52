// What is judged when a job has ended, by the books that were kept of it.
#include <algorithm>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/base/status.h"
#include "common/space/modes.h"
#include "tools/simulator/invariants.h"

namespace rubato {

absl::Status Invariants::CheckModes(const std::set<std::string>& asked) const {
  for (const auto& [number, view] : lineages_) {
    const reference::Stage stage = reference::StageAt(job_, epoch_samples_, view.origin_samples());
    const proto::Mode& mode = view.mode();
    const reference::Units units = UnitsIn(view);
    const int64_t end = EndOf(view);
    if ((IsSame(mode, stage.mode) || asked.count(ModeName(mode)) != 0) &&
        (end == view.origin_unit() || units.Before(end - 1) < stage.until)) {
      continue;
    }
    // What only some blocks hold is done first, in the mode that it was begun in.
    if (number == 1 && OnArrival(mode) && end <= resumed_.given) continue;
    if (number == 1 && is_split_ && end == first_unit_ + 1) continue;
    return absl::InternalError(absl::StrFormat(
        "modes: lineage %d is %s from sample %d to %d; the schedule has %s up to sample %d", number,
        ModeName(mode), view.origin_samples(), units.Before(end), ModeName(stage.mode),
        stage.until));
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
      return absl::InternalError(
          absl::StrFormat("exactly once: block %d has %d updates, block 0 has %d", block,
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
          "lineages: lineage %d begins at unit %d and sample %d, and ends at %d of %d; expected %d "
          "and %d",
          it->first, view.origin_unit(), view.origin_samples(), end, updates, at, samples));
    }
    RUBATO_RETURN_IF_ERROR(OnArrival(view.mode()) ? CheckOnArrival(view, at, end, &counts)
                                                  : CheckSync(view, at, end, &counts));
    const int64_t unit_end = EndOf(view);
    if (!OnArrival(view.mode()) && unit_end != end) {
      return absl::InternalError(
          absl::StrFormat("versions: lineage %d has steps up to %d and versions up to "
                          "%d",
                          it->first, unit_end, end));
    }
    samples = UnitsIn(view).Before(unit_end);
    at = end;
  }
  if (stopped_.has_value()) RUBATO_RETURN_IF_ERROR(CheckStop(simulation));
  counts.samples = samples;
  RUBATO_RETURN_IF_ERROR(CheckTotals(simulation, counts));
  return CheckStaleness(simulation);
}

// One worker that does it all, one step after the other, from where the lineage begins.
absl::Status Invariants::CheckSync(const proto::View& view, int64_t begin, int64_t end,
                                   Counts* counts) const {
  const reference::Units units = UnitsIn(view);
  const int64_t count = static_cast<int64_t>(blocks_.size());
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
      gradients.push_back(units.Gradient(job_.seed(), step, block, parameters));
      squares += double{NormOf(gradients.back())} * NormOf(gradients.back());
      if (LeavesOut() && !IsFinite(gradients.back(), non_finite_in_)) skipped = true;
    }
    const int64_t samples = units.At(step).count(), weight = units.Weight(step);
    const double factor = reference::ClipFactor(job_, squares, weight);
    if (skipped) ++counts->skipped;
    for (int64_t block = 0; block < count; ++block) {
      const UpdateTerms terms{samples, before[block].first, step - before[block].second, 1, factor,
                              weight};
      before[block].first += samples;
      if (skipped) ++before[block].second;
      const Update& update = blocks_[block].log[step];
      const uint64_t old = ValueAt(block, step);
      if (update.contribution.lineage != view.lineage() || update.skipped != skipped ||
          update.terms.samples != samples ||
          update.value != (skipped ? old : UpdateSymbol(old, gradients[block], terms))) {
        return absl::InternalError(absl::StrFormat(
            "reference: block %d differs from the reference after step %d", block, step));
      }
    }
  }
  return absl::OkStatus();
}

absl::Status Invariants::CheckOnArrival(const proto::View& view, int64_t begin, int64_t end,
                                        Counts* counts) const {
  const int64_t count = static_cast<int64_t>(blocks_.size());
  const Range units{begin, EndOf(view)};
  const auto left_out = left_out_.find(view.lineage());
  std::map<int64_t, int64_t> holders;  // by unit: blocks that hold it
  for (int64_t block = 0; block < count; ++block) {
    RUBATO_RETURN_IF_ERROR(CheckBlockOnArrival(view, block, end, units, &holders));
  }
  for (int64_t unit = units.begin; unit < units.end; ++unit) {
    const bool is_whole = holders[unit] == count;
    const bool is_of_before = view.lineage() == 1 && resumed_.whole.count(unit) != 0;
    const bool is_either = view.lineage() == 1 && resumed_.left_out.count(unit) != 0;
    if (!is_of_before)
      ++(is_either ? counts->either : is_whole ? counts->applied : counts->left_out);
    if (is_whole) continue;
    if (left_out == left_out_.end() || left_out->second.count(unit) == 0) {
      return absl::InternalError(
          absl::StrFormat("exactly once: %d of %d blocks hold contribution %d of lineage %d, and "
                          "nobody left it out",
                          holders[unit], count, unit, view.lineage()));
    }
  }
  return absl::OkStatus();
}

absl::Status Invariants::CheckBlockOnArrival(const proto::View& view, int64_t block, int64_t end,
                                             Range units,
                                             std::map<int64_t, int64_t>* holders) const {
  const reference::Units of = UnitsIn(view);
  std::set<int64_t> done;
  std::map<WorkerId, int64_t> clocks;
  auto [samples, skipped] = Held(block, units.begin);
  const int64_t size = static_cast<int64_t>(blocks_[block].log.size());
  for (int64_t i = units.begin; i < std::min(end, size); ++i) {
    const Update& update = blocks_[block].log[i];
    if (update.skipped) continue;  // as the next lineage begins
    const Frame& frame = update.contribution;
    const int64_t unit = static_cast<int64_t>(frame.unit);
    if (frame.lineage != view.lineage() || !units.Contains(unit)) {
      return absl::InternalError(absl::StrFormat(
          "exactly once: block %d holds contribution %d of lineage %d; lineage %d has %d to %d",
          block, unit, frame.lineage, view.lineage(), units.begin, units.end));
    }
    if (!done.insert(unit).second) {
      return absl::InternalError(
          absl::StrFormat("exactly once: block %d holds contribution %d twice", block, unit));
    }
    const int64_t own = of.At(unit).count();
    ++(*holders)[unit];
    if (update.restored) {
      samples += own;
      continue;
    }
    const int64_t clock = static_cast<int64_t>(frame.clock);
    int64_t& next = clocks[{static_cast<int>(frame.worker), frame.incarnation}];
    if (clock < next) {
      return absl::InternalError(absl::StrFormat(
          "clocks: block %d took clock %d of worker %d out of turn", block, clock, frame.worker));
    }
    next = clock + 1;
    RUBATO_RETURN_IF_ERROR(CheckBitsOnArrival(
        of, block, i,
        {own, samples, i - skipped, reference::RateOf(job_, own), 1, of.Weight(unit)}));
    samples += own;
  }
  const auto law = blocks_[block].laws.find(view.lineage());
  if (law == blocks_[block].laws.end() || law->second.conservation.Holds(law->second.staleness)) {
    return absl::OkStatus();
  }
  return absl::InternalError(
      absl::StrFormat("conservation: block %d: staleness is not conserved in lineage %d: %s", block,
                      view.lineage(), law->second.conservation.ToString(law->second.staleness)));
}

absl::Status Invariants::CheckBitsOnArrival(const reference::Units& of, int64_t block, int64_t i,
                                            const UpdateTerms& terms) const {
  const Update& update = blocks_[block].log[i];
  const Frame& frame = update.contribution;
  const int64_t unit = static_cast<int64_t>(frame.unit);
  const auto read = read_.find(NameOf(frame));
  uint64_t parameters = 0;
  for (size_t other = 0; other < blocks_.size(); ++other) {
    const int64_t version = read == read_.end() ? -1 : read->second[other];
    if (version < 0) {
      return absl::InternalError(absl::StrFormat(
          "exactly once: contribution %d of block %d was never computed", unit, block));
    }
    parameters = AppendSymbol(parameters, ValueAt(static_cast<int64_t>(other), version));
  }
  const uint64_t gradient = of.Gradient(job_.seed(), unit, block, parameters);
  if (UpdateSymbol(ValueAt(block, i), gradient, terms) == update.value) return absl::OkStatus();
  return absl::InternalError(absl::StrFormat(
      "reference: update %d of block %d has other bits than contribution %d makes (worker %d, "
      "incarnation %d, clock %d, lineage %d): %d samples after %d, expected %d after %d",
      i, block, unit, frame.worker, frame.incarnation, frame.clock, frame.lineage,
      update.terms.samples, update.terms.samples_before, terms.samples, terms.samples_before));
}

absl::Status Invariants::CheckTotals(const Simulation& simulation, const Counts& counts) const {
  for (size_t i = 0; i < blocks_.size(); ++i) {
    const int64_t block = static_cast<int64_t>(i);
    const int64_t updates = static_cast<int64_t>(blocks_[i].log.size());
    if (!simulation.HasLedger(block)) continue;
    const BlockLedger& ledger = simulation.ledger(block);
    int64_t staleness = 0;
    for (const auto& [lineage, law] : blocks_[i].laws) staleness += law.staleness;
    const auto [samples, skipped] = Held(block, updates);
    if (ledger.version != updates || ledger.samples != samples || ledger.skipped != skipped ||
        ledger.staleness_sum != staleness || simulation.Value(block) != ValueAt(block, updates)) {
      return absl::InternalError(absl::StrFormat(
          "totals: block %d has %d updates, version %d, %d samples of %d, staleness %d; its "
          "updates' was "
          "%d; its bits are %s",
          block, updates, ledger.version, ledger.samples, samples, ledger.staleness_sum, staleness,
          simulation.Value(block) == ValueAt(block, updates) ? "theirs" : "others"));
    }
  }
  for (int shard = 0; shard < job_.cluster().servers(); ++shard) {
    if (simulation.HeldPayloads(shard) == 0) continue;
    return absl::InternalError(
        absl::StrFormat("payloads: shard %d still holds %d payloads at the end", shard,
                        simulation.HeldPayloads(shard)));
  }
  const Summary& summary = simulation.coordinator().summary();
  const WorkCounts& work = summary.work;
  const int64_t more = work.applied - counts.applied;  // of either
  if (work.given != work.applied + work.left_out + work.partial + work.lost || more < 0 ||
      more > counts.either || work.left_out != counts.left_out + counts.either - more ||
      summary.skipped != work.left_out + counts.skipped) {
    return absl::InternalError(absl::StrFormat(
        "account: the account of work does not close: %d given = %d applied + %d left out + %d "
        "partial + %d "
        "lost; %d were applied and %d left out, and %d steps; of all, %d counted as left out",
        work.given, work.applied, work.left_out, work.partial, work.lost, counts.applied,
        counts.left_out, counts.skipped, summary.skipped));
  }
  for (size_t i = 0; i < std::max(blocks_.size(), summary.blocks.size()); ++i) {
    // A signal may come before all reports.
    if (summary.blocks.size() < blocks_.size() && stopped_.has_value()) break;
    if (i < summary.blocks.size() && summary.blocks[i].block() == static_cast<int64_t>(i)) continue;
    return absl::InternalError(absl::StrFormat("account: the summary has %d reports for %d blocks",
                                               summary.blocks.size(), blocks_.size()));
  }
  if (summary.samples != counts.samples) {
    return absl::InternalError(absl::StrFormat("account: the summary counts %d samples of %d",
                                               summary.samples, counts.samples));
  }
  return absl::OkStatus();
}

absl::Status Invariants::CheckStaleness(const Simulation& simulation) const {
  const Summary& summary = simulation.coordinator().summary();
  std::vector<int64_t> of_all;  // of which the summary has a report
  for (size_t i = 0; i < blocks_.size(); ++i) {
    if (!simulation.HasLedger(static_cast<int64_t>(i))) return absl::OkStatus();
    const BlockLedger& ledger = simulation.ledger(static_cast<int64_t>(i));
    std::vector<int64_t> counts;
    int64_t most = 0;
    for (const auto& [staleness, updates] : blocks_[i].stale) {
      most = staleness;
      const auto at = static_cast<size_t>(std::min<int64_t>(staleness, kMostStaleness));
      counts.resize(std::max(counts.size(), at + 1));
      counts[at] += updates;
    }
    if (ledger.staleness_counts != counts || ledger.staleness_max != most) {
      return absl::InternalError(absl::StrFormat(
          "staleness counts: block %d counts %s by staleness, at most %d; its updates are %s, at "
          "most %d",
          i, absl::StrJoin(ledger.staleness_counts, " "), ledger.staleness_max,
          absl::StrJoin(counts, " "), most));
    }
    const auto report = std::find_if(summary.blocks.begin(), summary.blocks.end(),
                                     [&](const proto::ShardReport::Block& block) {
                                       return block.block() == static_cast<int64_t>(i);
                                     });
    if (report == summary.blocks.end()) continue;
    if (report->staleness_max() != most) {
      return absl::InternalError(
          absl::StrFormat("staleness counts: the summary has %d as the most of block %d, not %d",
                          report->staleness_max(), i, most));
    }
    of_all.resize(std::max(of_all.size(), counts.size()));
    for (size_t at = 0; at < counts.size(); ++at) of_all[at] += counts[at];
  }
  if (summary.staleness_counts == of_all) return absl::OkStatus();
  return absl::InternalError(absl::StrFormat(
      "staleness counts: the summary counts %s by staleness; the blocks' updates are %s",
      absl::StrJoin(summary.staleness_counts, " "), absl::StrJoin(of_all, " ")));
}

absl::Status Invariants::CheckAbandoned(const Simulation& simulation) const {
  RUBATO_RETURN_IF_ERROR(violated_);
  const WorkCounts& work = simulation.coordinator().summary().work;
  if (work.given == work.applied + work.left_out + work.partial + work.lost) {
    return absl::OkStatus();
  }
  return absl::InternalError(
      absl::StrFormat("account: the account of abandoned work does not close: %d given = %d "
                      "applied + %d left out + %d "
                      "partial + %d lost",
                      work.given, work.applied, work.left_out, work.partial, work.lost));
}

}  // namespace rubato
