#include "tools/simulator/link.h"

#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

using ::testing::Eq;
using ::testing::Optional;

TEST(LinkTest, AMachineOrAPairHasALatencyABandwidthOrBoth) {
  const auto worker = ParseLink("worker=3,latency=5ms,bandwidth=1Gbit", 4, 2);
  RUBATO_ASSERT_OK(worker);
  EXPECT_THAT(worker->worker, Optional(3));
  EXPECT_THAT(worker->shard, Eq(std::nullopt));
  EXPECT_THAT(worker->latency, Optional(5000000));
  EXPECT_THAT(worker->bytes_per_second, Optional(125e6));
  const auto pair = ParseLink("bandwidth=10MB,shard=1,worker=0", 4, 2);
  RUBATO_ASSERT_OK(pair);
  EXPECT_THAT(pair->worker, Optional(0));
  EXPECT_THAT(pair->shard, Optional(1));
  EXPECT_THAT(pair->latency, Eq(std::nullopt));
  EXPECT_THAT(pair->bytes_per_second, Optional(10e6));
}

TEST(LinkTest, AMistakeIsToldInOneSentence) {
  const std::pair<const char*, const char*> cases[] = {
      {"",
       "--link : found nothing, expected worker=N, shard=N, latency=TIME or bandwidth=RATE with "
       "commas between them"},
      {"worker=0,speed=3",
       "--link worker=0,speed=3: found speed=3, expected worker=N, shard=N, latency=TIME or "
       "bandwidth=RATE with commas between them"},
      {"worker=4,latency=1ms",
       "--link worker=4,latency=1ms: found worker=4, expected a number from 0 to 3: the job has 4 "
       "workers"},
      {"shard=x,latency=1ms",
       "--link shard=x,latency=1ms: found shard=x, expected a number from 0 to 1: the job has 2 "
       "shards"},
      {"shard=1,shard=0,latency=0",
       "--link shard=1,shard=0,latency=0: found shard twice, expected it once"},
      {"latency=1ms", "--link latency=1ms: found no machine, expected worker=N, shard=N or both"},
      {"worker=1",
       "--link worker=1: found nothing to change, expected latency=TIME, bandwidth=RATE or both"},
      {"worker=1,latency=fast",
       "--link worker=1,latency=fast: latency: found fast, expected a time with ns, us, ms, s, m "
       "or "
       "h, as 100us"},
      {"worker=1,bandwidth=0Gbit",
       "--link worker=1,bandwidth=0Gbit: bandwidth: found 0Gbit, expected kbit, Mbit, Gbit, kB, MB "
       "or GB (a second), as 10Gbit, or unlimited"},
  };
  for (const auto& [text, message] : cases) {
    EXPECT_THAT(ParseLink(text, 4, 2).status(),
                IsError(absl::StatusCode::kInvalidArgument, Eq(message)));
  }
}

}  // namespace
}  // namespace rubato
