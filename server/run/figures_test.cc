#include "server/run/figures.h"

#include <map>
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
  EXPECT_EQ(Told(line).size(), Figures().size());
  std::map<absl::string_view, Figure::Value> values;
  ForEachFigure(line,
                [&](const Figure& figure, Figure::Value value) { values[figure.name] = value; });
  EXPECT_EQ(std::get<double>(values["waiting_seconds"]), 0.5);
  EXPECT_EQ(std::get<double>(values["communication_hidden"]), 0.75);
  line.kind = MetricsLine::Kind::kTest;
  EXPECT_EQ(Told(line), (std::set<std::string>{"step", "epoch", "samples", "updates", "time",
                                               "loss", "accuracy"}));
}

}  // namespace
}  // namespace rubato
