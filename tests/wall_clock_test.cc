// Processes whose wall clock is stepped: leases, waits and time-outs go by another one.
#include <signal.h>
#include <stdlib.h>

#include <filesystem>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/membership.h"

namespace rubato {
namespace {

class WallClockTest : public MembershipJob {
 protected:
  WallClockTest() {  // processes that are started from here on
    setenv("LD_PRELOAD", std::filesystem::absolute("tests/libstepping_clock.so").c_str(), 1);
  }
  ~WallClockTest() override { unsetenv("LD_PRELOAD"); }
};

TEST_F(WallClockTest, OnlyWhoIsSilentIsTakenForDead) {
  Begin({"consistency=sync"}, 3);
  ASSERT_TRUE(AwaitSteps(100));
  EXPECT_EQ(View()["members"].size(), 3);
  EXPECT_EQ(View()["view"], 1) << View();
  worker(1).Signal(SIGSTOP);
  EXPECT_TRUE(AwaitSaid("was not heard of for 875ms (cluster.lease: 1s)"));
  EXPECT_TRUE(AwaitSteps(100));
  worker(1).Signal(SIGCONT);
  EXPECT_TRUE(AwaitText(worker(1).err_path(), "joins anew", worker(1)));
  EXPECT_TRUE(AwaitMembers(3));
  Stop();
  ExpectBitsOfTheUndisturbed();
}

}  // namespace
}  // namespace rubato
