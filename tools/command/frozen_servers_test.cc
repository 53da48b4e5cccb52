#include "tools/command/frozen_servers.h"

#include <initializer_list>
#include <optional>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr absl::Duration kLease = absl::Seconds(8);  // of which 7.5 s of silence are borne

absl::Time At(double seconds) { return absl::UnixEpoch() + absl::Seconds(seconds); }

proto::JobStatus Missing(std::initializer_list<int> shards,
                         std::optional<int> lost = std::nullopt) {
  proto::JobStatus status;
  for (const int shard : shards) status.add_missing_shards(shard);
  if (lost.has_value()) status.set_lost_shard(*lost);
  return status;
}

class FrozenServersTest : public ::testing::Test {
 protected:
  FrozenServersTest() {
    for (const int shard : {0, 1, 2}) servers_.OnShardStarted(shard, At(0));
  }

  FrozenServers servers_{kLease};
};

TEST_F(FrozenServersTest, TheShardThatFellSilentIsKilledAtOnce) {
  EXPECT_THAT(servers_.OnStatus(Missing({1, 2}, 1), At(60)), ElementsAre(1));
  EXPECT_THAT(servers_.OnStatus(Missing({1, 2}, 1), At(60.5)), IsEmpty()) << "it is killed";
}

TEST_F(FrozenServersTest, AShardThatIsStartedAgainHasTimeToRegister) {
  EXPECT_THAT(servers_.OnStatus(Missing({1}, 1), At(60)), ElementsAre(1));
  servers_.OnShardStarted(1, At(61));
  EXPECT_THAT(servers_.OnStatus(Missing({1}, 1), At(61.5)), IsEmpty());
  EXPECT_THAT(servers_.OnStatus(Missing({1}, 1), At(71)), IsEmpty());
  EXPECT_THAT(servers_.OnStatus(Missing({1}, 1), At(71.5)), ElementsAre(1));
}

TEST_F(FrozenServersTest, AnotherShardHasTimeToComeBack) {
  EXPECT_THAT(servers_.OnStatus(Missing({2}), At(60)), IsEmpty());
  EXPECT_THAT(servers_.OnStatus(Missing({2}), At(69.9)), IsEmpty());
  EXPECT_THAT(servers_.OnStatus(Missing({2}), At(70)), ElementsAre(2));
  EXPECT_THAT(servers_.OnStatus(Missing({2}), At(70.5)), IsEmpty()) << "it is killed";
}

TEST_F(FrozenServersTest, OneThatWasBackIsMissedAnew) {
  EXPECT_THAT(servers_.OnStatus(Missing({2}), At(60)), IsEmpty());
  EXPECT_THAT(servers_.OnStatus(Missing({}), At(65)), IsEmpty());
  EXPECT_THAT(servers_.OnStatus(Missing({2}), At(66)), IsEmpty());
  servers_.OnProgress();
  EXPECT_THAT(servers_.OnStatus(Missing({2}), At(75)), IsEmpty());
  EXPECT_THAT(servers_.OnStatus(Missing({2}), At(84.5)), IsEmpty());
  EXPECT_THAT(servers_.OnStatus(Missing({2}), At(85)), ElementsAre(2));
}

TEST_F(FrozenServersTest, ACoordinatorIsKilledWhenItHasBeenMuteForAsLongAsIsBorne) {
  EXPECT_FALSE(servers_.OnSilence(/*is_mute=*/true, At(60)));
  EXPECT_FALSE(servers_.OnSilence(/*is_mute=*/true, At(67)));
  EXPECT_TRUE(servers_.OnSilence(/*is_mute=*/true, At(67.5)));
  EXPECT_FALSE(servers_.OnSilence(/*is_mute=*/true, At(68))) << "it is killed";
}

TEST_F(FrozenServersTest, ACoordinatorThatGaveASignOfLifeIsMuteAnew) {
  for (const int sign : {0, 1, 2, 3}) {
    const double begin = 100 * sign;
    EXPECT_FALSE(servers_.OnSilence(/*is_mute=*/true, At(begin)));
    if (sign == 0) servers_.OnSilence(/*is_mute=*/false, At(begin + 1));
    if (sign == 1) servers_.OnStatus({}, At(begin + 1));
    if (sign == 2) servers_.OnProgress();
    if (sign == 3) servers_.OnCoordinatorStarted();
    EXPECT_FALSE(servers_.OnSilence(/*is_mute=*/true, At(begin + 2))) << sign;
    EXPECT_FALSE(servers_.OnSilence(/*is_mute=*/true, At(begin + 9))) << sign;
    EXPECT_TRUE(servers_.OnSilence(/*is_mute=*/true, At(begin + 9.5))) << sign;
  }
}

}  // namespace
}  // namespace rubato
