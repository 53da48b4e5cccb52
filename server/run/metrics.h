// Turns what workers report into lines of metrics.jsonl. Part of the coordinator's core: no I/O,
// time comes in.
#ifndef RUBATO_SERVER_RUN_METRICS_H_
#define RUBATO_SERVER_RUN_METRICS_H_

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/consistency/policy.h"
#include "common/space/learning_rate.h"
#include "common/space/sample_schedule.h"
#include "proto/cluster.pb.h"
#include "proto/job.pb.h"
#include "server/run/figures.h"
#include "server/run/work_counts.h"

namespace rubato {

// What a worker's time went into. Seconds.
struct WorkerTime {
  double computing = 0;
  double sending = 0;  // its machine's card; of simulations
  double waiting = 0;  // the rest
};

// Figures of a whole run.
struct Summary {
  int64_t steps = 0;
  int64_t samples = 0;
  double seconds = 0;
  double samples_per_second = 0;
  std::optional<double> test_loss, test_accuracy;  // as far as something was tested
  std::map<std::string, double> test_others;       // as MetricsLine::others
  // The last of evaluation.split, where that is another.
  std::optional<double> validation_loss, validation_accuracy;
  std::string stopped;     // why it ended before train.until, if it did
  std::string diverged;    // which loss or gradient was not finite, if the job ended by that
  int64_t skipped = 0;     // steps or contributions left out because they were not finite
  int64_t duplicates = 0;  // contributions refused as already counted, over all shards
  std::vector<proto::ShardReport::Block> blocks;  // in order
  // Updates on arrival of all blocks, by staleness, as ShardReport counts them.
  std::vector<int64_t> staleness_counts;
  WorkCounts work;                  // contributions on arrival
  int64_t views = 0;                // installed
  int64_t switches = 0;             // of mode
  int64_t workers_lost = 0;         // died, failed or were taken for dead
  int64_t workers_left = 0;         // in order
  int64_t servers_lost = 0;         // so often the job went back
  int64_t samples_rolled_back = 0;  // trained in vain, in all
  // Of workers who went, or had been there at the checkpoint that the job goes on from; of jobs
  // that push topk.
  std::optional<int64_t> residuals_lost;
  int64_t pushed_bytes = 0, pulled_bytes = 0;  // of workers' payloads
  Overlap overlap;
  std::vector<WorkerTime> workers;  // by rank
};

class Metrics {
 public:
  // The training counts from `start` on.
  Metrics(const proto::Job& job, int64_t samples_per_epoch, absl::Time start, absl::Time now);

  // From now on `schedule` divides the job's samples into units of `mode`, whose policy is
  // `policy`; `units` of them, with `samples` samples, are done, and before its origin lie
  // `origin_steps` steps. Call it before the first progress, and at each change of mode, when no
  // work is in progress. Appends the line of what was counted before, as no line is of two modes.
  void Begin(std::shared_ptr<const Policy> policy, const proto::Mode& mode,
             const SampleSchedule& schedule, int64_t units, int64_t samples, int64_t origin_steps,
             std::vector<MetricsLine>* lines);

  // A part of a unit has been computed. Appends the lines that are complete now: in sync in the
  // order of steps, with sums in the order of micro-batches, so that they do not depend on who
  // computed what.
  // It has been checked (server/coordinator/peer_checks.h). `at`: when it was computed; at the
  // earliest when the last line was.
  void OnProgress(const proto::Progress& progress, absl::Time at, std::vector<MetricsLine>* lines);

  // The worker of this rank has computed for so long.
  void OnComputed(int rank, double seconds);

  // All units below `units` are done, and no more reports on them will come, because some workers
  // were lost before they reported. Their samples count; lines give the loss of the other samples.
  void CatchUp(int64_t units, absl::Time now, std::vector<MetricsLine>* lines);

  // The line of a test at about `unit` units.
  MetricsLine OnEvaluation(const proto::EvaluationResult& evaluation, absl::Time now);

  // What has been counted since the last line, if anything.
  void CloseWindow(absl::Time now, std::vector<MetricsLine>* lines);

