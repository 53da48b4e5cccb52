#include "server/coordinator/assignments.h"

#include <algorithm>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace rubato {
namespace {

constexpr int64_t kLeaves = 8;
constexpr WorkerId kAnn{0, 1}, kBob{1, 1}, kCid{2, 1};

std::vector<int> Ranks(const Assignments& assignments, int64_t step) {
  std::vector<int> ranks;
  for (int64_t leaf = 0; leaf < kLeaves; ++leaf)
    ranks.push_back(assignments.Owner(step, leaf).rank);
  return ranks;
}

TEST(AssignmentsTest, MembersShareEvenly) {
  Assignments assignments(kLeaves);
  assignments.Change(0, 0, {kAnn, kBob, kCid});
  EXPECT_EQ(Ranks(assignments, 0), (std::vector<int>{0, 0, 1, 1, 1, 2, 2, 2}));
  EXPECT_EQ(Ranks(assignments, 100), Ranks(assignments, 0));
}

TEST(AssignmentsTest, MoreMembersThanLeavesLeaveSomeWithNothing) {
  Assignments assignments(2);
  assignments.Change(0, 0, {kAnn, kBob, kCid});
  EXPECT_EQ(assignments.Owner(0, 0).rank, 0);
  EXPECT_EQ(assignments.Owner(0, 1).rank, 1);
  EXPECT_FALSE(assignments.HasAny(kCid));
}

TEST(AssignmentsTest, StepsThatHaveBegunKeepTheirDivisionButForWhatTheLostHad) {
  Assignments assignments(kLeaves);
  assignments.Change(0, 0, {kAnn, kBob});
  assignments.Change(/*lowest=*/4, /*from_step=*/6, {kBob, kCid});
  EXPECT_EQ(Ranks(assignments, 5),
            (std::vector<int>{1, 1, 1, 1, 1, 1, 1, 1}));  // not Cid, who is new
  EXPECT_EQ(Ranks(assignments, 6), (std::vector<int>{1, 1, 1, 1, 2, 2, 2, 2}));
}

TEST(AssignmentsTest, AViewSaysAllOfIt) {
  Assignments assignments(kLeaves);
  assignments.Change(0, 0, {kAnn, kBob});
  assignments.Change(4, 6, {kAnn, kBob, kCid});
  proto::View view;
  assignments.AddTo(&view);
  ASSERT_EQ(view.assignments_size(), 2);
  EXPECT_EQ(view.assignments(0).from_step(), 4);
  EXPECT_EQ(view.assignments(1).from_step(), 6);
  for (const proto::Assignment& assignment : view.assignments()) {
    for (const proto::Grant& grant : assignment.grants()) {
      for (int64_t leaf = grant.first_leaf(); leaf < grant.end_leaf(); ++leaf) {
        EXPECT_EQ(assignments.Owner(assignment.from_step(), leaf).rank, grant.rank());
      }
    }
  }
}

// Members come and go at drawn steps. Each leaf of each open step has one owner, a member; and who
// stays keeps what it had of steps that had begun.
TEST(AssignmentsTest, EveryLeafHasOneOwnerWhoIsAMember) {
  for (uint32_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const auto draw = [&random](int below) { return static_cast<int>(random() % below); };
    Assignments assignments(kLeaves);
    std::map<std::pair<int64_t, int64_t>, WorkerId> before;  // by step and leaf
    int64_t lowest = 0, from_step = 0;
    for (int change = 0; change < 10; ++change) {
      std::vector<WorkerId> members;
      for (int rank = 0; rank < 5; ++rank) {
        if (draw(2) == 0) members.push_back({rank, static_cast<uint32_t>(1 + draw(2))});
      }
      if (members.empty()) continue;
      if (!before.empty()) {  // the first division is of all steps
        lowest = std::min<int64_t>(from_step, lowest + draw(3));
        from_step += draw(3);
      }
      assignments.Change(lowest, from_step, members);
      for (int64_t step = lowest; step < from_step + 3; ++step) {
        for (int64_t leaf = 0; leaf < kLeaves; ++leaf) {
          const WorkerId owner = assignments.Owner(step, leaf);
          const auto is_owner = [&owner](const WorkerId& member) { return member == owner; };
          ASSERT_TRUE(std::any_of(members.begin(), members.end(), is_owner))
              << "step " << step << " leaf " << leaf << ": rank " << owner.rank;
          const auto had = before.find({step, leaf});
          const bool stays = had != before.end() && std::find(members.begin(), members.end(),
                                                              had->second) != members.end();
          if (step < from_step && stays) {
            ASSERT_EQ(owner, had->second) << "step " << step << " leaf " << leaf;
          }
          before[{step, leaf}] = owner;
        }
      }
    }
  }
}

}  // namespace
}  // namespace rubato
