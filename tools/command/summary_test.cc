#include "tools/command/summary.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/json.h"
#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

absl::StatusOr<std::string> TextOf(absl::string_view json,
                                   const std::vector<std::string>& next = {}) {
  return SummaryText(ParseJson(json), "run", next);
}

TEST(SummaryTest, TellsFiguresFilesAndWhatToTryNext) {
  const auto text = TextOf(
      R"({"test_accuracy":0.97125,"test_loss":0.09121,"samples_per_second":50000,"seconds":4.365,"steps":2814,)"
      R"("samples":180000,"digest":"ab"})",
      {"rubato inspect runs/x", "rubato help"});
  RUBATO_ASSERT_OK(text);
  EXPECT_EQ(*text,
            "test accuracy  97.12 %  (loss 0.0912)\n"
            "speed          41237 samples/s  (180000 samples, 2814 steps, 4.4 s)\n"
            "files          run\n"
            "\n"
            "Try next:\n"
            "  rubato inspect runs/x\n"
            "  rubato help\n");
}

TEST(SummaryTest, WhatIsNotKnownIsLeftOutOrADash) {
  const auto untrained =
      TextOf(R"({"test_accuracy":0.963,"test_loss":null,"samples_per_second":0,"steps":9})");
  RUBATO_ASSERT_OK(untrained);
  EXPECT_THAT(*untrained, StartsWith("test accuracy  96.30 %\nfiles "));
  const auto text = TextOf(R"({"test_accuracy":null,"steps":"many","samples_per_second":1})");
  RUBATO_ASSERT_OK(text);
  EXPECT_THAT(*text, HasSubstr("test accuracy  - %\n"));
  EXPECT_THAT(*text, HasSubstr("- samples/s  (- samples, - steps, - s)"));
  EXPECT_THAT(TextOf("[]"),
              IsError(absl::StatusCode::kInvalidArgument, "run/summary.json is not a JSON object"));
}

TEST(SummaryTest, TellsTheBestCheckpoint) {
  const auto text =
      TextOf(R"({"test_loss":1,"best_checkpoint":{"path":"checkpoints/step-00000003",)"
             R"("metric":"eval/f1","value":0.75}})");
  RUBATO_ASSERT_OK(text);
  EXPECT_THAT(*text, HasSubstr("\nbest           run/checkpoints/step-00000003  (eval/f1 0.7500)\n"
                               "files          run\n"));
}

TEST(SummaryTest, OfAResumedRunItTellsWhatWasBefore) {
  const std::string json =
      R"({"test_loss":1,"samples_per_second":9,"seconds":4,"steps":1,"samples":640})";
  const TrainedBefore before{320, 1.25};
  const auto text = SummaryText(ParseJson(json), "run", {}, before);
  RUBATO_ASSERT_OK(text);
  EXPECT_THAT(*text,
              HasSubstr("speed          160 samples/s  (640 samples, 1 step, 4.0 s)\n"
                        "resumed        after 320 samples and 1.2 s, which are counted above\n"));
  // Nothing was left to train: there is nothing above that counts it.
  const auto nothing =
      SummaryText(ParseJson(R"({"test_loss":1,"samples_per_second":0})"), "run", {}, before);
  RUBATO_ASSERT_OK(nothing);
  EXPECT_THAT(*nothing, Not(HasSubstr("resumed")));
}

TEST(SummaryTest, AValidationSplitIsToldBelowTheTest) {
  auto text = TextOf(
      R"({"test_accuracy":0.5,"test_loss":1,"validation_accuracy":0.625,"validation_loss":1.5})");
  RUBATO_ASSERT_OK(text);
  EXPECT_THAT(*text, StartsWith("test accuracy  50.00 %  (loss 1.0000)\n"
                                "validation     62.50 %  (loss 1.5000)\nfiles "));
  text = TextOf(R"({"test_loss":1,"validation_loss":1.5})");
  RUBATO_ASSERT_OK(text);
  EXPECT_THAT(*text, StartsWith("test loss      1.0000\nvalidation loss 1.5000\nfiles "));
}

TEST(SummaryTest, OtherFiguresOfAScriptsTestHaveALine) {
  const auto text = TextOf(
      R"({"test_accuracy":0.5,"test_loss":1,"test_f1":0.8125,"test_auc":null,"test_top":12345678,"steps":3})");
  RUBATO_ASSERT_OK(text);
  EXPECT_THAT(*text, StartsWith("test accuracy  50.00 %  (loss 1.0000)\n"
                                "test figures   auc -  f1 0.8125  top 1.235e+07\nfiles "));
}

TEST(SummaryTest, OtherFiguresAloneStandForALossThatIsNotKnown) {
  auto text = TextOf(R"({"test_loss":null,"test_f1":0.8125})");
  RUBATO_ASSERT_OK(text);
  EXPECT_THAT(*text, StartsWith("test figures   f1 0.8125\nfiles "));
  text = TextOf(R"({"test_loss":null})");
  RUBATO_ASSERT_OK(text);
  EXPECT_THAT(*text, StartsWith("test loss      -\nfiles "));
}

