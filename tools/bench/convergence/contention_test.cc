#include "tools/bench/convergence/contention.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Meanwhile two cores work for 4 x (2 x 3 + 1) ms: 20 times half of that are 280 ms, 140 a
// micro-batch.
ProcessLoad Load(double delay_seconds) {
  ProcessLoad load;
  load.workers = 4;
  load.servers = 1;
  load.cores = 2;
  load.micro_batches = 2;
  load.delay_seconds = delay_seconds;
  load.computing_seconds = 0.003;
  load.changing_seconds = 0.001;
  return load;
}

TEST(ContentionTest, DelaysMustBeTwentyTimesWhatTheCoresWorkMeanwhile) {
  EXPECT_EQ(Contention(Load(0.141)), "");
  EXPECT_THAT(Contention(Load(0.139)),
              AllOf(HasSubstr("4 workers and 1 servers on 2 cores"),
                    HasSubstr("delayed by 139 ms, expected at least 140 ms"),
                    HasSubstr("--compute 140ms")));
  EXPECT_THAT(Contention(Load(0)), HasSubstr("delayed by 0 ms"));
}

TEST(ContentionTest, WhereEachHasACoreThereNeedBeNone) {
  ProcessLoad load = Load(0);
  load.cores = 4;
  EXPECT_NE(Contention(load), "");
  load.cores = 5;
  EXPECT_EQ(Contention(load), "");
}

}  // namespace
}  // namespace rubato
