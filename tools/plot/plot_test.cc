#include <stdlib.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/json.h"
#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/plot/curves.h"
#include "tools/plot/page.h"

namespace rubato {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::NanSensitiveDoubleEq;
using ::testing::Not;
using ::testing::Pair;

constexpr char kLines[] =
    R"({"kind":"train","step":10,"epoch":0.5,"samples":100,"time":1.5,"loss":2.25,"accuracy":0.5,"learning_rate":0.1,"samples_per_second":66,"staleness":0})"
    "\n"
    R"({"kind":"train","step":20,"epoch":1,"samples":200,"time":3,"loss":null,"accuracy":0.25,"learning_rate":0.1,"samples_per_second":66,"staleness":1.5})"
    "\n"
    R"({"kind":"test","step":20,"epoch":1,"samples":200,"time":3.1,"loss":2,"accuracy":0.75})"
    "\n";

std::string NewFolder(const std::string& metrics) {
  std::string folder = testing::TempDir() + "/plot-XXXXXX";
  if (mkdtemp(folder.data()) == nullptr) abort();
  std::ofstream(folder + "/metrics.jsonl") << metrics;
  return folder;
}

// What stands between two texts of a page.
std::string Between(const std::string& page, const std::string& begin, const std::string& end) {
  const size_t from = page.find(begin);
  if (from == std::string::npos) return "";
  const size_t to = page.find(end, from + begin.size());
  return page.substr(from + begin.size(), to - from - begin.size());
}

nlohmann::json DataOf(const std::string& page) {
  return ParseJson(Between(page, "type=\"application/json\">", "</script>"));
}

TEST(CurvesTest, ReadsKindsWithGaps) {
  const RunCurves run = ParseCurves(kLines);
  EXPECT_THAT(run.kinds.at("train").at("step"), ElementsAre(10, 20));
  EXPECT_THAT(run.kinds.at("train").at("loss"),
              ElementsAre(2.25, NanSensitiveDoubleEq(std::nan(""))));
  EXPECT_THAT(run.kinds.at("train").at("staleness"), ElementsAre(0, 1.5));
  EXPECT_THAT(run.kinds.at("test").at("accuracy"), ElementsAre(0.75));
  EXPECT_THAT(run.kinds.at("test").at("time"), ElementsAre(3.1));
  EXPECT_EQ(run.skipped, 0);
}

TEST(CurvesTest, WhatIsNoMetricsIsCountedAndTheLineBeingWrittenIsNot) {
  const RunCurves run =
      ParseCurves(absl::StrCat("nonsense\n[1]\n{\"kind\":\"train\"}\n{\"kind\":3,\"step\":1}\n\n",
                               kLines, "{\"kind\":\"tr"));
  EXPECT_EQ(run.skipped, 4);
  EXPECT_EQ(run.kinds.at("train").at("step").size(), 2u);
}

TEST(CurvesTest, ARunTakenUpAgainGoesOnFromItsCheckpoint) {
  std::string text;
  for (const int step : {10, 20, 30, 40}) {
    absl::StrAppend(&text, R"({"kind":"train","loss":1,"step":)", step, "}\n");
  }
  for (const int step : {30, 50}) {
    absl::StrAppend(&text, R"({"kind":"train","loss":2,"step":)", step, "}\n");
  }
  const RunCurves run = ParseCurves(text);
  EXPECT_THAT(run.kinds.at("train").at("step"), ElementsAre(10, 20, 30, 50));
  EXPECT_THAT(run.kinds.at("train").at("loss"), ElementsAre(1, 1, 2, 2));
  EXPECT_THAT(run.seams, ElementsAre(2));
  // Further back than before, what was trained in between shows no more.
  absl::StrAppend(&text, R"({"kind":"train","loss":3,"step":20})", "\n");
  EXPECT_THAT(ParseCurves(text).seams, ElementsAre(1));
}

TEST(CurvesTest, TestsThatEndInAnotherOrderAreAllShown) {
  const auto line = [](const char* kind, int step, double loss) {
    return absl::StrFormat("{\"kind\":\"%s\",\"step\":%d,\"loss\":%g}\n", kind, step, loss);
  };
  std::string text = line("train", 30, 5);
  for (const int step : {12, 9, 24, 21}) text += line("eval", step, step);
  EXPECT_THAT(ParseCurves(text).kinds.at("eval").at("step"), ElementsAre(9, 12, 21, 24));
  EXPECT_THAT(ParseCurves(text).kinds.at("eval").at("loss"), ElementsAre(9, 12, 21, 24));
  // The run went back, and repeats the tests.
  text += line("train", 15, 5) + line("eval", 21, 1);
  EXPECT_THAT(ParseCurves(text).kinds.at("eval").at("loss"), ElementsAre(9, 12, 1));
  text += line("eval", 21, 2);
  EXPECT_THAT(ParseCurves(text).kinds.at("eval").at("loss"), ElementsAre(9, 12, 2));
}

// On arrival a step is train.batch_size samples, and a contribution may be fewer.
TEST(CurvesTest, LinesOfOneStepAreNoReturn) {
  std::string text;
  for (const int samples : {16, 32, 48, 64, 80}) {
    absl::StrAppend(&text, R"({"kind":"train","loss":1,"step":)", samples / 48, R"(,"samples":)",
                    samples, "}\n");
  }
  EXPECT_THAT(ParseCurves(text).kinds.at("train").at("step"), ElementsAre(0, 0, 1, 1, 1));
  EXPECT_THAT(ParseCurves(text).seams, ElementsAre());
  absl::StrAppend(&text, R"({"kind":"train","loss":1,"step":1,"samples":64})", "\n");
  EXPECT_THAT(ParseCurves(text).seams, ElementsAre(3));
}

TEST(CurvesTest, ARunIsCalledAsItsFolder) {
  const std::string folder = NewFolder(kLines);
  const std::string link = folder + "-link";
  std::filesystem::create_symlink(folder, link);
  const absl::StatusOr<RunCurves> run = ReadCurves(link);
  RUBATO_ASSERT_OK(run);
  EXPECT_EQ(run->name, std::filesystem::path(folder).filename().string());
  RUBATO_EXPECT_OK(ReadCurves(folder + "/metrics.jsonl"));
}

// Whatever its job says.
TEST(CurvesTest, ARunHasTheModesThatItTrainedIn) {
  const std::string folder = NewFolder(kLines);
  std::ofstream(folder + "/job.yaml") << "version: 1\nname: x\ndata: {format: glyphs}\n"
                                         "model: {layers: [flatten, linear: {out_features: 10}]}\n"
                                         "optimizer: {learning_rate: 0.1}\n"
                                         "train: {batch_size: 64, until: {epochs: 1}}\n";
  EXPECT_EQ(ReadCurves(folder)->mode, "sync");
  std::ofstream(folder + "/views.jsonl") << R"({"view":1,"mode":"async"})"
                                         << "\n"
                                         << R"({"view":2,"mode":"async"})"
                                         << "\n"
                                         << R"({"view":3,"mode":"sync"})"
                                         << "\n"
                                         << R"({"view":4,"mode":"async"})"
                                         << "\n";
  EXPECT_EQ(ReadCurves(folder)->mode, "async; sync");
}

TEST(CurvesTest, ErrorsSayWhatWasExpected) {
  EXPECT_THAT(ReadCurves("/nowhere/run").status(),
              IsError(absl::StatusCode::kNotFound,
                      HasSubstr("found no /nowhere/run, expected a run's folder")));
  const std::string folder = NewFolder("");
  EXPECT_THAT(ReadCurves(folder).status(),
              IsError(absl::StatusCode::kFailedPrecondition, HasSubstr("no line of metrics yet")));
  EXPECT_THAT(ReadCurves(NewFolder("x\n")).status(),
              IsError(absl::StatusCode::kInvalidArgument, HasSubstr("found no line of metrics")));
  std::filesystem::remove(folder + "/metrics.jsonl");
  EXPECT_THAT(ReadCurves(folder).status(),
              IsError(absl::StatusCode::kNotFound, HasSubstr("found no metrics.jsonl in")));
}

TEST(CurvesTest, AModeThatAnotherFollowsIsASwitch) {
  std::string text;
  const auto train = [&](int samples, const char* mode) {
    absl::StrAppend(&text, R"({"kind":"train",)", mode, R"("step":1,"samples":)", samples, "}\n");
  };
  for (const int samples : {10, 20}) train(samples, R"("mode":"sync",)");
  for (const int samples : {30, 40}) train(samples, R"("mode":"async",)");
  const auto switches = [&] { return ParseCurves(text).switches; };
  EXPECT_THAT(switches(), ElementsAre(Pair(2, "async")));
  train(20, R"("mode":"sync",)");  // it went back
  EXPECT_THAT(switches(), IsEmpty());
  train(25, R"("mode":"bounded, staleness 3",)");
  train(30, R"("mode":"sync",)");
  EXPECT_THAT(switches(), ElementsAre(Pair(2, "bounded, staleness 3"), Pair(3, "sync")));
  text.clear();
  for (const int samples : {10, 20}) train(samples, "");  // of another version
  EXPECT_THAT(switches(), IsEmpty());
}

// Not each test has found them all.
TEST(CurvesTest, OtherFiguresOfTestsAreCurvesOfTheirNames) {
  std::string text = R"({"kind":"train","step":1,"samples":1,"loss":1,"mine":7})"
                     "\n";
  for (const char* figures : {"\"f1\":0.25", "\"f1\":0.5,\"auc\":0.75,\"a-b\":1", "\"auc\":null"}) {
    absl::StrAppend(&text, "{\"kind\":\"eval\",\"split\":\"test\",\"step\":", text.size(),
                    ",\"loss\":null,", figures, "}\n");
  }
  const RunCurves run = ParseCurves(text);
  const auto nan = NanSensitiveDoubleEq(std::nan(""));
  EXPECT_EQ(run.kinds.at("train").count("mine"), 0u);
  const Curves& curves = run.kinds.at("eval");
  EXPECT_THAT(curves.at("f1"), ElementsAre(0.25, 0.5, nan));
  EXPECT_THAT(curves.at("auc"), ElementsAre(nan, 0.75, nan));
  EXPECT_EQ(curves.count("a-b") + curves.count("split"), 0u);
  const nlohmann::json data = DataOf(PlotPage({run}));
  EXPECT_EQ(data["runs"][0]["kinds"]["eval"]["f1"].dump(), "[0.25,0.5,null]");
  EXPECT_EQ(data["figures"].back().dump(),
            R"({"isAxis":false,"name":"f1","title":"f1","unit":""})");
  EXPECT_EQ(data["figures"][data["figures"].size() - 2]["name"], "auc");
}

TEST(CurvesTest, AFileOfAnyNumberOfNamesGivesSomeCurves) {
  std::string text = "{\"kind\":\"eval\",\"step\":1";
  for (int i = 10; i < 99; ++i) absl::StrAppend(&text, ",\"n", i, "\":1");
  const RunCurves run = ParseCurves(text + "}\n");
  EXPECT_EQ(run.kinds.at("eval").count("n41"), 1u);
  EXPECT_EQ(run.kinds.at("eval").count("n42"), 0u);
}

TEST(PlotPageTest, HoldsTheDataOfAllRuns) {
  RunCurves first = ParseCurves(kLines);
  first.name = "first";
  first.mode = "async";
  RunCurves second = first;
  first.seams = {1};
  first.switches = {{1, "bounded, staleness 3"}};
  second.name = "</script><script>alert(1)</script> \xff";
  const std::string page = PlotPage({first, second});
  const nlohmann::json data = DataOf(page);
  ASSERT_TRUE(data.is_object());
  ASSERT_EQ(data["runs"].size(), 2u);
  EXPECT_EQ(data["runs"][0]["mode"], "async");
  EXPECT_EQ(data["runs"][0]["seams"].dump(), "[1]");
  EXPECT_EQ(data["runs"][1]["seams"].dump(), "[]");
  EXPECT_EQ(data["runs"][0]["switches"].dump(), R"([[1,"bounded, staleness 3"]])");
  EXPECT_EQ(data["runs"][0]["kinds"]["train"]["loss"].dump(), "[2.25,null]");
  EXPECT_EQ(data["runs"][0]["kinds"]["test"]["accuracy"].dump(), "[0.75]");
  EXPECT_FALSE(data["runs"][0]["kinds"]["test"].contains("staleness"));
  EXPECT_EQ(data["runs"][1]["name"], "</script><script>alert(1)</script> \xef\xbf\xbd");
  EXPECT_THAT(page, Not(HasSubstr("<script>alert")));
}

TEST(PlotPageTest, IsWholeAndLoadsNothing) {
  const std::string page = PlotPage({ParseCurves(kLines)});
  EXPECT_THAT(page, HasSubstr("Chart.js v"));
  EXPECT_THAT(page, HasSubstr("Permission is hereby granted, free of charge"));
  for (const char* place : {"@MAKER@", "@SHARED_STYLE@", "@STYLE@", "@BODY@", "@DATA@", "@LICENCE@",
                            "@LIBRARY@", "@SHARED_SCRIPT@", "@SCRIPT@"}) {
    EXPECT_THAT(page, Not(HasSubstr(place)));
  }
  // And if it tried, the browser would refuse.
  EXPECT_THAT(page, HasSubstr("default-src 'none'"));
  for (const char* loads : {" src=", "<link", "@import", "url("}) {
    EXPECT_THAT(page, Not(HasSubstr(loads)));
  }
}

}  // namespace
}  // namespace rubato
