#include "server/run/figures.h"

#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <variant>

#include "gtest/gtest.h"

namespace rubato {
namespace {

std::set<std::string> Told(const MetricsLine& line) {
  std::set<std::string> names;
  ForEachFigure(
      line, [&](const Figure& figure, Figure::Value) { names.insert(std::string(figure.name)); });
  return names;
}

TEST(FiguresTest, HaveNamesOfTheirOwn) {
  std::set<absl::string_view> names;
  for (const Figure& figure : Figures()) {
    EXPECT_TRUE(names.insert(figure.name).second) << figure.name;
    EXPECT_FALSE(figure.title.empty() || figure.help.empty()) << figure.name;
  }
}

TEST(FiguresTest, ALineTellsWhatItKnows) {
  MetricsLine line;
  EXPECT_EQ(Told(line).count("accuracy"), 0u);         // a regression
  EXPECT_EQ(Told(line).count("waiting_seconds"), 0u);  // no worker has told
  line.accuracy = 0.5;
  line.overlap = {1, 4, 2};
  EXPECT_EQ(Told(line).size(), Figures().size() - 1);  // when a test was due
  std::map<absl::string_view, Figure::Value> values;
  ForEachFigure(line,
                [&](const Figure& figure, Figure::Value value) { values[figure.name] = value; });
  EXPECT_EQ(std::get<double>(values["waiting_seconds"]), 0.5);
  EXPECT_EQ(std::get<double>(values["communication_hidden"]), 0.75);
  line.kind = MetricsLine::Kind::kTest;
  EXPECT_EQ(Told(line), (std::set<std::string>{"step", "epoch", "samples", "updates", "time",
                                               "loss", "accuracy"}));
  line.kind = MetricsLine::Kind::kEval;
  EXPECT_EQ(Told(line).count("due"), 1u);
  line.kind = MetricsLine::Kind::kTest;
  line.others = {{"f1", 0.25}, {"auc", 2}};
  values.clear();
  ForEachFigure(line, [&](const Figure& figure, Figure::Value value) {
    if (IsFreeName(figure.name)) values[figure.name] = value;
    EXPECT_EQ(figure.use == Figure::Use::kCurve,
              values.size() > 0 || figure.name == "loss" || figure.name == "accuracy")
        << figure.name;
  });
  EXPECT_EQ(values, (std::map<absl::string_view, Figure::Value>{{"auc", 2.0}, {"f1", 0.25}}));
}

TEST(FiguresTest, MetricsAreWhatALineTells) {
  MetricsLine line;
  line.loss = 2;
  line.others = {{"f1", 0.25}, {"auc", 0.5}};
  EXPECT_EQ(MetricOf(line, "eval/loss"), 2);
  EXPECT_EQ(MetricOf(line, "eval/accuracy"), std::nullopt);
  EXPECT_EQ(MetricOf(line, "eval/f1"), 0.25);
  EXPECT_EQ(MetricOf(line, "eval/step"), std::nullopt);
  EXPECT_EQ(MetricsIn(line), "eval/loss, eval/auc, eval/f1");
  line.loss = std::nan("");
  line.accuracy = 1;
  EXPECT_EQ(MetricOf(line, "eval/loss"), std::nullopt) << "a script's test has told none";
  EXPECT_EQ(MetricOf(line, "eval/accuracy"), 1);
  EXPECT_EQ(MetricsIn(line), "eval/accuracy, eval/auc, eval/f1");
}

TEST(FiguresTest, AScriptsFiguresHaveFreeNames) {
  for (const auto& name : {std::string("f1"), std::string("Top_5"), std::string(64, 'n')}) {
    EXPECT_TRUE(IsFreeName(name)) << name;
  }
  for (const Figure& figure : Figures()) EXPECT_FALSE(IsFreeName(figure.name)) << figure.name;
  for (const auto& name : {std::string(), std::string("kind"), std::string("split"),
                           std::string("mode"), std::string("a-b"), std::string("a b"),
                           std::string("a/b"), std::string("\xc3\xa4"), std::string(65, 'n')}) {
    EXPECT_FALSE(IsFreeName(name)) << name;
  }
}

TEST(FiguresTest, AMetricOfTestsNamesAFigure) {
  EXPECT_EQ(FigureOf("eval/loss"), "loss");
  EXPECT_EQ(FigureOf("eval/f1"), "f1");
  for (const char* none : {"f1", "loss", "eval/", "eval/step", "eval/f-1", "test/f1"}) {
    EXPECT_EQ(FigureOf(none), "") << none;
  }
}

}  // namespace
}  // namespace rubato
