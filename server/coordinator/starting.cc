#include "server/coordinator/starting.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status.h"
#include "common/space/modes.h"
#include "common/space/resumed_units.h"
#include "server/coordinator/layout_difference.h"
#include "server/optimizers/resumed_slots.h"

namespace rubato {

using coordinator::Outcomes;
using coordinator::Send;
using coordinator::Warn;

namespace {

constexpr absl::Duration kReadSilence = absl::Minutes(2);  // as of parts that are written
constexpr double kSlowDisk = 4 << 20;                      // bytes a second
constexpr absl::Duration kMostOfATick = absl::Seconds(1);

}  // namespace

Starting::Starting(const proto::Job& job, std::optional<proto::Manifest> resume, std::string path,
                   bool initial, const proto::RunState& before, absl::Time now)
    : job_(job),
      resume_(std::move(resume)),
      path_(std::move(path)),
      initial_(initial),
      goes_on_(before.term() > 1),
      begun_on_(before.lasting().data_digest()),
      wanted_(before.lasting().workers() > 0 ? before.lasting().workers()
                                             : job.cluster().workers().start()),
      deadline_(now + absl::Seconds(job.cluster().start_timeout())) {}

absl::StatusOr<bool> Starting::IsReady(const Registry& registry, bool stops, absl::Time now,
                                       Outcomes* out) {
  const proto::Workers& workers = job_.cluster().workers();
  const bool has_shards = registry.shards() == job_.cluster().servers();
  if (has_shards && registry.workers() >= wanted_) return true;
  if (!has_shards) {
    workers_deadline_ = absl::InfiniteFuture();
  } else if (goes_on_ && workers_deadline_ == absl::InfiniteFuture()) {
    workers_deadline_ = now + absl::Seconds(job_.cluster().lease());
  }
  if (goes_on_ && has_shards) {
    return now >= workers_deadline_ && registry.workers() >= (stops ? 1 : workers.min());
  }
  if (now < deadline_) return false;
  const std::string timeout = absl::FormatDuration(absl::Seconds(job_.cluster().start_timeout()));
  if (!has_shards || registry.workers() < workers.min()) {
    const std::string text =
        absl::StrFormat("waited %s (cluster.start_timeout) at %s: %s did not come", timeout,
                        job_.cluster().address(), registry.Missing(wanted_));
    if (refused_.empty()) return absl::DeadlineExceededError(text);
    const std::string why = absl::StrCat(text, "; ", refused_);
    // With others here the one that is missing may still come, when they try again.
    const bool has_others = has_shards
                                ? registry.workers() > 0
                                : registry.peers().size() > registry.peers().count(kOwnShard);
    return has_others ? absl::DeadlineExceededError(why) : absl::FailedPreconditionError(why);
  }
  if (std::exchange(is_short_, true)) return true;
  out->push_back(
      Warn{absl::StrFormat("begins with %d of %d workers: the others have not come within %s "
                           "(cluster.start_timeout)",
                           registry.workers(), wanted_, timeout)});
  return true;
}

absl::Status Starting::CheckData(const proto::WorkerRegistration& worker) const {
  const std::string& found = worker.data_digest();
  if (!resume_.has_value()) {
    if (begun_on_.empty() || begun_on_ == found) return absl::OkStatus();
    return absl::FailedPreconditionError(
        absl::StrFormat("the job was begun on other data than this worker's: digests %s and %s",
                        begun_on_.substr(0, 12), found.substr(0, 12)));
  }
  if (resume_->data_digest() != found) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "the checkpoint was made on other data than this worker's: digests %s and %s",
        resume_->data_digest().substr(0, 12), found.substr(0, 12)));
  }
  if (is_kept_) return absl::OkStatus();  // of which a shard has compared the layout
  const std::string difference = ConstantsDifference(worker.layout(), resume_->layout());
  if (difference.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "this worker's parameters differ from those that the checkpoint was made with: ", difference,
      "; with others frozen, begin a new job, whose script loads what job.save of the "
      "one before has written"));
}

absl::Status Starting::CheckResume(const proto::WorkerRegistration& worker) const {
  if (resume_->mode() == proto::Manifest::MODE_SYNC) return absl::OkStatus();
  RUBATO_RETURN_IF_ERROR(CheckResumedUnits(job_, *resume_));
  if (const int64_t blocks = SpaceOf(job_, worker.layout()).blocks();
      resume_->blocks_size() != blocks) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "the checkpoint is of %d blocks, this job's model of %d", resume_->blocks_size(), blocks));
  }
  return absl::OkStatus();
}

