#include "tools/bench/convergence/mode_yaml.h"

#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

using ::testing::HasSubstr;

MATCHER_P(Yields, value, "") {
  *result_listener << arg.status().ToString();
  return arg.ok() && *arg == value;
}

proto::Point Epochs(double epochs) {
  proto::Point point;
  point.set_epochs(epochs);
  return point;
}

TEST(ConsistencyYamlTest, OneModeOrSeveral) {
  EXPECT_THAT(ConsistencyYaml("sync", Epochs(4)), Yields("{mode: sync}"));
  EXPECT_THAT(ConsistencyYaml("bounded,staleness=3", Epochs(4)),
              Yields("{mode: bounded, staleness: 3}"));
  EXPECT_THAT(ConsistencyYaml("sync@25%+async", Epochs(4)),
              Yields("{schedule: [{mode: sync, until: {epochs: 1}}, {mode: async}]}"));
  proto::Point steps;
  steps.set_steps(200);
  EXPECT_THAT(ConsistencyYaml("sync@10%+bounded,staleness=2@50%+async", steps),
              Yields("{schedule: [{mode: sync, until: {steps: 20}}, {mode: bounded, staleness: 2, "
                     "until: {steps: 120}}, {mode: async}]}"));
}

TEST(ConsistencyYamlTest, RefusesSharesThatAreNone) {
  for (const char* mode : {"sync+async", "sync@12%", "sync@12+async", "sync@0%+async",
                           "sync@60%+bounded@40%+async", "sync@12%+async@50%"}) {
    EXPECT_THAT(ConsistencyYaml(mode, Epochs(4)),
                IsError(absl::StatusCode::kInvalidArgument, HasSubstr(mode)));
  }
}

}  // namespace
}  // namespace rubato