  int64_t units() const { return units_; }
  // Sync: steps of which some parts have been told.
  size_t open() const { return open_.size(); }
  // In sync one a unit; on arrival as many as global batches go into the samples.
  int64_t steps() const { return StepsAt(units_, samples_); }
  // Sync: the micro-batches of the first unfinished step that nobody has computed yet.
  std::vector<int64_t> MissingLeaves() const;
  int64_t samples() const { return samples_; }
  int64_t new_samples() const { return samples_ - samples_before_; }  // by this process
  // When a unit was last done, or this process began.
  double last_seconds() const { return last_seconds_; }
  const Overlap& overlap() const { return overlap_; }
  // By rank; none where nobody has told.
  std::vector<WorkerTime> WorkerTimes(absl::Time now) const;
  double Seconds(absl::Time now) const { return absl::ToDoubleSeconds(now - start_); }

 private:
  struct Leaf {
    bool done = false;  // and told of
    double loss_sum = 0;
    std::optional<double> correct;
    double judged = 0;
    int64_t samples = 0;
    double told = 0;  // samples whose loss is known, once it is done
  };

  int64_t StepsAt(int64_t units, int64_t samples) const {
    const int64_t origin = schedule_->origin_unit();
    return origin_steps_ +
           (sync_ ? units - origin : (samples - schedule_->SamplesBefore(origin)) / batch_size_);
  }
  // Steps of which parts are kept: some 64 MB of them.
  size_t MaxOpen() const {
    return static_cast<size_t>(std::max<int64_t>(16, (1 << 20) / schedule_->leaves()));
  }
  struct Unit {
    std::vector<Leaf> leaves;
    int64_t missing = 0;
    absl::Time at = absl::InfinitePast();  // of the part that was computed last
  };

  void CountUnit(const std::vector<Leaf>& leaves, double staleness, absl::Time at,
                 std::vector<MetricsLine>* lines);
  // After the last unit, before which `samples_before` samples were done.
  bool IsLineDue(int64_t samples_before) const;
  // Of what has been counted since the last line, if anything, at last_.
  void AddLine(std::vector<MetricsLine>* lines);
  // Samples a second until computed_, since the last line that is long enough before, or the
  // beginning. Once a line.
  double Speed();

  std::shared_ptr<const Policy> policy_;
  std::string mode_;
  bool sync_ = true;  // a unit is a step, of which several workers tell
  std::optional<SampleSchedule> schedule_;
  bool has_begun_ = false;
  int64_t origin_steps_ = 0;  // before this schedule's origin
  const int64_t samples_per_epoch_;
  const int64_t batch_size_;
  const absl::string_view evaluated_split_;
  const int64_t every_steps_;  // where metrics.every counts them; else 0
  const int64_t every_samples_;
  const LearningRate learning_rate_;
  const absl::Time start_;
  const absl::Time begun_;  // by this process
  absl::Time last_;         // of a unit, or a line: time does not go back
  absl::Time computed_;     // of a unit; a test may be told before units that were done earlier

  // Of the whole run.
  int64_t samples_before_ = 0;
  double last_seconds_;
  int64_t units_ = 0;
  int64_t samples_ = 0;
  std::map<int64_t, Unit> open_;  // sync: steps of which parts are missing
  Overlap overlap_;
  std::vector<double> computing_seconds_;  // by rank

  // Since the last line.
  absl::Time window_start_;
  int64_t window_units_ = 0;
  double window_loss_ = 0;
  double window_correct_ = 0;
  double window_judged_ = 0;
  double window_told_ = 0;  // samples whose loss is known
  double window_staleness_ = 0;
  int64_t window_pushed_ = 0, window_pulled_ = 0;  // bytes
  Overlap window_overlap_;
  double last_rate_ = 0;  // of the last unit

  // Where lines were: what their speeds are measured from.
  struct Mark {
    absl::Time time;
    int64_t samples = 0;  // told, as told_samples_
  };
  std::deque<Mark> marks_;
  int64_t told_samples_ = 0;  // by this process
};

}  // namespace rubato

#endif  // RUBATO_SERVER_RUN_METRICS_H_
