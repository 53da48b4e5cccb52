#include "server/coordinator/kept_values.h"

#include <algorithm>
#include <cstdint>
#include <map>

#include "absl/strings/str_format.h"
#include "common/base/status.h"
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
  if (kept.view().term() != term) {
    return absl::FailedPreconditionError(
        absl::StrFormat("shard %d has values of term %d, and term %d was the last", number,
                        kept.view().term(), term));
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

// Of steps: how far all blocks have come; of contributions: which have been given out.
absl::Status SetPlace(bool on_arrival, proto::Manifest* manifest) {
  int64_t lowest = INT64_MAX, highest = 0, samples = 0;
  for (const proto::BlockState& block : manifest->blocks()) {
    lowest = std::min(lowest, on_arrival ? block.units_below() : block.version());
    highest = std::max(highest, on_arrival ? block.units_below() : block.version());
    for (const int64_t unit : block.units_above()) {
      if (on_arrival) highest = std::max(highest, unit + 1);
    }
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

absl::StatusOr<KeptTerm> KeptByAll(const proto::Job& job, const proto::RunState& state,
                                   const Placement& placement, const Registry& registry) {
  KeptTerm kept;
  std::map<int64_t, const proto::BlockState*> blocks;
  std::map<Subject, proto::Decision> decisions;
  const proto::View* view = nullptr;
  for (const auto& [id, peer] : registry.peers()) {
    if (peer.is_worker) continue;
    RUBATO_RETURN_IF_ERROR(CheckKept(peer, placement, state.lasting().begun_term()));
    const proto::KeptValues& its = peer.registration.kept();
    if (view != nullptr && its.view().lineage() != view->lineage()) {
      return absl::FailedPreconditionError(
          absl::StrFormat("shard %d was in lineage %d, another in %d: the mode was being changed",
                          peer.shard.number, its.view().lineage(), view->lineage()));
    }
    view = &its.view();
    for (const proto::BlockState& block : its.blocks()) blocks[block.block()] = &block;
    for (const proto::Decision& decision : its.decisions()) {
      decisions.emplace(SubjectOf(decision), decision);
    }
  }
  const bool on_arrival = OnArrival(view->mode());
  proto::Manifest& manifest = kept.manifest;
  manifest.set_mode(ToManifest(view->mode()));
  manifest.set_data_digest(registry.model().data_digest());
  manifest.set_samples_per_epoch(registry.model().train_samples());
  manifest.set_origin_unit(view->origin_unit());
  manifest.set_origin_samples(view->origin_samples());
  manifest.set_unit_samples(job.train().batch_size() / job.train().micro_batches() *
                            view->leaves());
  manifest.set_block_values(ValuesPerBlock(job));
  manifest.set_seconds(state.seconds());
  for (const auto& [index, block] : blocks) *manifest.add_blocks() = *block;
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
  if (is_split && view->verdict_steps() && !knows_verdict) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "some blocks have taken step %d, and no shard knows the verdict on it", manifest.step()));
  }
  return kept;
}

}  // namespace rubato
