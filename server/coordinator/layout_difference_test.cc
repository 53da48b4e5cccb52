#include "server/coordinator/layout_difference.h"

#include "gtest/gtest.h"

namespace rubato {
namespace {

proto::Layout MakeLayout() {
  proto::Layout layout;
  for (const char* name : {"1.weight", "1.bias"}) {
    proto::Parameter* parameter = layout.add_parameters();
    parameter->set_name(name);
    parameter->add_shape(10);
  }
  layout.mutable_optimizer()->set_learning_rate(0.5);
  layout.mutable_optimizer()->add_betas(0.9);
  return layout;
}

TEST(LayoutDifferenceTest, NamesWhatIsNotTrained) {
  proto::Layout expected = MakeLayout();
  for (const char* name : {"2.weight", "2.bias"}) {
    proto::Constant* constant = expected.add_constants();
    constant->set_name(name);
    constant->set_digest("5f");
  }
  for (auto* difference : {&LayoutDifference, &ConstantsDifference}) {
    EXPECT_EQ((*difference)(expected, expected), "");
    proto::Layout found = expected;
    found.mutable_constants(1)->set_digest("60");
    EXPECT_EQ((*difference)(found, expected),
              "2.bias, which is not trained: found other values, or another type (does the script "
              "draw them without "
              "a seed? Call torch.manual_seed first)");
    found.mutable_constants(0)->set_name("3.weight");
    EXPECT_EQ((*difference)(found, expected),
              "of those that are not trained number 0: found 3.weight, expected 2.weight");
    found = expected;
    found.mutable_constants()->RemoveLast();
    EXPECT_EQ((*difference)(found, expected), "found 1 that are not trained, expected 2");
  }
}

TEST(LayoutDifferenceTest, NamesTheFirstThatIsNotTheSame) {
  const proto::Layout expected = MakeLayout();
  EXPECT_EQ(LayoutDifference(expected, expected), "");

  proto::Layout found = expected;
  found.mutable_parameters(1)->add_shape(4);
  EXPECT_EQ(LayoutDifference(found, expected), "1.bias: found shape (10, 4), expected (10)");

  found = expected;
  found.mutable_parameters(0)->set_name("0.weight");
  EXPECT_EQ(LayoutDifference(found, expected), "parameter 0: found 0.weight, expected 1.weight");

  found = expected;
  found.mutable_parameters(0)->mutable_init()->set_constant(1);
  EXPECT_EQ(LayoutDifference(found, expected), "1.weight: found another initial distribution");

  found = expected;
  found.mutable_parameters()->RemoveLast();
  EXPECT_EQ(LayoutDifference(found, expected), "found 1 parameters, expected 2");

  found = expected;
  found.mutable_optimizer()->clear_learning_rate();
  EXPECT_EQ(LayoutDifference(found, expected),
            "optimizer.learning_rate: found nothing, expected 0.5");

  found = expected;
  found.mutable_optimizer()->set_betas(0, 0.8);
  EXPECT_EQ(LayoutDifference(found, expected), "optimizer.betas: found [0.8], expected [0.9]");
}

}  // namespace
}  // namespace rubato
