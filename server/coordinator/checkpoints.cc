#include "server/coordinator/checkpoints.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/space/modes.h"
#include "common/space/placement.h"

namespace rubato {

using coordinator::Log;
using coordinator::Outcomes;
using coordinator::Warn;
using coordinator::WriteCheckpoint;

Checkpoints::Checkpoints(const proto::Job& job, std::string job_digest, std::string version,
                         std::string last, std::string of_other)
    : job_(job),
      job_digest_(std::move(job_digest)),
      version_(std::move(version)),
      last_(std::move(last)),
      of_other_(std::move(of_other)) {}

void Checkpoints::BeginTraining(int64_t samples_per_epoch, const Work& work, absl::Time now) {
  const proto::Point& every = job_.checkpoint().every();
  if (every.has_time()) {
    every_time_ = absl::Seconds(every.time());
  } else if (job_.checkpoint().has_every()) {
    every_.emplace(every, job_, samples_per_epoch);
    next_unit_ = every_->Next(work.lineage().schedule(), work.lineage().mode(), work.done());
  }
  last_time_ = now;
}

void Checkpoints::BeginLineage(const Lineage& lineage) {
  Forget();
  if (every_.has_value()) {
    next_unit_ = every_->Next(lineage.schedule(), lineage.mode(), lineage.origin());
  }
}

void Checkpoints::OnTick(absl::Time now) {
  if (now - last_time_ < every_time_) return;
  last_time_ = now;
  Want();
}

void Checkpoints::OnProgress(const Work& work) {
  const int64_t units = work.metrics().units();
  if (work.policy().blocks_in_step() || !every_.has_value() || units < next_unit_) return;
  Want();
  next_unit_ = every_->Next(work.lineage().schedule(), work.lineage().mode(), units);
}

void Checkpoints::Take(int64_t step, const Registry& registry, Outcomes* out) {
  is_wanted_ = false;
  registry.SendToShards(snapshots_.Announce(step, Snapshots::Phase::kTaking, registry.Shards()),
                        out);
}

void Checkpoints::Announce(int64_t after, const Work& work, const Registry& registry,
                           Outcomes* out) {
  if (!work.policy().blocks_in_step() || !every_.has_value() || snapshots_.under_way()) return;
  const Lineage& lineage = work.lineage();
  const int64_t step = every_->Next(lineage.schedule(), lineage.mode(), after);
  // The end of the training has one of its own.
  if (step > lineage.until() || (step == lineage.until() && lineage.is_last())) return;
  registry.SendToShards(snapshots_.Announce(step, Snapshots::Phase::kAnnounced, registry.Shards()),
                        out);
}

bool Checkpoints::OnMissed(const proto::SnapshotMissed& missed) {
  const bool was_wanted = snapshots_.phase() == Snapshots::Phase::kTaking;
  if (!snapshots_.OnMissed(missed)) return false;
  is_wanted_ = is_wanted_ || was_wanted;
  missed_ = missed.version();
  return true;
}

bool Checkpoints::OnCopied(const ShardId& shard, const proto::SnapshotCopied& copied,
                           const proto::View& view, const Work& work,
                           const Evaluations& evaluations, const Registry& registry,
                           absl::Time now) {
  if (!snapshots_.OnCopied(shard, copied, now)) return false;
  manifest_ = ManifestOf(view, work, evaluations, registry);
  of_ = UnitText(view.mode(), manifest_->step());
  return true;
}

void Checkpoints::OnPartsTick(absl::Time now, Outcomes* out) {
  if (!snapshots_.GivesUpOnParts(now)) return;
  out->push_back(Warn{absl::StrFormat(
      "of the checkpoint of %s the parts of shards %s do not get on: they are read over the "
      "network",
      of_, absl::StrJoin(snapshots_.silent(), ", "))});
}

void Checkpoints::WriteIfReady(Outcomes* out) {
  if (!manifest_.has_value() || !snapshots_.has_parts()) return;
  WriteCheckpoint write{snapshots_.id(), *std::exchange(manifest_, std::nullopt),
                        snapshots_.unseen(), snapshots_.failure()};
  write.unseen.insert(write.unseen.end(), snapshots_.silent().begin(), snapshots_.silent().end());
  for (const auto& [index, block] : snapshots_.blocks()) *write.manifest.add_blocks() = block;
  if (snapshots_.has_parts_folder()) {
    for (const int shard : snapshots_.unseen()) {
      if (!told_unseen_.insert(shard).second) continue;
      out->push_back(Log{absl::StrFormat(
          "shard %d does not see the run's folder: its parts of checkpoints are read over the "
          "network",
          shard)});
    }
  }
  out->push_back(std::move(write));
}

proto::Manifest Checkpoints::ManifestOf(const proto::View& view, const Work& work,
                                        const Evaluations& evaluations,
                                        const Registry& registry) const {
  proto::Manifest manifest;
  manifest.set_version(version_);
  manifest.set_job_digest(job_digest_);
  manifest.set_seed(job_.seed());
  manifest.set_mode(ToManifest(view.mode()));
  manifest.set_data_digest(registry.model().data_digest());
  int64_t samples = 0;
  for (const auto& [index, block] : snapshots_.blocks()) {
    samples = std::max(samples, block.samples());
  }
  manifest.set_step(work.policy().blocks_in_step() ? snapshots_.step() : work.ledger().next());
  manifest.set_samples(samples);
  if (manifest.step() >= work.lineage().until()) manifest.set_ends_mode(true);
  manifest.set_samples_per_epoch(view.samples_per_epoch());
  manifest.set_epoch(static_cast<double>(samples) / view.samples_per_epoch());
  manifest.set_origin_unit(view.origin_unit());
  manifest.set_origin_samples(view.origin_samples());
  manifest.set_origin_steps(view.origin_steps());
  manifest.set_unit_samples(job_.train().batch_size() / job_.train().micro_batches() *
                            view.leaves());
  manifest.set_block_values(ValuesPerBlock(job_));
  manifest.set_seconds(work.metrics().last_seconds());
  if (job_.wire().push().codec() == proto::Push::CODEC_TOPK) {
    manifest.set_residuals(registry.workers());
  }
  if (const std::optional<MetricsLine>& last = evaluations.last()) {
    // A test of nothing has none: 0 / 0, whose bits JSON does not keep.
    if (std::isfinite(last->loss)) manifest.set_eval_loss(last->loss);
    if (last->accuracy.has_value()) manifest.set_eval_accuracy(*last->accuracy);
    manifest.set_eval_samples(last->samples);
  }
  *manifest.mutable_layout() = view.layout();
  for (const proto::Shard& shard : view.shards()) {
    proto::Manifest::Part* part = manifest.add_parts();
    part->set_begin(shard.first_block());
    part->set_end(shard.end_block());
  }
  return manifest;
}

void Checkpoints::OnWritten(const absl::StatusOr<std::string>& path, bool is_last, Outcomes* out) {
  if (path.ok()) {
    last_ = *path;
    out->push_back(Log{absl::StrCat("checkpoint ", *path)});
  } else if (is_last || !has_failed_) {
    std::string text = absl::StrCat("no checkpoint of ", is_last ? "the end, " : "", of_, ": ",
                                    path.status().message(), is_last ? "" : "; training goes on");
    const bool is_gone = absl::IsNotFound(path.status());  // the run's own may be, with its folder
    const std::string& good = is_gone ? of_other_ : last_;
    if (!is_gone || !good.empty()) {
      absl::StrAppend(&text, is_last ? "; --resume goes on from " : ", the last good one is ",
                      !good.empty() ? good
                      : is_last     ? "the beginning"
                                    : "none");
    }
    out->push_back(Warn{std::move(text)});
  }
  has_failed_ = !path.ok();
  snapshots_.Clear();
}

void Checkpoints::Release(const Registry& registry, Outcomes* out) const {
  proto::CoordinatorMessage message;
  message.mutable_release_snapshot()->set_id(snapshots_.id());
  registry.SendToShards(message, out);
}

}  // namespace rubato
