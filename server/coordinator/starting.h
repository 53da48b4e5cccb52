// Part of the coordinator's core: the beginning of a job. Its processes gather; then all shards
// open the first view and, if the job goes on from a checkpoint or from given parameters, get
// these.
#ifndef RUBATO_SERVER_COORDINATOR_STARTING_H_
#define RUBATO_SERVER_COORDINATOR_STARTING_H_

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/space/placement.h"
#include "proto/checkpoint.pb.h"
#include "proto/cluster.pb.h"
#include "proto/job.pb.h"
#include "proto/run_state.pb.h"
#include "proto/view.pb.h"
#include "server/coordinator/coordinator_outcome.h"
#include "server/coordinator/registry.h"
#include "server/coordinator/roll_call.h"

namespace rubato {

class Starting {
 public:
  // kDone: the training has begun.
  enum class State { kGathering, kOpening, kRestoring, kDone };

  // See Coordinator; `before` is of the terms before.
  Starting(const proto::Job& job, std::optional<proto::Manifest> resume, std::string path,
           bool initial, const proto::RunState& before, absl::Time now);

  // Whether the first view can be opened: all are here, or, once the deadline has passed, enough.
  // DeadlineExceeded, naming the missing processes, if there are too few; FailedPrecondition if
  // nobody came but who was refused for a reason that remains. After a rollback, "all" means all
  // shards and as many workers as the last view had. These workers have cluster.lease to register
  // once all shards are here. With fewer workers than the minimum the job pauses, unless it is to
  // stop.
  absl::StatusOr<bool> IsReady(const Registry& registry, bool stops, absl::Time now,
                               coordinator::Outcomes* out);
  // A process registered that will be refused every time; `what` is a sentence about it.
  void OnRefused(const std::string& what) { refused_ = what; }
  // So many workers are waited for.
  int wanted() const { return wanted_; }
  // FailedPrecondition if the worker's data, or its parameters that are not trained, differ from
  // those of the checkpoint that the job resumes from, or its data from those of an earlier term.
  // These are known before the first worker registers.
  absl::Status CheckData(const proto::WorkerRegistration& worker) const;
  // FailedPrecondition if the job cannot go on from the checkpoint with such workers.
  absl::Status CheckResume(const proto::WorkerRegistration& worker) const;
  // Of a checkpoint of another optimizer only the parameters are taken. `job` has the optimizer,
  // of which nothing was known before if it is a script's.
  absl::Status MatchOptimizer(const proto::Job& job, coordinator::Outcomes* out);

  // The job continues with values that the shards have kept instead. `kept` is the manifest that a
  // checkpoint of them would have. On arrival it goes on behind what had been given out at the last
  // checkpoint, though no block may hold all of that: a later checkpoint has no smaller number.
  void GoOnWith(proto::Manifest kept);
  bool is_kept() const { return is_kept_; }
  // The shell has got the values that the job begins with.
  void OnInitialValues() { initial_ = true; }
  // Whether the job begins with values that are neither a checkpoint's nor the shell's.
  bool lacks_values() const { return !initial_ && !resume_.has_value(); }

  // Sends the first view to the shards. The next functions return whether the answer was the last
  // one that the start of the training waits for.
  void Open(const proto::View& view, const Registry& registry, coordinator::Outcomes* out);
  bool OnOpened(const ShardId& shard, const Placement& placement, const Registry& registry,
                coordinator::Outcomes* out);
  // A shard has its floats, or does not see the checkpoint: then they are sent.
  bool OnRestored(const ShardId& shard, const proto::ShardRestored& restored,
                  coordinator::Outcomes* out);

  // How long a shard may take to read its floats itself, since it sends nothing meanwhile: the time
  // of a slow disk, plus two minutes.
  absl::Duration patience() const { return patience_; }
  // Call it at each tick. A shard that has taken longer, if there is one. A pause of the
  // coordinator counts as one second.
  std::optional<ShardId> LateReader(absl::Time now);

  State state() const { return state_; }
  // Whether the shards get values to begin with.
  bool restores() const { return !is_kept_ && (initial_ || resume_.has_value()); }
  const std::optional<proto::Manifest>& resume() const { return resume_; }

 private:
  void Restore(const Placement& placement, const Registry& registry, coordinator::Outcomes* out);
  int slots() const { return resume_.has_value() ? resume_->slots_size() : 0; }

  const proto::Job job_;
  std::string refused_;  // the last that was; empty: nobody
  std::optional<proto::Manifest> resume_;
  bool is_kept_ = false;    // by the shards
  const std::string path_;  // that shards may read; empty: none
  bool initial_;
  const bool goes_on_;          // it is not the first term
  const std::string begun_on_;  // digest of the data; empty: not known
  const int wanted_;            // workers
  const absl::Time deadline_;   // for gathering
  absl::Time workers_deadline_ = absl::InfiniteFuture();
  bool is_short_ = false;  // it begins with fewer, and has said so
  State state_ = State::kGathering;
  RollCall call_;
  RollCall readers_;  // shards that read their floats themselves
  absl::Duration patience_ = absl::InfiniteDuration();
  absl::Duration waited_;                          // for readers
  absl::Time last_tick_ = absl::InfiniteFuture();  // that counts for that
};

}  // namespace rubato

#endif  // RUBATO_SERVER_COORDINATOR_STARTING_H_