absl::Status Starting::MatchOptimizer(const proto::Job& job, Outcomes* out) {
  if (!resume_.has_value() || is_kept_) return absl::OkStatus();
  RUBATO_ASSIGN_OR_RETURN(std::string note, MatchSlots(job, &*resume_));
  if (!note.empty()) out->push_back(Warn{std::move(note)});
  return absl::OkStatus();
}

void Starting::GoOnWith(proto::Manifest kept) {
  const bool is_of_lineage = resume_.has_value() && OnArrival(FromManifest(resume_->mode())) &&
                             OnArrival(FromManifest(kept.mode())) &&
                             resume_->origin_unit() == kept.origin_unit();
  if (is_of_lineage) kept.set_step(std::max(kept.step(), resume_->step()));
  resume_ = std::move(kept);
  is_kept_ = true;
}

void Starting::Open(const proto::View& view, const Registry& registry, Outcomes* out) {
  state_ = State::kOpening;
  call_.Ask(registry.Shards());
  registry.SendViewToShards(view, out);
}

bool Starting::OnOpened(const ShardId& shard, const Placement& placement, const Registry& registry,
                        Outcomes* out) {
  if (state_ != State::kOpening || !call_.OnAnswer(shard) || !call_.complete()) return false;
  if (!restores()) {
    state_ = State::kDone;
    return true;
  }
  state_ = State::kRestoring;
  call_.Ask(registry.Shards());
  Restore(placement, registry, out);
  return false;
}

bool Starting::OnRestored(const ShardId& shard, const proto::ShardRestored& restored,
                          Outcomes* out) {
  if (restored.unseen()) {
    if (state_ == State::kRestoring && readers_.OnAnswer(shard)) {
      out->push_back(coordinator::Log{absl::StrFormat(
          "shard %d does not see the checkpoint: it is sent its part", shard.number)});
      out->push_back(coordinator::Restore{{shard.number}, slots()});
    }
    return false;
  }
  if (state_ != State::kRestoring || !call_.OnAnswer(shard) || !call_.complete()) return false;
  state_ = State::kDone;
  return true;
}

std::optional<ShardId> Starting::LateReader(absl::Time now) {
  if (state_ != State::kRestoring) return std::nullopt;
  waited_ += std::clamp(now - last_tick_, absl::ZeroDuration(), kMostOfATick);
  last_tick_ = now;
  if (waited_ <= patience_) return std::nullopt;
  for (const ShardId& shard : readers_.missing()) {
    if (call_.missing().count(shard) > 0) return shard;
  }
  return std::nullopt;
}

void Starting::Restore(const Placement& placement, const Registry& registry, Outcomes* out) {
  std::map<int64_t, const proto::BlockState*> states;
  int64_t most = 0;  // values that a shard gets
  if (resume_.has_value()) {
    for (const proto::BlockState& block : resume_->blocks()) states[block.block()] = &block;
  }
  for (const auto& [id, peer] : registry.peers()) {
    if (peer.is_worker) continue;
    proto::CoordinatorMessage message;
    proto::Restore* restore = message.mutable_restore();
    if (resume_.has_value()) restore->set_slots(slots());
    if (!path_.empty()) {
      restore->set_path(path_);
      restore->set_digest(resume_->digest());
    }
    const Range blocks = placement.Blocks(peer.shard.number);
    most = std::max(most, blocks.size() * placement.space().block_values() *
                              (1 + static_cast<int64_t>(restore->slots())));
    for (int64_t block = blocks.begin; block < blocks.end; ++block) {
      proto::BlockState* state = restore->add_blocks();
      if (resume_.has_value() && resume_->mode() == proto::Manifest::MODE_SYNC) {
        // All blocks are at one version, so they may be cut anew: each has the account of the one
        // that held its first value. Units count from here.
        const int64_t held = std::max<int64_t>(1, resume_->block_values());
        const auto before = states.find(block * ValuesPerBlock(job_) / held);
        *state = before == states.end() ? resume_->blocks(0) : *before->second;
        state->set_units_below(resume_->step());
      } else if (resume_.has_value() && states.count(block) != 0) {
        *state = *states[block];
      }
      state->set_block(block);
      state->clear_checksums();
    }
    out->push_back(Send{id, std::move(message)});
  }
  if (!path_.empty()) {  // each reads its own
    readers_.Ask(registry.Shards());
    patience_ = kReadSilence +
                absl::Seconds(std::ceil(static_cast<double>(most * sizeof(float)) / kSlowDisk));
    return;
  }
  coordinator::Restore all;
  for (const ShardId& shard : registry.Shards()) all.shards.push_back(shard.number);
  all.slots = slots();
  out->push_back(std::move(all));
}

}  // namespace rubato