TEST(SummaryTest, WithoutAccuracyTheLossIsTold) {
  for (const auto& [loss, shown] : {std::pair("0.52431", "0.5243"),
                                    {"0", "0.0000"},
                                    {"4.66112e-06", "4.661e-06"},
                                    {"0.00099", "0.00099"},
                                    {"123456.7", "123456.7000"},
                                    {"2.3e22", "2.3e+22"}}) {
    const auto text = TextOf(absl::StrCat("{\"test_loss\":", loss, "}"));
    RUBATO_ASSERT_OK(text);
    EXPECT_THAT(*text, StartsWith(absl::StrCat("test loss      ", shown, "\nfiles ")));
  }
}

TEST(SummaryTest, AccountsForEveryContributionAndEveryChange) {
  const auto text = TextOf(
      R"({"contributions":{"given":40,"applied":30,"left_out":1,"partial":2,"lost":7},"views":9,"switches":3,)"
      R"("workers_lost":2,"workers_left":1,"residuals_lost":3})");
  RUBATO_ASSERT_OK(text);
  EXPECT_THAT(*text,
              HasSubstr("contributions  39 sent = 30 applied + 2 partial + 7 lost  (1 left out)\n"
                        "changes        3 of the mode, 2 workers lost, 1 departed\n"
                        "residuals      of 3 workers lost with them\n"));
  EXPECT_THAT(*TextOf(R"({"workers_lost":1,"residuals_lost":1})"),
              AllOf(HasSubstr(" 1 worker lost, "), HasSubstr(" of 1 worker lost ")));
  EXPECT_THAT(*TextOf(R"({"servers_lost":1,"samples_rolled_back":640})"),
              HasSubstr("servers        1 lost; 640 samples trained again\n"));
  // In sync, where nothing changed, there is nothing to say.
  const auto calm = TextOf(R"({"contributions":{"given":0},"views":1})");
  RUBATO_ASSERT_OK(calm);
  EXPECT_THAT(*calm, AllOf(Not(HasSubstr("contributions")), Not(HasSubstr("changes"))));
}

// Of 40 blocks, and workers that computed and waited so long.
nlohmann::json WithTimes(const std::vector<std::pair<double, double>>& times) {
  nlohmann::json json = {{"blocks", std::vector<int>(40)}};
  for (const auto& [computing, waiting] : times) {
    json["workers"].push_back({{"computing_seconds", computing}, {"waiting_seconds", waiting}});
  }
  return json;
}

TEST(SuggestServersTest, MoreWhereAllWorkersWaitedForThem) {
  constexpr int64_t kBlock = 1 << 18;  // so 10 MiB in all
  const nlohmann::json waits = WithTimes({{1, 3}, {0, 10}});
  const auto more = SuggestServers(waits, 1, 8, kBlock);
  ASSERT_TRUE(more.has_value());
  EXPECT_EQ(more->servers, 4);
  EXPECT_EQ(more->waited, 0.75) << "the least";
  EXPECT_EQ(SuggestServers(waits, 1, 2, kBlock)->servers, 3) << "as many as there are processors";
  EXPECT_EQ(SuggestServers(waits, 8, 20, 8 * kBlock)->servers, 16);
  EXPECT_FALSE(SuggestServers(waits, 1, 0, kBlock).has_value()) << "no processor for one";
  EXPECT_FALSE(SuggestServers(waits, 3, 9, kBlock).has_value()) << "less than 4 MiB in each";
  // The second computes: the first waits for it.
  EXPECT_FALSE(SuggestServers(WithTimes({{1, 3}, {3, 1}}), 1, 8, kBlock).has_value());
  for (const char* json : {"[]", "{}", R"({"blocks":[],"workers":[]})", R"({"blocks":[{}]})",
                           R"({"blocks":[{}],"workers":[7]})", R"({"blocks":[{}],"workers":[]})"}) {
    EXPECT_FALSE(SuggestServers(ParseJson(json), 1, 8, int64_t{1} << 40).has_value()) << json;
  }
}

TEST(ShellLineTest, QuotesWhatAShellWouldChange) {
  EXPECT_EQ(ShellLine({"rubato", "--set", "a.b=1e-3", "it's {x: 1}", ""}),
            "rubato --set a.b=1e-3 'it'\\''s {x: 1}' ''");
}

TEST(SummaryTest, TellsOfStepsThatWereLeftOutAndOfAnEarlyEnd) {
  const auto text = TextOf(
      R"({"test_loss":1,"steps":64,"skipped":63,"stopped":"asked to","contributions":{"given":0}})");
  RUBATO_ASSERT_OK(text);
  EXPECT_THAT(*text, StartsWith("stopped        before train.until: asked to\n"));
  EXPECT_THAT(*text, HasSubstr("\nleft out       63 of 64 steps: a loss or gradient was not "
                               "finite\n"));
}

}  // namespace
}  // namespace rubato
