#include "server/run/figures.h"

#include <fstream>
#include <map>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

using ::testing::ElementsAreArray;

absl::string_view UseName(Figure::Use use) {
  switch (use) {
    case Figure::Use::kAxis:
      return "axis";
    case Figure::Use::kCurve:
      return "curve";
    case Figure::Use::kRecord:
      break;
  }
  return "record";
}

std::set<std::string> Told(const MetricsLine& line) {
  std::set<std::string> names;
  ForEachFigure(
      line, [&](const Figure& figure, Figure::Value) { names.insert(std::string(figure.name)); });
  return names;
}

TEST(FiguresTest, AreThoseOfTheDocumentsTable) {
  std::vector<std::string> declared, documented;
  for (const Figure& figure : Figures()) {
    declared.push_back(absl::StrFormat("| `%s` | %s | %s | %s | %s |", figure.name,
                                       UnitName(figure.unit), UseName(figure.use),
                                       figure.of_tests ? "all" : "train", figure.help));
  }
  std::ifstream file("docs/runs.md");
  std::string line;
  while (std::getline(file, line) && !absl::StartsWith(line, "| figure |")) continue;
  while (std::getline(file, line) && absl::StartsWith(line, "|")) {
    if (!absl::StartsWith(line, "|---")) documented.push_back(line);
  }
  EXPECT_THAT(documented, ElementsAreArray(declared));
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
