#include "common/pace/speeds.h"

#include <cmath>
#include <fstream>
#include <functional>

#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kDraws = 100000;

Speeds Make(const std::string& text, uint64_t seed = 1) {
  absl::StatusOr<Speeds> speeds = Speeds::Parse(text, seed);
  EXPECT_THAT(speeds, IsOk());
  return *std::move(speeds);
}

// Of kDraws computations of worker 3.
double Mean(const Speeds& speeds, const std::function<double(double)>& f) {
  double sum = 0;
  for (int64_t n = 0; n < kDraws; ++n) sum += f(speeds.Seconds(3, n, 2) / 2);
  return sum / kDraws;
}

double MeanOf(const Speeds& speeds) {
  return Mean(speeds, [](double x) { return x; });
}

TEST(SpeedsTest, MomentsAreThoseOfTheDistribution) {
  EXPECT_EQ(MeanOf(Make("fixed")), 1);
  // Exponential: variance 1, and P(x > 1) = 1/e.
  const Speeds exponential = Make("exponential");
  EXPECT_NEAR(MeanOf(exponential), 1, 5 / std::sqrt(kDraws));
  EXPECT_NEAR(Mean(exponential, [](double x) { return x > 1 ? 1.0 : 0.0; }), std::exp(-1), 0.008);
  EXPECT_NEAR(Mean(exponential, [](double x) { return x * x; }), 2, 0.08);
  // log x is normal with mean -sigma^2 / 2.
  const Speeds lognormal = Make("lognormal:sigma=0.8");
  EXPECT_NEAR(MeanOf(lognormal), 1, 5 * std::sqrt(std::exp(0.64) - 1) / std::sqrt(kDraws));
  EXPECT_NEAR(Mean(lognormal, [](double x) { return std::log(x); }), -0.32, 0.013);
  EXPECT_NEAR(Mean(lognormal, [](double x) { return std::pow(std::log(x) + 0.32, 2); }), 0.64,
              0.015);
  const Speeds jitter = Make("jitter:width=0.1");
  EXPECT_NEAR(MeanOf(jitter), 1, 0.001);
  EXPECT_NEAR(Mean(jitter, [](double x) { return std::pow(x - 1, 2); }), 0.01 / 3, 1e-4);
  const Speeds transient = Make("transient:p=0.05,factor=10");
  EXPECT_NEAR(MeanOf(transient), 1.45, 0.03);
  EXPECT_NEAR(Mean(transient, [](double x) { return x == 10 ? 1.0 : 0.0; }), 0.05, 0.004);
}

TEST(SpeedsTest, AStragglerIsOneWorkerAndTermsMultiply) {
  const Speeds speeds = Make("straggler:factor=4,worker=2+straggler:factor=3,worker=2");
  EXPECT_EQ(speeds.Seconds(2, 0, 0.5), 6);
  EXPECT_EQ(speeds.Seconds(1, 0, 0.5), 0.5);
}

TEST(SpeedsTest, DrawsAreFunctionsOfSeedWorkerAndNumber) {
  const Speeds speeds = Make("exponential");
  EXPECT_EQ(speeds.Seconds(1, 5, 1), Make("exponential").Seconds(1, 5, 1));
  EXPECT_NE(speeds.Seconds(1, 5, 1), Make("exponential", 2).Seconds(1, 5, 1));
  EXPECT_NE(speeds.Seconds(1, 5, 1), speeds.Seconds(2, 5, 1));
  EXPECT_NE(speeds.Seconds(1, 5, 1), speeds.Seconds(1, 6, 1));
}

TEST(SpeedsTest, ATraceGivesTheTimesInTurn) {
  const std::string path = testing::TempDir() + "/trace.csv";
  std::ofstream(path) << "# recorded\n0,0.5\n1,2\n0,0.25\n";
  const Speeds speeds = Make("trace:" + path);
  EXPECT_EQ(speeds.Seconds(0, 0, 9), 0.5);
  EXPECT_EQ(speeds.Seconds(0, 1, 9), 0.25);
  EXPECT_EQ(speeds.Seconds(0, 2, 9), 0.5);
  EXPECT_EQ(speeds.Seconds(1, 7, 9), 2);
  EXPECT_EQ(speeds.Seconds(2, 0, 9), 0.5);  // as worker 0
  std::ofstream(path) << "0,0.5\n2,1\n";
  EXPECT_THAT(Speeds::Parse("trace:" + path, 1).status().ToString(),
              HasSubstr("no line of worker 1"));
  std::ofstream(path) << "0,0.5\n0,fast\n";
  EXPECT_THAT(Speeds::Parse("trace:" + path, 1).status().ToString(),
              HasSubstr("trace.csv:2: found 0,fast"));
  std::ofstream(path) << "0,1e300\n";
  EXPECT_THAT(Speeds::Parse("trace:" + path, 1).status().ToString(),
              HasSubstr("trace.csv:1: found 0,1e300, expected `worker,seconds`, as 3,0.125, of not "
                        "more than 1000000 s"));
}

TEST(SpeedsTest, AStragglerMustBeAWorkerOfTheJob) {
  RUBATO_EXPECT_OK(Make("straggler:worker=1").CheckWorkers(2));
  EXPECT_THAT(
      Make("exponential+straggler:worker=2").CheckWorkers(2),
      IsError(absl::StatusCode::kInvalidArgument,
              "speeds: found straggler:worker=2, expected a number from 0 to 1: the job has "
              "2 workers"));
}

TEST(SpeedsTest, MistakesAreTold) {
  for (const auto& [text, message] :
       {std::pair("", "found nothing"), std::pair("slow", "found slow; expected fixed"),
        std::pair("lognormal:mu=1", "found mu=1 in lognormal:mu=1"),
        std::pair("exponential:sigma=1", "expected no setting"),
        std::pair("lognormal:sigma=1e9",
                  "found sigma=1e9 in lognormal:sigma=1e9; expected a number from 0 to 10"),
        std::pair("transient:p=2", "found p=2 in transient:p=2; expected a number from 0 to 1"),
        std::pair("jitter:width=2",
                  "found width=2 in jitter:width=2; expected a number from 0 to 1"),
        std::pair("transient:p=nan", "found p=nan"),
        std::pair("transient:q=1", "expected factor=NUMBER or p=NUMBER"),
        std::pair("straggler:factor=0",
                  "found factor=0 in straggler:factor=0; expected a number "
                  "above 0 and not above 1000000"),
        std::pair("straggler:factor=1e12", "not above 1000000"),
        std::pair("straggler:worker=0.5", "expected the number of a worker, from 0 on"),
        std::pair("trace:", "found trace: without a file, expected trace:FILE"),
        std::pair("fixed+", "found nothing")}) {
    EXPECT_THAT(Speeds::Parse(text, 1),
                IsError(absl::StatusCode::kInvalidArgument, HasSubstr(message)));
  }
  EXPECT_THAT(Speeds::Parse("trace:/no/such", 1).status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace rubato
