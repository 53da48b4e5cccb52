#include "server/coordinator/view_change.h"

#include "gtest/gtest.h"

namespace rubato {
namespace {

constexpr ShardId kFirst{0, 1}, kSecond{1, 1};

proto::ShardClosed Closed(uint32_t view, int64_t lowest, int64_t highest, int64_t clock = 0) {
  proto::ShardClosed closed;
  closed.set_view(view);
  closed.set_lowest_version(lowest);
  closed.set_highest_version(highest);
  closed.add_clocks()->set_rank(3);
  closed.mutable_clocks(0)->set_applied(clock);
  return closed;
}

TEST(ViewChangeTest, KnowsHowFarAllShardsHaveComeWhenTheLastHasClosed) {
  ViewChange change;
  EXPECT_EQ(change.Close(7, {kFirst, kSecond}).close().view(), 7u);
  EXPECT_FALSE(change.OnClosed(kSecond, Closed(7, 4, 5, /*clock=*/9)));
  EXPECT_TRUE(change.OnClosed(kFirst, Closed(7, 5, 6, /*clock=*/8)));
  EXPECT_EQ(change.lowest(), 4);
  EXPECT_EQ(change.highest(), 6);
  EXPECT_EQ(change.Clock(3), 8);
  EXPECT_EQ(change.Clock(2), 0);
  EXPECT_FALSE(change.has_one_version());
}

TEST(ViewChangeTest, TheFirstAnswerOfAShardToThisViewCounts) {
  ViewChange change;
  EXPECT_FALSE(change.OnClosed(kFirst, Closed(1, 0, 0))) << "nobody asked";
  change.Close(2, {kFirst, kSecond});
  EXPECT_FALSE(change.OnClosed(kFirst, Closed(1, 1, 1))) << "of the view before";
  EXPECT_FALSE(change.OnClosed(kFirst, Closed(2, 2, 2)));
  EXPECT_FALSE(change.OnClosed(kFirst, Closed(2, 3, 3))) << "for the second time";
  EXPECT_FALSE(change.OnClosed({1, 2}, Closed(2, 9, 9))) << "another incarnation";
  EXPECT_TRUE(change.OnClosed(kSecond, Closed(2, 2, 2)));
  EXPECT_EQ(change.highest(), 2);
}

TEST(ViewChangeTest, AShardWithoutBlocksHasNoVersion) {
  ViewChange change;
  change.Close(1, {kFirst, kSecond});
  proto::ShardClosed empty;
  empty.set_view(1);
  change.OnClosed(kFirst, empty);
  EXPECT_TRUE(change.OnClosed(kSecond, Closed(1, 3, 3)));
  EXPECT_TRUE(change.has_one_version());
  EXPECT_EQ(change.lowest(), 3);
}

// The first of two contributions is on all shards; of the second, one block holds its part.
TEST(ViewChangeTest, TellsTheLedgerWhatIsLeftOfTheLost) {
  WorkLedger ledger;
  ledger.Give({1, 1}, 2);
  ledger.Give({1, 1}, 2);
  ViewChange change;
  change.AddLost({1, 1});
  change.Close(1, {kFirst, kSecond});
  proto::ShardClosed closed = Closed(1, 1, 2);
  closed.set_units_below(1);
  change.OnClosed(kFirst, closed);
  closed.add_units_partial(1);
  change.OnClosed(kSecond, closed);
  change.Settle(&ledger);
  EXPECT_EQ(ledger.counts().applied, 1);
  EXPECT_EQ(ledger.counts().partial, 1);
  EXPECT_EQ(ledger.redo(), 1);
  change.Open();
  EXPECT_TRUE(change.lost().empty());
}

TEST(ViewChangeTest, ReasonsAreTakenOnce) {
  ViewChange change;
  change.AddReason("a");
  change.AddReason("b");
  EXPECT_EQ(change.TakeReasons(), "a; b");
  EXPECT_EQ(change.TakeReasons(), "");
}

}  // namespace
}  // namespace rubato
