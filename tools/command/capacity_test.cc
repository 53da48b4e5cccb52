#include "tools/command/capacity.h"

#include "absl/strings/str_format.h"
#include "common/base/check.h"
#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

Plan PlanOf(int servers, int workers) {
  proto::Job job;
  job.mutable_cluster()->set_servers(servers);
  job.mutable_cluster()->mutable_workers()->set_start(workers);
  job.mutable_data()->set_format(proto::Data::FORMAT_GLYPHS);
  job.mutable_model()->add_layers()->mutable_flatten();
  job.mutable_model()->add_layers()->mutable_linear()->set_out_features(10);
  job.mutable_train()->set_batch_size(10);
  job.mutable_train()->mutable_until()->set_steps(1);
  auto plan = MakePlan(job);
  RUBATO_CHECK(plan.ok());
  return *std::move(plan);
}

TEST(CapacityTest, RefusesTwiceTheMemoryOfTheHost) {
  const Plan plan = PlanOf(2, 500);
  const int64_t wanted = MemoryInTraining(plan);
  RUBATO_EXPECT_OK(CheckCapacity({(wanted + 1) / 2, {}}, plan));
  const std::string all = absl::StrFormat("%.1f MB", wanted * 1e-6);
  EXPECT_THAT(DryRunText(plan), ContainsRegex("#  all of them +" + all));
  EXPECT_THAT(CheckCapacity({wanted / 2 - 1, {}}, plan),
              IsError(kInvalid, AllOf(HasSubstr("cluster: found 2 servers and 500 workers, which "
                                                "take " +
                                                all),
                                      HasSubstr("twice its memory and swap"))));
}

TEST(CapacityTest, RefusesMoreProcessesThanTheHostMayRun) {
  Plan plan = PlanOf(1, 99);
  RUBATO_EXPECT_OK(CheckCapacity({{}, 100}, plan));
  plan.job.mutable_cluster()->set_dedicated_coordinator(true);
  EXPECT_THAT(CheckCapacity({{}, 100}, plan),
              IsError(kInvalid, HasSubstr("found 1 server and 99 workers to start on this host, "
                                          "expected no more than the 100 processes")));
}

// Of a script's workers, whose models are not known, what they take without.
TEST(CapacityTest, CountsTheWorkersOfAScript) {
  Plan plan;
  plan.job.mutable_model()->set_preset(proto::Model::PRESET_SCRIPT);
  plan.job.add_script("true");
  plan.job.mutable_cluster()->mutable_workers()->set_start(1000);
  RUBATO_EXPECT_OK(CheckCapacity({int64_t{1} << 40, {}}, plan));
  EXPECT_THAT(CheckCapacity({int64_t{1} << 30, {}}, plan),
              IsError(kInvalid, HasSubstr("1000 workers")));
}

TEST(CapacityTest, KnowsWhatThisHostHas) {
  const Capacity capacity = CapacityOfThisHost();
  EXPECT_GT(capacity.memory.value_or(0), 1 << 20);
  EXPECT_GT(capacity.processes.value_or(0), 2);
}

}  // namespace
}  // namespace rubato
