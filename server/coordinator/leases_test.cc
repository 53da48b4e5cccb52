#include "server/coordinator/leases.h"

#include <algorithm>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

using ::testing::HasSubstr;

const absl::Time kStart = absl::UnixEpoch();

class LeasesTest : public ::testing::Test {
 protected:
  LeasesTest() : registry_(Job(), "digest", "1.0"), leases_(Job(), kStart) {
    for (PeerId id : {1, 2, 3}) {
      proto::Registration registration;
      registration.mutable_worker();
      registry_.Add(id, registration, kStart, &out_)->is_member = true;
    }
  }

  static proto::Job Job() {
    proto::Job job;
    job.mutable_cluster()->set_lease(5);
    job.mutable_cluster()->set_stall_timeout(20);
    job.mutable_cluster()->mutable_workers()->set_max(3);
    return job;
  }

  // While another is heard, or nobody.
  std::vector<Leases::Expired> CheckSilent(absl::Duration after, bool hears = true) {
    return CheckSilent(leases_, kStart + after, hears);
  }
  std::vector<Leases::Expired> CheckSilent(const Leases& leases, absl::Time now,
                                           bool hears = true) {
    if (hears) registry_.Find(3)->last_heard = now;
    return leases.CheckSilent(registry_, 7, now);
  }
  std::vector<Leases::Expired> CheckStalled() { return leases_.CheckStalled(registry_, 7); }

  coordinator::Outcomes out_;
  Registry registry_;
  Leases leases_;
};

TEST_F(LeasesTest, AMemberThatIsSilentIsTakenForDeadWithinTheLease) {
  registry_.Find(2)->last_heard = kStart + absl::Seconds(1);
  EXPECT_TRUE(CheckSilent(absl::Seconds(4.5)).empty());
  const std::vector<Leases::Expired> expired = CheckSilent(absl::Seconds(4.6));
  ASSERT_EQ(expired.size(), 1u);
  EXPECT_EQ(expired[0].peer, 1u);
  EXPECT_THAT(expired[0].why, HasSubstr("for 4.5s (cluster.lease: 5s) at step 7"));
}

TEST_F(LeasesTest, OneThatIsAtOneThingHasStalledUnlessNothingIsLeftToDo) {
  for (auto& [id, peer] : registry_.peers()) peer.busy_seconds = 20;
  registry_.Find(1)->idle = registry_.Find(3)->idle = true;
  EXPECT_TRUE(CheckStalled().empty());
  for (auto& [id, peer] : registry_.peers()) peer.busy_seconds = 20.1;
  const std::vector<Leases::Expired> expired = CheckStalled();
  ASSERT_EQ(expired.size(), 1u);
  EXPECT_EQ(expired[0].peer, 2u);
  EXPECT_THAT(expired[0].why, HasSubstr("stall_timeout"));
}

// Its own threads may be stuck.
TEST_F(LeasesTest, WhoHearsNobodyTakesNobodyForDead) {
  EXPECT_TRUE(CheckSilent(absl::Seconds(5.5), /*hears=*/false).empty());
  registry_.Find(3)->last_heard = kStart + absl::Seconds(3.5);
  EXPECT_EQ(CheckSilent(absl::Seconds(5.5), /*hears=*/false).size(), 2u);
  EXPECT_TRUE(CheckSilent(absl::Seconds(5.6), /*hears=*/false).empty());
}

TEST_F(LeasesTest, AShardOfAnotherProcessHasALease) {
  proto::Registration registration;
  registration.set_shard(0);
  registry_.Add(kOwnShard, registration, kStart, &out_);
  registration.set_shard(1);
  registry_.Add(4, registration, kStart, &out_);
  for (const PeerId id : {1, 2}) registry_.Find(id)->last_heard = kStart + absl::Seconds(6);
  EXPECT_TRUE(CheckSilent(absl::Seconds(4.5)).empty());
  const std::vector<Leases::Expired> expired = CheckSilent(absl::Seconds(6));
  ASSERT_EQ(expired.size(), 1u);
  EXPECT_EQ(expired[0].peer, 4u);
}

TEST_F(LeasesTest, OneThatIsNoMemberYetIsNotJudged) {
  for (auto& [id, peer] : registry_.peers()) peer.is_member = false;
  EXPECT_TRUE(CheckSilent(absl::Seconds(60)).empty());
  for (auto& [id, peer] : registry_.peers()) peer.busy_seconds = 60;
  EXPECT_TRUE(CheckStalled().empty());
}

// Their heartbeats may lie in the sockets.
TEST_F(LeasesTest, WhomALateTickFindsSilentIsSparedForAsLongAsItWasLateAtMostForWhatIsBorne) {
  for (const double late : {2.0, 100.0}) {
    SCOPED_TRACE(late);
    Leases leases(Job(), kStart);
    registry_.Find(1)->last_heard = registry_.Find(2)->last_heard = kStart - absl::Seconds(4);
    const absl::Time tick = kStart + absl::Seconds(late);
    const absl::Time end = tick + absl::Seconds(std::min(late, 4.5));
    const auto check = [&](absl::Time now) { return CheckSilent(leases, now); };
    leases.OnTick(tick, &registry_);
    EXPECT_TRUE(check(tick).empty());
    registry_.Find(2)->last_heard = tick;
    EXPECT_TRUE(check(end - absl::Milliseconds(1)).empty());
    const std::vector<Leases::Expired> expired = check(end);
    ASSERT_EQ(expired.size(), 1u);
    EXPECT_EQ(expired[0].peer, 1u);
  }
}

TEST_F(LeasesTest, LateTicksInARowDoNotKeepASilentWorker) {
  for (int tick = 1; tick <= 8; ++tick) {
    const absl::Duration at = tick * absl::Seconds(0.8);
    leases_.OnTick(kStart + at, &registry_);
    EXPECT_EQ(CheckSilent(at).empty(), at <= absl::Seconds(4.8)) << at;
  }
}

TEST_F(LeasesTest, AFrozenServerBlamesNobodyForATest) {
  const auto check = [this](absl::Duration after) {
    return leases_.CheckTester(1, *registry_.Find(1), "the test", kStart + after).has_value();
  };
  leases_.OnTick(kStart + absl::Seconds(30), &registry_);
  registry_.Find(1)->last_heard = kStart + absl::Seconds(49);
  EXPECT_FALSE(check(absl::Seconds(49)));
  EXPECT_TRUE(check(absl::Seconds(50)));
}

}  // namespace
}  // namespace rubato
