// Which checkpoints of a run are kept: the newest so many, the best, and the newest on the disk.
#ifndef RUBATO_SERVER_RUN_KEPT_CHECKPOINTS_H_
#define RUBATO_SERVER_RUN_KEPT_CHECKPOINTS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "proto/checkpoint.pb.h"
#include "proto/job.pb.h"

namespace rubato {

class KeptCheckpoints {
 public:
  struct Entry {
    std::string path;
    int64_t step = 0;  // its manifest's
    int64_t due = 0;   // the last unit up to that step after which there is an evaluation
    bool is_flushed = false;
    bool is_of_end = false;  // the parameters of that step may be evaluated, too

    // The evaluation that says most of it.
    int64_t awaited() const { return is_of_end ? step : due; }
  };
  // Of a checkpoint with that manifest, which is not flushed.
  static Entry EntryOf(const proto::Job& job, std::string path, const proto::Manifest& manifest);

  // Adds a checkpoint that is later than all others, or replaces the last one: on arrival the final
  // checkpoint may contain the same units as the one before.
  void Add(Entry entry);
  // keep_best's metric of parameters that have seen `step` units, NaN if it was not told. It may
  // come after the checkpoint of that step, which is written while they are evaluated.
  void OnEvaluation(int64_t step, double metric);

  // The job goes back to `step`: what was tested behind it is of training in vain.
  void GoBack(int64_t step);

  // That one is on the disk, and not in memory alone.
  void OnFlushed(const std::string& path);

  struct Best {
    std::string path;
    double metric;
  };
  // Of those that are kept, by what has been evaluated so far; nothing where that is no number.
  std::optional<Best> best(const proto::KeepBest& settings) const;

  // Forgets the checkpoints that `settings` does not keep, and returns their paths. Besides the
  // best one, it keeps those that a pending evaluation may find to be the best (kMostPending at
  // most: a script need not evaluate at all), and the newest one that is flushed, which may be all
  // that survives a loss of power. Evaluations run beside each other, and some never end: one is
  // pending until it is told, or kMostPending are that were due later.
  std::vector<std::string> Expire(const proto::Checkpoint& settings);

 private:
  // Evaluations that are remembered beside those that checkpoints need: the newest.
  static constexpr size_t kMostEvaluations = 1024;
  static constexpr size_t kMostPending = 16;  // more than tests are under way at once

  // Whether the evaluation that says most of it may still be told.
  bool IsPending(const Entry& entry) const;
  // Of those that are kept and of which `counts` is true.
  std::optional<Best> BestOf(const proto::KeepBest& settings,
                             absl::FunctionRef<bool(const Entry&)> counts) const;
  int64_t last_evaluated() const { return evaluated_.empty() ? 0 : evaluated_.rbegin()->first; }
  // Of the last evaluation up to that step, if any.
  std::optional<double> MetricAt(int64_t step) const;
  // Forgets older ones that no checkpoint needs.
  void ForgetEvaluations();

  std::vector<Entry> entries_;           // oldest first
  std::map<int64_t, double> evaluated_;  // by step
};

}  // namespace rubato

#endif  // RUBATO_SERVER_RUN_KEPT_CHECKPOINTS_H_
