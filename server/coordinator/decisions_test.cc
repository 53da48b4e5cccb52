#include "server/coordinator/decisions.h"

#include "gtest/gtest.h"

namespace rubato {
namespace {

// Decides when two shards have asked.
class BothAsked : public Arrivals {
 public:
  BothAsked() : Arrivals(proto::View()) {}
  std::optional<proto::Decision> Decide(
      const std::map<int, proto::Question>& by_shard) const override {
    ++decided;
    return by_shard.size() < 2 ? std::nullopt : std::make_optional(proto::Decision());
  }
  mutable int decided = 0;
};

class DecisionsTest : public testing::Test {
 protected:
  DecisionsTest()
      : decisions_({}, Placement::Even(FlatSpace(4, 2), 2), {{0, 1}, {1, 1}}, /*trainable=*/4) {}

  std::optional<Decisions::Answer> Ask(int shard, int64_t unit, int64_t first_open,
                                       bool measured = false) {
    proto::Question question;
    question.set_unit(unit);
    if (measured) question.mutable_measured();
    return decisions_.OnQuestion({shard, 1}, question, policy_, first_open);
  }

  BothAsked policy_;
  Decisions decisions_;
};

TEST_F(DecisionsTest, OneForEachUnitUntilAllAreDoneWithIt) {
  EXPECT_FALSE(Ask(0, 5, 5).has_value());
  EXPECT_FALSE(Ask(0, 6, 5).has_value());
  const std::optional<Decisions::Answer> six = Ask(1, 6, 5);
  ASSERT_TRUE(six.has_value());
  EXPECT_TRUE(six->is_new);
  EXPECT_EQ(six->decision.unit(), 6);
  EXPECT_TRUE(Ask(1, 5, 5)->is_new);
  // A later one supersedes none: another may ask again as long as a unit is open.
  EXPECT_FALSE(Ask(0, 6, 5)->is_new);
  EXPECT_FALSE(Ask(0, 5, 5)->is_new);
  EXPECT_EQ(policy_.decided, 4);
  EXPECT_FALSE(Ask(0, 6, 7).has_value());  // a question that has come too late
  // Another lineage may count them anew.
  decisions_.BeginLineage();
  EXPECT_FALSE(Ask(0, 6, 6).has_value());
  EXPECT_TRUE(Ask(1, 6, 6)->is_new);
}

TEST_F(DecisionsTest, TheModesAndTheJobsOnOneStepAreTwo) {
  Ask(0, 3, 3);
  EXPECT_FALSE(Ask(0, 3, 3, /*measured=*/true).has_value());
  const std::optional<Decisions::Answer> mode = Ask(1, 3, 3);
  ASSERT_TRUE(mode.has_value());
  EXPECT_FALSE(mode->decision.has_verdict());
  const std::optional<Decisions::Answer> verdict = Ask(1, 3, 3, /*measured=*/true);
  ASSERT_TRUE(verdict.has_value());
  EXPECT_TRUE(verdict->is_new);
  EXPECT_TRUE(verdict->decision.verdict().apply());
}

}  // namespace
}  // namespace rubato
