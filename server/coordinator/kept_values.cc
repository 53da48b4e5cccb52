#include "server/coordinator/kept_values.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <tuple>

#include "absl/strings/str_format.h"
#include "common/base/status.h"
#include "common/consistency/block_units.h"
#include "common/consistency/policy.h"
#include "common/space/modes.h"

namespace rubato {
namespace {

// Contributions between the first that a block lacks and the last that one holds: workers have a
// few each under way.
constexpr int64_t kMostOpen = 1 << 20;

// Whether the shard's registration is of the blocks that it is to have, in the last term.
absl::Status CheckKept(const Peer& shard, const Placement& placement, uint32_t term) {
  const int number = shard.shard.number;
  if (!shard.registration.has_kept()) {
    return absl::FailedPreconditionError(absl::StrFormat("shard %d has lost its values", number));
  }
  const proto::KeptValues& kept = shard.registration.kept();
  const proto::View& view = kept.view();
  // The second is of a term that has not begun: its only view says that the values go on.
  if (view.term() != term && !(view.has_kept_term() && view.kept_term() == term)) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "shard %d has values of term %d, and term %d was the last", number, view.term(), term));
  }
  const Range blocks = placement.Blocks(number);
  bool are_its = kept.blocks_size() == blocks.size();
  for (int i = 0; are_its && i < kept.blocks_size(); ++i) {
    are_its = kept.blocks(i).block() == blocks.begin + i;
  }
  if (are_its) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrFormat("shard %d has values of other blocks", number));
}

// The view that holds: of the last term and lineage that some shard has heard of.
const proto::View& NewestView(const Registry& registry) {
  const proto::View* newest = &proto::View::default_instance();
  for (const auto& [id, peer] : registry.peers()) {
    if (peer.is_worker) continue;
    const proto::View& view = peer.registration.kept().view();
    if (std::make_tuple(view.term(), view.lineage()) >
        std::make_tuple(newest->term(), newest->lineage())) {
      newest = &view;
    }
  }
  return *newest;
}

// Of steps: how far all blocks have come; of contributions: which have been given out.
absl::Status SetPlace(bool on_arrival, proto::Manifest* manifest) {
  int64_t lowest = INT64_MAX, highest = 0, samples = 0;
  for (const proto::BlockState& block : manifest->blocks()) {
    lowest = std::min(lowest, on_arrival ? block.units_below() : block.version());
    highest = std::max(highest, on_arrival ? UnitsOf(block).end() : block.version());
    samples = std::max(samples, block.samples());
  }
  if (lowest < manifest->origin_unit() || highest - lowest > (on_arrival ? kMostOpen : 1)) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "blocks are at %s %d to %d of a lineage that began at %d",
        on_arrival ? "contributions" : "versions", lowest, highest, manifest->origin_unit()));
  }
  manifest->set_step(on_arrival ? highest : lowest);
  manifest->set_samples(on_arrival ? samples : PositionOf(*manifest));
  return absl::OkStatus();
}

}  // namespace

uint32_t LastLineage(uint32_t term, const Registry& registry) {
  uint32_t last = 0;
  for (const auto& [id, peer] : registry.peers()) {
    const proto::View& view = peer.registration.kept().view();
    if (!peer.is_worker && view.term() == term) last = std::max(last, view.lineage());
  }
  return last;
}

absl::StatusOr<KeptTerm> KeptByAll(const proto::Job& job, const proto::RunState& state,
                                   const Placement& placement, const Registry& registry) {
  KeptTerm kept;
  std::map<int64_t, proto::BlockState> blocks;
  std::map<Subject, proto::Decision> decisions;
  const proto::View& view = NewestView(registry);
  const bool on_arrival = OnArrival(view.mode());
  for (const auto& [id, peer] : registry.peers()) {
    if (peer.is_worker) continue;
    RUBATO_RETURN_IF_ERROR(CheckKept(peer, placement, state.lasting().begun_term()));
    const proto::KeptValues& its = peer.registration.kept();
    for (const proto::BlockState& block : its.blocks()) {
      blocks[block.block()] = AsGoesOn(view, its.view(), block);
      if (blocks[block.block()].skipped() >= block.skipped()) continue;
      return absl::FailedPreconditionError(absl::StrFormat(
          "shard %d has block %d at version %d, and another shard begins a lineage at %d",
          peer.shard.number, block.block(), block.version(), view.origin_unit()));
    }
    // Of an earlier lineage all are done with what was decided.
    const bool goes_on = OnArrival(its.view().mode()) == on_arrival &&
                         (!on_arrival || its.view().origin_unit() == view.origin_unit());
    if (!goes_on) continue;
    for (const proto::Decision& decision : its.decisions()) {
      decisions.emplace(SubjectOf(decision), decision);
    }
  }
  proto::Manifest& manifest = kept.manifest;
  manifest.set_mode(ToManifest(view.mode()));
  manifest.set_data_digest(registry.model().data_digest());
  manifest.set_samples_per_epoch(registry.model().train_samples());
  manifest.set_origin_unit(view.origin_unit());
  manifest.set_origin_samples(view.origin_samples());
  manifest.set_origin_steps(view.origin_steps());
  manifest.set_unit_samples(job.train().batch_size() / job.train().micro_batches() * view.leaves());
  manifest.set_block_values(ValuesPerBlock(job));
  manifest.set_seconds(state.seconds());
  for (const auto& [index, block] : blocks) *manifest.add_blocks() = block;
  RUBATO_RETURN_IF_ERROR(SetPlace(on_arrival, &manifest));
  bool knows_verdict = false;
  for (const auto& [subject, decision] : decisions) {
    // All are done with it; on arrival it is of steps before.
    if (on_arrival ? subject.is_verdict : subject.unit < manifest.step()) continue;
    knows_verdict = knows_verdict || (subject.is_verdict && subject.unit == manifest.step());
    kept.decisions.push_back(decision);
  }
  const bool is_split = !on_arrival && std::any_of(manifest.blocks().begin(),
                                                   manifest.blocks().end(), [&](const auto& block) {
                                                     return block.version() > manifest.step();
                                                   });
  if (is_split && view.verdict_steps() && !knows_verdict) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "some blocks have taken step %d, and no shard knows the verdict on it", manifest.step()));
  }
  return kept;
}

}  // namespace rubato
