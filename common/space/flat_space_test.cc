#include "common/space/flat_space.h"

#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace rubato {
namespace {

TEST(FlatSpaceTest, BlocksPartitionValues) {
  for (int64_t values : {1, 63, 64, 65, 1000, 4097}) {
    for (int64_t block_values : {1, 16, 64, 5000}) {
      const FlatSpace space(values, block_values);
      int64_t next = 0;
      for (int64_t block = 0; block < space.blocks(); ++block) {
        EXPECT_EQ(space.BlockValues(block).begin, next);
        next = space.BlockValues(block).end;
      }
      EXPECT_EQ(next, values);
    }
  }
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
