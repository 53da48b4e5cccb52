// What the run before a checkpoint leaves to the one that goes on from it.
#include <algorithm>

#include "absl/strings/str_format.h"
#include "common/base/status.h"
#include "common/space/modes.h"
#include "tools/simulator/invariants.h"

namespace rubato {

uint32_t Invariants::LineageOf(const proto::Manifest& manifest) const {
  const bool on_arrival = OnArrival(FromManifest(manifest.mode()));
  uint32_t lineage = 0;
  for (const auto& [number, view] : lineages_) {
    if (view.origin_unit() == manifest.origin_unit() && OnArrival(view.mode()) == on_arrival) {
      lineage = number;
    }
  }
  return lineage;
}

Invariants::Books Invariants::BooksOf(const proto::Manifest& manifest) const {
  Books books;
  if (!OnArrival(FromManifest(manifest.mode()))) return books;
  for (const proto::BlockState& state : manifest.blocks()) {
    const std::vector<Update>& log = blocks_[state.block()].log;
    std::vector<int64_t>& held = books.held.emplace_back();
    const int64_t end = std::min<int64_t>(state.version(), log.size());
    for (int64_t i = manifest.origin_unit(); i < end; ++i) {
      held.push_back(static_cast<int64_t>(log[i].contribution.unit));
    }
  }
  const auto left_out = left_out_.find(LineageOf(manifest));
  if (left_out == left_out_.end()) return books;
  // What was given out while it was written is none of it.
  books.left_out.insert(left_out->second.begin(), left_out->second.lower_bound(manifest.step()));
  return books;
}

// Of the updates before, only what they come to is known; on arrival, of which contributions those
// of the lineage are.
void Invariants::OnResume(const proto::Manifest& manifest, const std::vector<uint64_t>& values,
                          const Books& books) {
  const bool on_arrival = OnArrival(FromManifest(manifest.mode()));
  first_unit_ = on_arrival ? manifest.origin_unit() : manifest.step();
  // What blocks leave out counts here, though none of them holds it.
  first_samples_ = reference::Units(job_, on_arrival, epoch_samples_, manifest.origin_unit(),
                                    manifest.origin_samples())
                       .Before(first_unit_);
  for (size_t block = 0; block < blocks_.size(); ++block) {
    const proto::BlockState& state = manifest.blocks(static_cast<int>(block));
    std::vector<Update>& log = blocks_[block].log;
    log.assign(state.version(), {{}, {}, values[block]});
    if (state.version() == 0) initial_[block] = values[block];
    for (int64_t i = 0; i < state.skipped(); ++i) log[i].skipped = true;
    if (on_arrival) Restore(manifest, books.held[block], &log);
    int64_t samples = state.samples();
    for (const Update& update : log) samples -= update.terms.samples;
    if (!log.empty()) log[0].terms.samples += samples;
  }
  if (!on_arrival) return;
  resumed_.given = manifest.step();
  resumed_.left_out = books.left_out;
  if (!books.left_out.empty()) left_out_[1] = books.left_out;
  for (int64_t unit = first_unit_; unit < manifest.step(); ++unit) {
    if (std::all_of(manifest.blocks().begin(), manifest.blocks().end(), [&](const auto& state) {
          return unit < state.units_below() ||
                 std::any_of(
                     state.unit_runs().begin(), state.unit_runs().end(),
                     [&](const auto& run) { return run.begin() <= unit && unit < run.end(); });
        })) {
      resumed_.whole.insert(unit);
    }
  }
}

// Behind it no more than what the next lineage takes for updates that were left out.
bool Invariants::IsLast(const proto::BlockState& state, std::optional<uint64_t> value) const {
  const std::vector<Update>& log = blocks_[state.block()].log;
  const int64_t size = static_cast<int64_t>(log.size());
  if (state.version() > size || Held(state.block(), state.version()) !=
                                    std::pair<int64_t, int64_t>(state.samples(), state.skipped())) {
    return false;
  }
  for (int64_t i = state.version(); i < size; ++i) {
    if (!log[i].skipped || log[i].contribution.lineage != 0) return false;
  }
  return !value.has_value() || *value == ValueAt(state.block(), state.version());
}

void Invariants::GoOnFrom(Invariants* before, const proto::Manifest& manifest,
                          absl::FunctionRef<std::optional<uint64_t>(int64_t block)> value) {
  const bool on_arrival = OnArrival(FromManifest(manifest.mode()));
  proto::Manifest begin = manifest;
  std::vector<uint64_t> values;
  for (proto::BlockState& state : *begin.mutable_blocks()) {
    const int64_t ahead = on_arrival ? 0 : state.version() - manifest.step();
    if (!before->IsLast(state, value(state.block())) || ahead < 0 || ahead > 1) {
      Violated(absl::InternalError(absl::StrFormat(
          "kept: term %d goes on from step %d with block %d at version %d; term %d has brought it "
          "to %d",
          term_, manifest.step(), state.block(), state.version(), before->term_,
          before->blocks_[state.block()].log.size())));
      return;
    }
    // A step that only some blocks have taken is judged with those that have not.
    if (!on_arrival) {
      const auto [samples, skipped] = before->Held(state.block(), manifest.step());
      state.set_version(manifest.step());
      state.set_samples(samples);
      state.set_skipped(skipped);
    }
    values.push_back(before->ValueAt(state.block(), state.version()));
  }
  if (const absl::Status status = before->CheckUpTo(begin); !status.ok()) return Violated(status);
  OnResume(begin, values, before->BooksOf(begin));
  if (on_arrival) return;
  for (const proto::BlockState& state : manifest.blocks()) {
    if (state.version() == manifest.step()) continue;
    Update update = before->blocks_[state.block()].log[manifest.step()];
    update.contribution.lineage = 1;
    blocks_[state.block()].log.push_back(update);
    is_split_ = true;
  }
}

void Invariants::Restore(const proto::Manifest& manifest, const std::vector<int64_t>& held,
                         std::vector<Update>* log) const {
  const reference::Units units(job_, /*on_arrival=*/true, epoch_samples_, manifest.origin_unit(),
                               manifest.origin_samples());
  for (size_t i = 0; i < held.size(); ++i) {
    Update& update = (*log)[manifest.origin_unit() + i];
    update.contribution.lineage = 1;
    update.contribution.unit = static_cast<uint64_t>(held[i]);
    update.terms.samples = units.At(held[i]).count();
    update.restored = true;
  }
}

// What only some blocks hold is done first, in the mode that it was begun in.
void Invariants::CheckFirstView(const proto::View& view) {
  if (view.origin_unit() != first_unit_ || view.origin_samples() != first_samples_) {
    Violated(absl::InternalError(absl::StrFormat(
        "terms: term %d begins with unit %d after %d samples; its checkpoint is of unit %d and %d",
        term_, view.origin_unit(), view.origin_samples(), first_unit_, first_samples_)));
  }
  if (!asked_mode_.has_value() || view.origin_samples() >= asked_until_ || resumed_.given > 0 ||
      is_split_) {
    return;
  }
  if (IsSame(view.mode(), *asked_mode_)) return;
  Violated(absl::InternalError(absl::StrFormat(
      "asked: %s was asked for up to sample %d, and term %d begins at sample %d with %s",
      ModeName(*asked_mode_), asked_until_, term_, view.origin_samples(), ModeName(view.mode()))));
}

int64_t Invariants::begun_samples() const {
  if (view_.number() == 0) return first_samples_;
  return UnitsIn(view_).Before(begun_);
}

absl::Status Invariants::CheckUpTo(const proto::Manifest& manifest) const {
  RUBATO_RETURN_IF_ERROR(violated_);
  const bool on_arrival = OnArrival(FromManifest(manifest.mode()));
  const uint32_t last = LineageOf(manifest);
  Counts unused;
  int64_t at = first_unit_;
  for (const auto& [number, view] : lineages_) {
    if (number > last) break;
    const auto next = lineages_.upper_bound(number);
    if (number == last && on_arrival) {
      std::map<int64_t, int64_t> holders;
      for (const proto::BlockState& state : manifest.blocks()) {
        RUBATO_RETURN_IF_ERROR(CheckBlockOnArrival(view, state.block(), state.version(),
                                                   {at, manifest.step()}, &holders));
      }
      break;
    }
    const int64_t end = number == last ? manifest.step() : next->second.origin_unit();
    RUBATO_RETURN_IF_ERROR(OnArrival(view.mode()) ? CheckOnArrival(view, at, end, &unused)
                                                  : CheckSync(view, at, end, &unused));
    at = end;
  }
  return absl::OkStatus();
}

}  // namespace rubato
