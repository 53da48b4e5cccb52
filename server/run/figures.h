// The figures of a run under way. Each figure is declared once, in figures.cc. From there it
// appears in metrics.jsonl, in TensorBoard's file, on the pages of `rubato plot`, in the progress
// that `rubato train` shows, and in the table of docs/runs.md.
#ifndef RUBATO_SERVER_RUN_FIGURES_H_
#define RUBATO_SERVER_RUN_FIGURES_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace rubato {

// How far communication hides behind computation, as workers tell it: see proto::Progress.
struct Overlap {
  double waiting_seconds = 0;        // sum over workers
  double communicating_seconds = 0;  // likewise
  int64_t told = 0;

  // The share of the communication during which the worker had other work to do.
  std::optional<double> hidden() const {
    if (communicating_seconds <= 0) return std::nullopt;
    return 1 - waiting_seconds / communicating_seconds;
  }
  // The mean time that a worker waits for the parameters of one computation.
  double mean_waiting_seconds() const { return told == 0 ? 0 : waiting_seconds / told; }
};

struct MetricsLine {
  enum class Kind {
    kTrain,  // means over the training samples since the last line
    kEval,   // of `split`, beside the training and at its end
    kTest,   // of the final parameters on the test split
  };
  Kind kind = Kind::kTrain;
  int64_t unit = 0;                      // done; of a test, that the parameters hold
  int64_t due = 0;                       // of a test: the unit of work at which it was due
  absl::string_view split;               // of kEval: "validation", "test"
  int64_t step = 0;                      // done; on arrival, samples / batch_size
  double epoch = 0;                      // samples done / samples of an epoch
  int64_t samples = 0;                   // done since the start of training
  double time = 0;                       // seconds since the start of training
  double loss = 0;                       // a sample
  std::optional<double> accuracy;        // share of correct predictions among those judged, if any
  std::map<std::string, double> others;  // that a script's test has found, by their free names
  // Of training lines only:
  std::string mode;               // in which all its updates were made: "bounded, staleness 3"
  double learning_rate = 0;       // of the last update
  double samples_per_second = 0;  // since the last line that is 0.1 s or more before
  double staleness = 0;           // mean over updates and blocks
  int64_t pushed_bytes = 0;       // of workers' payloads, since the last line
  int64_t pulled_bytes = 0;
  Overlap overlap;  // since the last line
};

// What a line's figures are called together: "train", "eval", "test".
absl::string_view KindName(const MetricsLine& line);

enum class Unit { kNone, kCount, kSeconds, kBytes, kShare, kSamplesPerSecond };

// "", "count", "s", "bytes", "share", "samples/s".
absl::string_view UnitName(Unit unit);

struct Figure {
  using Value = std::variant<int64_t, double>;
  enum class Use {
    kAxis,    // tells where in the run a line is
    kCurve,   // drawn by TensorBoard and `rubato plot`
    kRecord,  // in metrics.jsonl alone
  };

  absl::string_view name;  // the key in metrics.jsonl; TensorBoard's tag behind "train/"
  absl::string_view title;
  Unit unit;
  Use use;
  bool of_tests;  // in lines of evaluations and tests, too
  bool logged;    // in the lines that `rubato train` logs
  // Its place in the live line: the lowest is left out first where there is no room. 0: none.
  int live;
  absl::string_view help;
  // Nothing if the line does not tell it.
  std::optional<Value> (*value)(const MetricsLine& line);
};

// All of them, in the order of metrics.jsonl.
absl::Span<const Figure> Figures();

// As many as a script's test may have beside loss and accuracy (python/rubato/figures.py).
constexpr size_t kMostOthers = 32;
// Whether a script's figure may have the name: 1 to 64 letters, digits and underscores, which no
// other field of a line of metrics.jsonl has.
bool IsFreeName(absl::string_view name);
// A script's, a curve, of a name that must outlive it.
Figure OtherFigure(absl::string_view name);

// The name of the figure in a metric of tests, "f1" in "eval/f1"; empty where it is none: neither
// loss, accuracy nor a free name.
absl::string_view FigureOf(absl::string_view metric);
// What the line tells of a metric of train.stop_when or checkpoint.keep_best, such as "eval/f1";
// nothing where it does not, or tells of a loss that is no number.
std::optional<double> MetricOf(const MetricsLine& line, absl::string_view metric);
// The names of the numbers that such a line tells, as "eval/loss, eval/f1".
std::string MetricsIn(const MetricsLine& line);

// Those that the line tells, and behind them its others, as curves.
void ForEachFigure(const MetricsLine& line,
                   absl::FunctionRef<void(const Figure& figure, Figure::Value value)> visit);

}  // namespace rubato

#endif  // RUBATO_SERVER_RUN_FIGURES_H_
