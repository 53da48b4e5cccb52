// What a study of convergence compares: its modes and its cells, each of which is one command.
// A core: it starts nothing and writes nothing.
#ifndef RUBATO_TOOLS_BENCH_CONVERGENCE_STUDY_H_
#define RUBATO_TOOLS_BENCH_CONVERGENCE_STUDY_H_

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/job.pb.h"
#include "tools/bench/convergence/verdict.h"

namespace rubato {

constexpr int64_t kEvaluations = 40;

// As typed, but for what is filled in.
struct Study {
  std::string config;
  std::vector<std::string> set;
  std::vector<std::string> modes;           // "sync", "bounded,staleness=3", "sync@12%+async"
  std::string baseline;                     // one of them
  int64_t micro_batches = 0;                // of the job's steps; 0: not known
  std::vector<int> workers;                 // empty: the job's
  std::vector<std::string> learning_rates;  // to choose from for each mode; empty: the job's
  int seeds = 10;
  Target target;
  int64_t evaluations = kEvaluations;  // of a run
  // Runs are real processes of this machine, whose computations are delayed by `compute` for each
  // micro-batch, if that is given. Else they are simulated.
  bool processes = false;
  // Of `rubato simulate`, passed on as they are. Modes are compared at each of `speeds`; empty: at
  // those of workers that are alike.
  std::vector<std::string> speeds;
  std::string latency, bandwidth;
  std::string apply;    // likewise; empty: not known yet
  std::string compute;  // likewise, times each of `compute_scales`; empty: not known yet
  // Other properties that the bits depend on, as a worker of the job reports them on this machine.
  std::string numerics;
  // The verdict is that of the first, which is 1, and repeated at the others.
  std::vector<double> compute_scales = {1, 0.5, 2};
};

// One run of a study.
struct Cell {
  size_t mode = 0;  // of Study::modes
  int workers = 0;
  size_t speeds = 0;  // of Study::speeds
  int seed = 0;
  size_t scale = 0;                    // of Study::compute_scales
  std::string learning_rate;           // empty: the job's
  bool is_trial = false;               // of a learning rate, before the runs that are judged
  std::string name;                    // of its folder: "sync-w4-s3"
  std::vector<std::string> arguments;  // of `rubato`, without --run-dir
};

// The numbers of workers that it compares at; `job` is the study's.
std::vector<int> WorkersOf(const Study& study, const proto::Job& job);

// What a comparison of `workers` says of those that have nothing to compute in sync: "" if there
// are none. Asynchronous modes let all compute, so that their lead is not that of the mode alone.
std::string IdleInSync(const Study& study, int workers);

// "eval/accuracy=0.88" or "eval/loss=0.3"; or of any figure, and with its direction,
// "eval/f1,at_least=0.9" or "eval/error,at_most=0.1".
absl::StatusOr<Target> ParseTarget(absl::string_view text);
// The text of it, without a direction that goes without saying.
std::string TargetFlag(const Target& target);

// Where modes are compared: "8 workers", and "8 workers at speeds exponential" if there are
// several.
std::string ClusterText(const Study& study, int workers, size_t speeds);
// The same for a column of workers: "8", "8, exponential".
std::string ClusterColumn(const Study& study, int workers, size_t speeds);

// By workers, speeds and mode.
using LearningRates = std::map<std::tuple<int, size_t, size_t>, std::string>;

// Of each learning rate, with seeds that no run has that is judged.
constexpr int kTrialSeeds = 3;

// The cells that are judged, by workers, speeds, scale, mode and seed. Checks the study and each
// mode's job, without its data: InvalidArgument for what is wrong of it, and all that LoadJob says.
absl::StatusOr<std::vector<Cell>> CellsOf(const Study& study, const LearningRates& rates = {});

// The cells of the search for learning rates, by workers, speeds, mode, rate and seed; none if
// there is nothing to search for.
absl::StatusOr<std::vector<Cell>> TrialsOf(const Study& study);

// What identifies the study: all that decides its results, as JSON, with digests of the job and of
// traces; not where the job's file lies. Two with the same text have the same results.
absl::StatusOr<std::string> StudyJson(const Study& study);

}  // namespace rubato

#endif  // RUBATO_TOOLS_BENCH_CONVERGENCE_STUDY_H_
