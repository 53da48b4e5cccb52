#include "tools/command/log_line.h"

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

constexpr char kTime[] = "2026-11-21T07:59:01.123Z ";
constexpr char kJson[] = R"({"time":"2026-11-21T07:59:01.123Z",)";

TEST(LogLineTest, HasTheProcessAndTheWarningInEitherFormat) {
  const LogLine text = ParseLogLine(absl::StrCat(kTime, "worker 3 warning: waits for=2"));
  EXPECT_EQ(text.name, "worker 3");
  EXPECT_EQ(text.warning, "waits for=2");
  EXPECT_FALSE(text.is_info);
  const LogLine json = ParseLogLine(
      absl::StrCat(kJson, R"("role":"worker","rank":3,"level":"warning","message":"waits","fields":{"for":2}})"));
  EXPECT_EQ(json.name, "worker 3");
  EXPECT_EQ(json.warning, R"(waits {"for":2})");
  EXPECT_FALSE(json.is_info);
}

TEST(LogLineTest, IsInfoWhereLogReportsNoFailure) {
  for (const std::string& line : {absl::StrCat(kTime, "coordinator training begins"),
                                 absl::StrCat(kTime, "worker 0 takes part view=2"),
                                 absl::StrCat(kJson, R"("role":"server","rank":0,"level":"info"})")}) {
    EXPECT_TRUE(ParseLogLine(line).is_info) << line;
    EXPECT_FALSE(ParseLogLine(line).warning.has_value()) << line;
  }
  for (const std::string& line :
       {absl::StrCat(kTime, "worker 0 error: it is over"), std::string("epoch 1 loss 0.5"),
        std::string("at noon worker 0 rests"), std::string(R"({"loss": 0.5})"), std::string("{"),
        std::string()}) {
    EXPECT_FALSE(ParseLogLine(line).is_info) << line;
  }
}

TEST(LogLineTest, IsAnEventWhateverItReports) {
  for (const std::string& line : {absl::StrCat(kTime, "worker 0 takes part view=2"),
                                 absl::StrCat(kTime, "worker warning: the script is odd"),
                                 absl::StrCat(kTime, "worker 0 error: it is over"),
                                 absl::StrCat(kJson, R"("role":"worker","rank":0,"level":"fatal"})"),
                                 absl::StrCat(kJson, R"("role":"worker","level":"warning"})")}) {
    EXPECT_TRUE(ParseLogLine(line).is_event) << line;
  }
  for (const std::string& line :
       {std::string("epoch 1 loss 0.5"), std::string("the worker 0 rests"),
        std::string("at worker warning: none"), std::string(R"({"loss": 0.5})"),
        std::string(R"({"level": "info"})"), std::string("{"), std::string()}) {
    EXPECT_FALSE(ParseLogLine(line).is_event) << line;
  }
}

TEST(LogLineTest, BeginsBehindWhatAScriptHasPrintedWithoutAnEndOfLine) {
  const LogLine line =
      ParseLogLine(absl::StrCat("epoch 1 [Z 3/5]...", kTime, "worker 1 warning: odd"));
  EXPECT_EQ(line.name, "worker 1");
  EXPECT_EQ(line.warning, "odd");
  // Quoted.
  EXPECT_FALSE(ParseLogLine(absl::StrCat("saw ", kTime, "worker 1 warning: odd")).is_event);
}

// Scripts print what they like, and log by themselves.
TEST(LogLineTest, WhatAScriptPrintsIsNone) {
  for (const std::string& line :
       {std::string(R"({"level":"warning","message":"low on memory"})"),
        std::string(R"({"time":"2026-11-21 07:59:01,123","role":"worker","level":"warning"})"),
        std::string(R"({"time":1763711941.5,"role":"worker","level":"info"})"),
        absl::StrCat(kJson, R"("role":"trainer","rank":0,"level":"warning"})"),
        absl::StrCat(kJson, R"("role":"worker"})"),
        std::string("1234567890123456789012Z worker 0 takes part"),
        std::string("{a-dictionary-of-things: Z worker warning: none"),
        std::string("abcdefghijklmnopqrstuvwZ worker 0 warning: none"),
        std::string("2026-11-21T07:59:01.123z worker 0 warning: none"),
        std::string("the worker warning: none"), absl::StrCat(kTime, "trainer 0 warning: none")}) {
    const LogLine parsed = ParseLogLine(line);
    EXPECT_EQ(parsed.name, "") << line;
    EXPECT_FALSE(parsed.warning.has_value()) << line;
    EXPECT_FALSE(parsed.is_event || parsed.is_info) << line;
  }
}

}  // namespace
}  // namespace rubato
