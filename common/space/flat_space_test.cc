#include "common/space/flat_space.h"

#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace rubato {
namespace {

TEST(FlatSpaceTest, ShardsPartitionBlocksAndBlocksPartitionValues) {
  for (int64_t values : {1, 63, 64, 65, 1000, 4097}) {
    for (int64_t block_values : {1, 16, 64, 5000}) {
      for (int shards : {1, 2, 3, 7, 100}) {
        const FlatSpace space(values, block_values, shards);
        int64_t next_value = 0, next_block = 0;
        for (int shard = 0; shard < shards; ++shard) {
          const Range blocks = space.ShardBlocks(shard);
          EXPECT_EQ(blocks.begin, next_block);
          EXPECT_EQ(space.ShardValues(shard).begin, next_value);
          for (; next_block < blocks.end; ++next_block) {
            EXPECT_EQ(space.ShardOfBlock(next_block), shard);
            EXPECT_EQ(space.BlockValues(next_block).begin, next_value);
            next_value = space.BlockValues(next_block).end;
          }
          EXPECT_EQ(space.ShardValues(shard).end, next_value);
        }
        EXPECT_EQ(next_block, space.blocks());
        EXPECT_EQ(next_value, values);
      }
    }
  }
}

TEST(FlatSpaceTest, NoShardOwnsTwoBlocksMoreThanAnother) {
  const FlatSpace space(1000, 10, 7);
  for (int shard = 0; shard < 7; ++shard) {
    EXPECT_GE(space.ShardBlocks(shard).size(), 14);
    EXPECT_LE(space.ShardBlocks(shard).size(), 15);
  }
}

TEST(FlatSpaceTest, AShardWithoutBlocksIsLegal) {
  const FlatSpace space(10, 16, 3);
  int64_t owned = 0;
  for (int shard = 0; shard < 3; ++shard) owned += space.ShardBlocks(shard).size();
  EXPECT_EQ(owned, 1);
}

TEST(ValueCountTest, MultipliesExtentsAndAddsParameters) {
  proto::Layout layout;
  layout.add_parameters()->add_shape(5);
  layout.mutable_parameters(0)->add_shape(3);
  layout.add_parameters()->add_shape(5);
  EXPECT_EQ(ValueCount(layout), 20);
}

TEST(LayoutTest, ParameterAtNamesTheRange) {
  proto::Layout layout;
  const std::pair<const char*, std::vector<int64_t>> kParameters[] = {
      {"w", {2, 3}}, {"b", {2}}, {"none", {0}}, {"s", {}}};
  for (const auto& [name, shape] : kParameters) {
    proto::Parameter* parameter = layout.add_parameters();
    parameter->set_name(name);
    for (const int64_t extent : shape) parameter->add_shape(extent);
  }
  EXPECT_EQ(ParameterAt(layout, 0), "w");
  EXPECT_EQ(ParameterAt(layout, 5), "w");
  EXPECT_EQ(ParameterAt(layout, 6), "b");
  EXPECT_EQ(ParameterAt(layout, 7), "b");
  EXPECT_EQ(ParameterAt(layout, 8), "s");
}

}  // namespace
}  // namespace rubato
