#include "common/pace/delays.h"

#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

proto::Job Job() {
  proto::Job job;
  job.set_seed(7);
  job.mutable_train()->set_batch_size(32);
  job.mutable_train()->set_micro_batches(4);
  job.mutable_cluster()->mutable_workers()->set_max(2);
  return job;
}

TEST(DelaysTest, AreTheDrawsOfTheJobsSeed) {
  const auto delays = Delays::Of({"exponential+straggler:worker=1", "20ms"}, Job());
  RUBATO_ASSERT_OK(delays);
  const auto speeds = Speeds::Parse("exponential+straggler:worker=1", /*seed=*/7);
  RUBATO_ASSERT_OK(speeds);
  for (const int rank : {0, 1}) {
    for (int64_t n = 0; n < 10; ++n) {
      // Half of the batch, two micro-batches.
      EXPECT_NEAR(absl::ToDoubleSeconds((*delays)->Next(rank, n, 16)),
                  2 * speeds->Seconds(rank, n, 0.02), 1e-9);
    }
  }
}

TEST(DelaysTest, ThereAreNoneWithoutATime) {
  const auto delays = Delays::Of({}, Job());
  RUBATO_ASSERT_OK(delays);
  EXPECT_FALSE(delays->has_value());
}

TEST(DelaysTest, MistakesAreNamed) {
  for (const auto& [flags, expected] :
       {std::pair(DelayFlags{"exponential", ""}, "--speeds: expected --compute as well"),
        std::pair(DelayFlags{"", "20"}, "--compute: found 20, expected a time with"),
        std::pair(DelayFlags{"quick", "1ms"}, "speeds: found quick"),
        std::pair(DelayFlags{"straggler:worker=2", "1ms"}, "expected a number from 0 to 1")}) {
    const auto delays = Delays::Of(flags, Job());
    EXPECT_EQ(delays.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(delays.status().message()), HasSubstr(expected));
  }
}

TEST(DelaysTest, ArePassedOnAsTheyWereTyped) {
  EXPECT_THAT((DelayFlags{"exponential", "20ms"}.Variables()),
              ElementsAre("RUBATO_COMPUTE=20ms", "RUBATO_SPEEDS=exponential"));
  EXPECT_THAT(DelayFlags().Variables(), ElementsAre("RUBATO_COMPUTE=", "RUBATO_SPEEDS="));
  const auto getenv = [](const char* name) -> const char* {
    return std::string(name) == "RUBATO_COMPUTE" ? "20ms" : nullptr;
  };
  DelayFlags none, typed = {"fixed", "1ms"};
  none.AddVariables(getenv);
  EXPECT_EQ(none.compute, "20ms");
  EXPECT_EQ(none.speeds, "");
  typed.AddVariables(getenv);
  EXPECT_EQ(typed.compute, "1ms");
}

}  // namespace
}  // namespace rubato
