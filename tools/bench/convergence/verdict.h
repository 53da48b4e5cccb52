// Which mode reaches a target first: modes' runs beside the baseline's, seed by seed. A core: it
// knows nothing of files, processes or clocks.
#ifndef RUBATO_TOOLS_BENCH_CONVERGENCE_VERDICT_H_
#define RUBATO_TOOLS_BENCH_CONVERGENCE_VERDICT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"

namespace rubato {

// The outcome of one run. The runs of a mode are in the order of their seeds.
struct RunOutcome {
  // Training seconds and samples to the target; without it, to the run's end.
  double seconds = 0;
  double samples = 0;
  bool reached = false;
  std::optional<double> best;  // of the target's metric, in the whole run; none: never finite
  std::optional<double> last;  // the metric at the end; none if the run diverged
  bool at_first = false;       // reached by the first evaluation, so perhaps long before
};

// The metric that is judged, and where its target is.
struct Target {
  std::string metric;  // "accuracy", "loss" or another figure of a script's tests
  double value = 0;
  bool higher_is_better = true;
  // The job's model is a script's (IsScript), which decides when a run is evaluated, and on what;
  // the test at its end is one of its evaluations.
  bool is_script = false;

  bool IsReachedBy(double metric_value) const {
    return higher_is_better ? metric_value >= value : metric_value <= value;
  }
};

// A comparison of means by paired differences.
enum class Finding { kMore, kLess, kCannotTell };

struct ModeVerdict {
  enum class Speed {
    kBaseline,
    kTooFewSeeds,
    kNotReached,  // by a fifth of its runs and more
    kTooEasy,     // reached by the first evaluation in a fifth of its runs or the baseline's
    kBaselineNotReached,  // by a fifth of its runs, and the mode is not faster
    kFaster,
    kSlower,
    kCannotTell,
  };
  Speed speed = Speed::kCannotTell;
  int pairs = 0;
  int misses = 0;
  int at_first = 0;  // runs that reached the target by their first evaluation
  // Of the target's metric: the best that a run came to which misses it, and which has a metric at
  // its end.
  std::optional<double> nearest_miss;
  double p = 1;      // of the times
  double level = 0;  // at which it was judged
  // The baseline's time divided by the mode's: above 1 the mode is faster. Its geometric mean over
  // the seeds, and its interval at confidence 1 - level.
  double speedup_mean = 1;
  std::pair<double, double> speedup = {1, 1};
  // Of the metric at the end, higher meaning better.
  Finding quality = Finding::kCannotTell;
  double quality_mean = 0;
  std::pair<double, double> quality_difference = {0, 0};
  int diverged = 0;  // runs without a metric at the end, which that comparison leaves out
  // Seeds whose run needed suspiciously few samples: fewer than the mean of plain sync less three
  // standard deviations.
  std::vector<int> suspicious;
};

constexpr double kAlpha = 0.05;

// Judges each mode against modes[baseline], all with equally many runs, kMaxPairs at most. Times
// are compared by their logarithms. A miss counts with the time of its run's end, which can only
// weaken "slower"; one that diverged as no shorter than its partner. A mode with a miss is never
// faster; if the baseline has a miss, no mode is slower; if both miss, the difference is 0. `sync`
// is the mode that is plain sync, if there is one.
std::vector<ModeVerdict> Judge(const std::vector<std::vector<RunOutcome>>& modes, size_t baseline,
                               std::optional<size_t> sync, const Target& target);

// The seconds and samples at which a metric that was (seconds, samples, value) at each evaluation,
// in order, reaches the target: by a straight line between two evaluations, at the first one not
// before it. A run whose last value is not finite misses the target, whatever it came to before.
struct Evaluation {
  double seconds = 0;
  double samples = 0;
  double value = 0;
  double updates = 0;  // of a block; NaN if nobody has told
};
RunOutcome OutcomeOf(absl::Span<const Evaluation> evaluations, const Target& target);

}  // namespace rubato

#endif  // RUBATO_TOOLS_BENCH_CONVERGENCE_VERDICT_H_
