#include "common/base/lease.h"

#include "gtest/gtest.h"

namespace rubato {
namespace {

class LeaseTest : public ::testing::TestWithParam<double> {
 protected:
  const absl::Duration lease_ = absl::Seconds(GetParam());
};

TEST_P(LeaseTest, WhoFallsSilentIsNoticedWithinIt) {
  EXPECT_LT(BorneSilence(lease_) + LeaseTick(lease_), lease_);
  const KeepAlive keep_alive(lease_);
  EXPECT_LT(keep_alive.ask + keep_alive.answer, lease_);
}

// The coordinator says that it was not heard of, and no connection breaks before.
TEST_P(LeaseTest, WhoHasHeartbeatsIsJudgedByThemFirst) {
  EXPECT_GT(KeepAlive(lease_).answer, BorneSilence(lease_) + LeaseTick(lease_));
}

// A beat that is not answered is given up when the next one is due, which follows at once.
TEST_P(LeaseTest, ThreeHeartbeatsMayBeLostInARow) {
  EXPECT_LE(4 * HeartbeatInterval(lease_), BorneSilence(lease_) - LeaseTick(lease_));
}

TEST_P(LeaseTest, AServerAsksBeforeItsClientsDo) {
  EXPECT_LT(KeepAlive(lease_).server_asks, KeepAlive(lease_).ask);
  EXPECT_GE(KeepAlive(lease_).server_asks, absl::Milliseconds(10));
}

// cluster.lease is 0.2 s at least.
INSTANTIATE_TEST_SUITE_P(Leases, LeaseTest, ::testing::Values(0.2, 1, 2, 4, 5, 3600, 86400));

}  // namespace
}  // namespace rubato
