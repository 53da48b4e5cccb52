#include "server/run/figures.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"

namespace rubato {
namespace {

using Line = MetricsLine;
using Value = std::optional<Figure::Value>;
using Use = Figure::Use;

constexpr bool kOfTests = true, kOfTrainingOnly = false;
constexpr absl::string_view kOfEvaluation = "eval/";

constexpr bool kLogged = true, kNotLogged = false;

constexpr Figure kFigures[] = {
    {"step", "Step", Unit::kCount, Use::kAxis, kOfTests, kLogged, 1,
     "steps done; on arrival as many as global batches go into the samples",
     [](const Line& line) -> Value { return line.step; }},
    {"epoch", "Epoch", Unit::kNone, Use::kAxis, kOfTests, kLogged, 7,
     "samples done, divided by those of an epoch",
     [](const Line& line) -> Value { return line.epoch; }},
    {"samples", "Samples", Unit::kCount, Use::kAxis, kOfTests, kNotLogged, 0,
     "samples done since the start of training",
     [](const Line& line) -> Value { return line.samples; }},
    {"updates", "Updates", Unit::kCount, Use::kAxis, kOfTests, kNotLogged, 0,
     "of a block: in sync steps, on arrival contributions",
     [](const Line& line) -> Value { return line.unit; }},
    {"due", "Due", Unit::kCount, Use::kRecord, kOfTests, kNotLogged, 0,
     "of `eval` alone: the updates at which it was due; on arrival it may test a few more or fewer",
     [](const Line& line) -> Value {
       return line.kind == Line::Kind::kEval ? Value(line.due) : std::nullopt;
     }},
    {"time", "Time", Unit::kSeconds, Use::kAxis, kOfTests, kNotLogged, 0,
     "since the start of training, when the last step was computed or the test ended; the line "
     "before's where that is later, as workers tell of steps some milliseconds late",
     [](const Line& line) -> Value { return line.time; }},
    {"loss", "Loss", Unit::kNone, Use::kCurve, kOfTests, kLogged, 6,
     "mean over the samples since the last line, or over the split",
     [](const Line& line) -> Value { return line.loss; }},
    {"accuracy", "Accuracy", Unit::kShare, Use::kCurve, kOfTests, kLogged, 3,
     "correct predictions among those that were judged, where the loss takes labels",
     [](const Line& line) -> Value {
       return line.accuracy.has_value() ? Value(*line.accuracy) : std::nullopt;
     }},
    {"learning_rate", "Learning rate", Unit::kNone, Use::kCurve, kOfTrainingOnly, kNotLogged, 0,
     "of the last update", [](const Line& line) -> Value { return line.learning_rate; }},
    {"samples_per_second", "Samples per second", Unit::kSamplesPerSecond, Use::kCurve,
     kOfTrainingOnly, kLogged, 2,
     "since the last line that is 0.1 s or more before, or the beginning",
     [](const Line& line) -> Value { return line.samples_per_second; }},
    {"staleness", "Staleness", Unit::kCount, Use::kCurve, kOfTrainingOnly, kLogged, 0,
     "versions between the one that a gradient was computed at and the one that it was applied "
     "to, mean over updates and blocks",
     [](const Line& line) -> Value { return line.staleness; }},
    {"pushed_bytes", "Pushed bytes", Unit::kBytes, Use::kRecord, kOfTrainingOnly, kNotLogged, 0,
     "payloads of gradients since the last line",
     [](const Line& line) -> Value { return line.pushed_bytes; }},
    {"pulled_bytes", "Pulled bytes", Unit::kBytes, Use::kRecord, kOfTrainingOnly, kNotLogged, 0,
     "payloads of parameters since the last line",
     [](const Line& line) -> Value { return line.pulled_bytes; }},
    {"waiting_seconds", "Waiting for parameters", Unit::kSeconds, Use::kRecord, kOfTrainingOnly,
     kNotLogged, 0, "what a worker waits for the parameters of one computation, mean over all",
     [](const Line& line) -> Value {
       if (!line.overlap.hidden().has_value()) return std::nullopt;  // nobody has told
       return line.overlap.mean_waiting_seconds();
     }},
    {"communication_hidden", "Communication hidden behind computation", Unit::kShare, Use::kCurve,
     kOfTrainingOnly, kNotLogged, 0, "1 − Σ waiting / Σ communicating, over all computations",
     [](const Line& line) -> Value {
       const std::optional<double> hidden = line.overlap.hidden();
       return hidden.has_value() ? Value(*hidden) : std::nullopt;
     }},
};

}  // namespace

absl::string_view KindName(const MetricsLine& line) {
  switch (line.kind) {
    case MetricsLine::Kind::kTrain:
      return "train";
    case MetricsLine::Kind::kEval:
      return "eval";
    case MetricsLine::Kind::kTest:
      break;
  }
  return "test";
}

absl::string_view UnitName(Unit unit) {
  switch (unit) {
    case Unit::kNone:
      return "";
    case Unit::kCount:
      return "count";
    case Unit::kSeconds:
      return "s";
    case Unit::kBytes:
      return "bytes";
    case Unit::kShare:
      return "share";
    case Unit::kSamplesPerSecond:
      break;
  }
  return "samples/s";
}

absl::Span<const Figure> Figures() { return kFigures; }

bool IsFreeName(absl::string_view name) {
  constexpr size_t kLongest = 64;
  if (name.empty() || name.size() > kLongest || name == "kind" || name == "split" || name == "mode")
    return false;
  return std::all_of(name.begin(), name.end(),
                     [](unsigned char c) { return absl::ascii_isalnum(c) || c == '_'; }) &&
         std::none_of(std::begin(kFigures), std::end(kFigures),
                      [name](const Figure& figure) { return figure.name == name; });
}

Figure OtherFigure(absl::string_view name) {
  return {name, name, Unit::kNone, Use::kCurve, kOfTests, kNotLogged, 0, "", nullptr};
}

absl::string_view FigureOf(absl::string_view metric) {
  if (!absl::ConsumePrefix(&metric, kOfEvaluation)) return "";
  return metric == "loss" || metric == "accuracy" || IsFreeName(metric) ? metric : "";
}

std::optional<double> MetricOf(const MetricsLine& line, absl::string_view metric) {
  const absl::string_view name = FigureOf(metric);
  if (name == "loss") return std::isnan(line.loss) ? std::nullopt : std::make_optional(line.loss);
  if (name == "accuracy") return line.accuracy;
  const auto other = line.others.find(std::string(name));
  return other == line.others.end() ? std::nullopt : std::make_optional(other->second);
}

std::string MetricsIn(const MetricsLine& line) {
  std::vector<std::string> metrics;
  const auto add = [&](absl::string_view name) {
    metrics.push_back(absl::StrCat(kOfEvaluation, name));
  };
  for (const char* name : {"loss", "accuracy"}) {
    if (MetricOf(line, absl::StrCat(kOfEvaluation, name)).has_value()) add(name);
  }
  for (const auto& [name, value] : line.others) {
    if (!std::isnan(value)) add(name);
  }
  return absl::StrJoin(metrics, ", ");
}

void ForEachFigure(const MetricsLine& line,
                   absl::FunctionRef<void(const Figure& figure, Figure::Value value)> visit) {
  for (const Figure& figure : kFigures) {
    if (line.kind != MetricsLine::Kind::kTrain && !figure.of_tests) continue;
    if (const auto value = figure.value(line)) visit(figure, *value);
  }
  for (const auto& [name, value] : line.others) {
    visit(OtherFigure(name), value);
  }
}

}  // namespace rubato
