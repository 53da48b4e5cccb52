// The search for each mode's learning rate: trials of every rate with seeds of their own, before
// the runs that are judged. A core, as study.h.
#ifndef RUBATO_TOOLS_BENCH_CONVERGENCE_LEARNING_RATES_H_
#define RUBATO_TOOLS_BENCH_CONVERGENCE_LEARNING_RATES_H_

#include <string>
#include <vector>

#include "absl/types/span.h"
#include "tools/bench/convergence/cell_result.h"
#include "tools/bench/convergence/study.h"

namespace rubato {

// What came of the trials of one rate, in one mode on one cluster.
struct RateTrials {
  int runs = 0;
  int misses = 0;      // runs that failed among them
  double seconds = 0;  // geometric mean, to the target or, of a miss, to the run's end
  double best = 0;     // mean of the metric's best
  int diverged = 0;    // or failed: they are misses, and have no part in `best`
};

// The chosen rate: the fastest among those with the fewest misses; if none reaches the target, the
// one that diverges least often and comes nearest. The first of equals.
size_t BestRate(absl::Span<const RateTrials> rates, const Target& target);

// A study's trials, by workers, speeds and mode, and the rates that are taken.
struct RateSearch {
  struct OfMode {
    size_t mode = 0;
    int workers = 0;
    size_t speeds = 0;
    std::vector<RateTrials> rates;  // as Study::learning_rates
    size_t taken = 0;
  };
  std::vector<OfMode> modes;
};
RateSearch SearchRates(const Study& study, const std::vector<DoneCell>& cells);

LearningRates TakenRates(const Study& study, const RateSearch& search);

// Markdown: a table of the trials, and what to try if the rate taken is the first or last one.
std::string RatesMarkdown(const Study& study, const RateSearch& search);

}  // namespace rubato

#endif  // RUBATO_TOOLS_BENCH_CONVERGENCE_LEARNING_RATES_H_
