// Part of the coordinator's core: when a checkpoint is taken, and what its manifest says. At most
// one is in progress: either of a step that is announced in advance (sync), or of the current state
// when a person, the clock or the end of the training requests one.
#ifndef RUBATO_SERVER_COORDINATOR_CHECKPOINTS_H_
#define RUBATO_SERVER_COORDINATOR_CHECKPOINTS_H_

#include <cstdint>
#include <optional>
#include <set>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/space/modes.h"
#include "proto/checkpoint.pb.h"
#include "proto/cluster.pb.h"
#include "proto/job.pb.h"
#include "proto/view.pb.h"
#include "server/coordinator/coordinator_outcome.h"
#include "server/coordinator/evaluations.h"
#include "server/coordinator/registry.h"
#include "server/coordinator/snapshots.h"
#include "server/coordinator/work.h"

namespace rubato {

class Checkpoints {
 public:
  // See Coordinator. `last` is the one that the job goes on from, `of_other` the one of another run
  // that this run began with; empty: none.
  Checkpoints(const proto::Job& job, std::string job_digest, std::string version, std::string last,
              std::string of_other);

  void BeginTraining(int64_t samples_per_epoch, const Work& work, absl::Time now);
  // The lineage has just begun.
  void BeginLineage(const Lineage& lineage);
  // Cancels the announced checkpoint: its step will not happen.
  void Forget() { snapshots_.Forget(); }

  // Requests a checkpoint: for a person, for the clock, or for a number of units done where none is
  // announced.
  void Want() { is_wanted_ = true; }
  void OnTick(absl::Time now);
  void OnProgress(const Work& work);
  // Whether one is wanted that can be taken now.
  bool is_due() const {
    return is_wanted_ &&
           (!snapshots_.under_way() || snapshots_.phase() == Snapshots::Phase::kAnnounced);
  }
  // Whether one that is wanted has still to be taken.
  bool is_wanted() const { return is_wanted_; }
  // Takes a checkpoint: of step `step`, if blocks advance in steps (no block may be beyond it),
  // else of the current state.
  void Take(int64_t step, const Registry& registry, coordinator::Outcomes* out);
  // If blocks advance together and no checkpoint is in progress, announces the next scheduled one
  // after step `after`.
  void Announce(int64_t after, const Work& work, const Registry& registry,
                coordinator::Outcomes* out);

  // Where shards that see the folder write their parts.
  void SetPartsFolder(const std::string& folder) { snapshots_.SetPartsFolder(folder); }
  // Handles a shard's answer. Returns whether all shards have copied their blocks; the manifest
  // describes the state at that moment.
  bool OnCopied(const ShardId& shard, const proto::SnapshotCopied& copied, const proto::View& view,
                const Work& work, const Evaluations& evaluations, const Registry& registry,
                absl::Time now);
  void OnPart(const ShardId& shard, const proto::PartWritten& part, absl::Time now) {
    snapshots_.OnPart(shard, part, now);
  }
  void OnPartsTick(absl::Time now, coordinator::Outcomes* out);
  // Has it written once all parts are accounted for.
  void WriteIfReady(coordinator::Outcomes* out);
  // Whether it will not be taken.
  bool OnMissed(const proto::SnapshotMissed& missed);
  // If blocks advance in steps: a block was at this version when it should have been copied before.
  int64_t missed() const { return missed_; }
  // It is written, or could not be: one warning until there is one again, and another if it
  // `is_last`, of the training's end.
  void OnWritten(const absl::StatusOr<std::string>& path, bool is_last, coordinator::Outcomes* out);
  // After that: has the shards let go of what they keep for it.
  void Release(const Registry& registry, coordinator::Outcomes* out) const;

  // Whether one of a step up to `until` is being copied.
  bool IsCopying(int64_t until) const { return snapshots_.copying() && snapshots_.step() <= until; }
  bool is_writing() const { return snapshots_.phase() == Snapshots::Phase::kWriting; }
  bool is_under_way() const { return snapshots_.under_way(); }
  int64_t step() const { return snapshots_.step(); }          // of the one taken last
  uint32_t last_snapshot() const { return snapshots_.id(); }  // that shards have been told of
  // The path of the last good one; empty: there is none.
  const std::string& last() const { return last_; }

 private:
  proto::Manifest ManifestOf(const proto::View& view, const Work& work,
                             const Evaluations& evaluations, const Registry& registry) const;

  const proto::Job job_;
  const std::string job_digest_;
  const std::string version_;
  std::optional<Recurrence> every_;  // steps or samples
  absl::Duration every_time_ = absl::InfiniteDuration();
  absl::Time last_time_;   // that every_time_ counts from
  int64_t next_unit_ = 0;  // where none is announced
  Snapshots snapshots_;
  std::optional<proto::Manifest> manifest_;  // of the one that waits for its parts
  std::string of_;                           // of which unit that is, for people
  std::set<int> told_unseen_;                // shards of which that was said
  bool is_wanted_ = false;                   // as soon as none is under way
  int64_t missed_ = 0;
  bool has_failed_ = false;  // the last one
  std::string last_;
  const std::string of_other_;
};

}  // namespace rubato

#endif  // RUBATO_SERVER_COORDINATOR_CHECKPOINTS_H_
