#include "common/space/placement.h"

#include <vector>

#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(PlacementTest, EvenShardsPartitionTheSpaceInOrder) {
  for (int64_t values : {1, 63, 64, 65, 1000, 4097}) {
    for (int64_t block_values : {1, 16, 64, 5000}) {
      for (int shards : {1, 2, 3, 7, 100}) {
        const Placement placement = Placement::Even(FlatSpace(values, block_values), shards);
        int64_t next_value = 0, next_block = 0;
        for (int shard = 0; shard < shards; ++shard) {
          const Range blocks = placement.Blocks(shard);
          EXPECT_EQ(blocks.begin, next_block);
          EXPECT_EQ(placement.Values(shard).begin, next_value);
          for (; next_block < blocks.end; ++next_block) {
            EXPECT_EQ(placement.ShardOf(next_block), shard);
            next_value = placement.space().BlockValues(next_block).end;
          }
          EXPECT_EQ(placement.Values(shard).end, next_value);
          EXPECT_LE(placement.Values(shard).size(), placement.max_values());
        }
        EXPECT_EQ(next_block, placement.space().blocks());
        EXPECT_EQ(next_value, values);
      }
    }
  }
}

TEST(PlacementTest, NoEvenShardOwnsTwoBlocksMoreThanAnother) {
  const Placement placement = Placement::Even(FlatSpace(1000, 10), 7);
  for (int shard = 0; shard < 7; ++shard) {
    EXPECT_GE(placement.Blocks(shard).size(), 14);
    EXPECT_LE(placement.Blocks(shard).size(), 15);
  }
}

TEST(PlacementTest, AShardWithoutBlocksIsLegal) {
  const Placement placement = Placement::Even(FlatSpace(10, 16), 3);
  int64_t owned = 0;
  for (int shard = 0; shard < 3; ++shard) owned += placement.Blocks(shard).size();
  EXPECT_EQ(owned, 1);
  EXPECT_EQ(placement.owners(), 1);
}

// A job of `blocks` blocks of four floats, the last one short.
class StatedPlacementTest : public ::testing::Test {
 protected:
  absl::StatusOr<Placement> Of(int64_t blocks, const std::vector<Range>& shards) {
    proto::Job job;
    job.mutable_wire()->set_chunk(16);
    proto::View view;
    view.set_number(7);
    view.mutable_layout()->add_parameters()->add_shape(4 * blocks - 1);
    for (const Range& blocks : shards) {
      proto::Shard* shard = view.add_shards();
      shard->set_first_block(blocks.begin);
      shard->set_end_block(blocks.end);
    }
    return Placement::Of(job, view);
  }
};

TEST_F(StatedPlacementTest, IsReadInAnyOrder) {
  const absl::StatusOr<Placement> placement = Of(5, {{3, 5}, {0, 0}, {0, 3}, {5, 5}});
  RUBATO_ASSERT_OK(placement);
  EXPECT_EQ(placement->shards(), 4);
  EXPECT_EQ(placement->owners(), 2);
  EXPECT_EQ(placement->Values(0), (Range{12, 19}));
  EXPECT_TRUE(placement->Blocks(1).empty());
  std::vector<int> owners;
  for (int64_t block = 0; block < 5; ++block) owners.push_back(placement->ShardOf(block));
  EXPECT_THAT(owners, ElementsAre(2, 2, 2, 0, 0));
}

TEST_F(StatedPlacementTest, IsWhatWasStated) {
  const Placement even = Placement::Even(FlatSpace(19, 4), 3);
  proto::View view;
  view.mutable_layout()->add_parameters()->add_shape(19);
  even.AddTo(&view);
  for (int shard = 0; shard < 3; ++shard) {
    view.mutable_shards(shard)->set_address(std::string(1, static_cast<char>('a' + shard)));
  }
  proto::Job job;
  job.mutable_wire()->set_chunk(16);
  const absl::StatusOr<Placement> placement = Placement::Of(job, view);
  RUBATO_ASSERT_OK(placement);
  for (int shard = 0; shard < 3; ++shard) EXPECT_EQ(placement->Blocks(shard), even.Blocks(shard));
  EXPECT_EQ(view.shards(1).incarnation(), 1u);
  EXPECT_THAT(ShardAddresses(view), ElementsAre("a", "b", "c"));
}

TEST_F(StatedPlacementTest, IsRefusedUnlessEachBlockHasOneShard) {
  const auto refused = [](const std::string& sentence) {
    return IsError(absl::StatusCode::kInvalidArgument, HasSubstr(sentence));
  };
  EXPECT_THAT(Of(5, {}), refused("view 7 has no shards"));
  EXPECT_THAT(Of(5, {{0, 3}, {2, 5}}), refused("view 7 gives block 2 to two shards"));
  EXPECT_THAT(Of(5, {{0, 5}, {1, 2}}), refused("view 7 gives block 1 to two shards"));
  EXPECT_THAT(Of(5, {{1, 5}}), refused("view 7 gives block 0 to no shard"));
  EXPECT_THAT(Of(5, {{3, 5}, {0, 2}}), refused("view 7 gives block 2 to no shard"));
  EXPECT_THAT(Of(5, {{0, 4}}), refused("view 7 gives block 4 to no shard"));
  EXPECT_THAT(Of(5, {{0, 3}, {3, 6}}), refused("gives shard 1 blocks [3, 6) of a space of 5"));
  EXPECT_THAT(Of(5, {{-1, 5}}), refused("gives shard 0 blocks [-1, 5) of a space of 5"));
  EXPECT_THAT(Of(5, {{0, 5}, {3, 2}}), refused("gives shard 1 blocks [3, 2) of a space of 5"));
}

}  // namespace
}  // namespace rubato
