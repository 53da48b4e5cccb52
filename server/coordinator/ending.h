// Part of the coordinator's core: how the job comes to its end. After the training these follow one
// after the other: a last checkpoint, the tests in progress, the final test, the shards' reports,
// and the writing of the result. During the final test all other workers of a script pull the final
// parameters, so that the script's model has them when the job is over.
#ifndef RUBATO_SERVER_COORDINATOR_ENDING_H_
#define RUBATO_SERVER_COORDINATOR_ENDING_H_

#include <cstdint>
#include <set>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "proto/cluster.pb.h"
#include "proto/job.pb.h"
#include "server/coordinator/coordinator_outcome.h"
#include "server/coordinator/evaluations.h"
#include "server/coordinator/registry.h"
#include "server/coordinator/roll_call.h"
#include "server/run/metrics.h"

namespace rubato {

class Ending {
 public:
  // kTraining: it is not over.
  enum class State { kTraining, kSaving, kTesting, kReporting, kCollecting };

  explicit Ending(const proto::Job& job) : job_(job) {}

  // Stops the job cleanly. If `end` is an error, the job ends with it and without a final test.
  void Stop(const absl::Status& end);
  bool stopping() const { return stopping_; }
  const absl::Status& stop_end() const { return stop_end_; }

  // A loss or gradient is not finite: `peer` found it. False if the job has diverged before.
  bool Diverge(PeerId peer, const std::string& reason);
  // Why, once the job has diverged; else empty.
  const std::string& diverged() const { return diverged_; }
  PeerId culprit() const { return culprit_; }

  // Nobody has begun anything: the result is a summary of nothing.
  void EndUnbegun(coordinator::Outcomes* out);
  // Training is over after unit `unit`, which is the version of all blocks if they go in step.
  void Begin(int64_t unit, bool blocks_in_step);
  // Whether a last checkpoint is to be taken; says so once. has_checkpoint(): it has said so.
  bool has_checkpoint() const { return has_checkpoint_; }
  bool WantsCheckpoint() { return !std::exchange(has_checkpoint_, true); }
  int64_t unit() const { return unit_; }

  // Waits for the tests in progress, whose results would otherwise be lost or out of order, and
  // then requests the final test.
  void Test(Evaluations* evaluations, Registry* registry, absl::Time now,
            coordinator::Outcomes* out);
  // Who tests, in state kTesting, what, and who has not answered yet.
  PeerId tester() const { return tester_; }
  absl::string_view test() const {
    return is_final_ ? "the final test" : "a test of earlier parameters";
  }
  bool is_final() const { return is_final_; }
  const std::set<PeerId>& awaited() const { return awaited_; }
  bool Awaits(PeerId id) const { return awaited_.count(id) > 0; }
  // One that only pulls the final parameters has them.
  void OnAnswered(PeerId worker, const Registry& registry, coordinator::Outcomes* out);
  // An awaited worker is gone and is no longer a peer.
  void OnLost(PeerId worker, Evaluations* evaluations, Registry* registry, absl::Time now,
              coordinator::Outcomes* out);
  // The result of the final test.
  void OnFinalTest(const proto::EvaluationResult& evaluation, const MetricsLine& line,
                   const Evaluations& evaluations, const Registry& registry, Summary* summary,
                   coordinator::Outcomes* out);
  void OnReport(const ShardId& shard, const proto::ShardReport& report, Summary* summary,
                coordinator::Outcomes* out);

  State state() const { return state_; }

 private:
  void AskForReports(const Registry& registry, coordinator::Outcomes* out);

  const proto::Job job_;
  State state_ = State::kTraining;
  bool stopping_ = false;
  absl::Status stop_end_;  // what the job ends with
  std::string diverged_;
  PeerId culprit_ = kOwnShard;
  int64_t unit_ = 0;
  int64_t version_ = 0;  // of all blocks; 0: whatever is there
  bool has_checkpoint_ = false;
  bool is_final_ = false;  // the final test has been asked for
  PeerId tester_ = 0;
  std::set<PeerId> awaited_;
  RollCall reports_;
};

}  // namespace rubato

#endif  // RUBATO_SERVER_COORDINATOR_ENDING_H_
