#include "worker/model/channel_orders.h"

#include <memory>
#include <string>
#include <vector>

#include "common/base/status_matchers.h"
#include "gtest/gtest.h"
#include "tensor/cuda/work_list.h"
#include "worker/model/network_cases.h"
#include "worker/model/presets.h"

namespace rubato {
namespace {

// Kernels that compute convolutions of multiples of 8 channels with the channels last.
class ChannelOrdersTest : public ::testing::Test {
 protected:
  void Build(const std::string& text, const Shape& shape) {
    const absl::StatusOr<proto::Model> model = ExpandPreset(Parse(text), shape, 10);
    RUBATO_ASSERT_OK(model);
    absl::StatusOr<Graph> graph = BuildGraph(*model, shape, /*classes=*/0);
    RUBATO_ASSERT_OK(graph);
    graph_ = *std::move(graph);
  }

  // "F" or "L" for each value that has an order, "." for others.
  std::string Orders(DType dtype = DType::kBFloat16) {
    std::string text;
    orders_ = PlanChannelOrders(graph_, 3, device_->kernels(), dtype);
    for (size_t value = 0; value < orders_.size(); ++value) {
      const Shape& shape = graph_.shapes[value];
      const bool has_order = shape.size() == 3 && shape[0] > 1 && shape[1] * shape[2] > 1;
      EXPECT_TRUE(has_order || orders_[value] == ChannelOrder::kFirst) << value;
      text += !has_order ? '.' : orders_[value] == ChannelOrder::kLast ? 'L' : 'F';
    }
    return text;
  }

  std::vector<Work> work_;
  const std::unique_ptr<Device> device_ =
      MakeWorkList(&work_, AttentionForm::kProducts, ConvolutionForm::kFused);
  Graph graph_;
  std::vector<ChannelOrder> orders_;
};

constexpr char kConv[] = "layers { conv2d { out_channels: 8 kernel_size: 3 padding: 1 } } ";

TEST_F(ChannelOrdersTest, OfAResNetAllButTheInputHaveThemLast) {
  for (const char* const preset : {"preset: PRESET_RESNET18", "preset: PRESET_RESNET20"}) {
    Build(preset, {3, 64, 64});
    const std::string orders = Orders();
    EXPECT_EQ(orders.substr(0, 4), "FLLL");
    EXPECT_EQ(orders.substr(orders.size() - 4), "L...") << "means, features and logits";
    EXPECT_EQ(orders.find('F', 1), std::string::npos) << orders;
  }
}

TEST_F(ChannelOrdersTest, WhereNoConvolutionComputesSoTheyAreFirst) {
  Build("preset: PRESET_RESNET20", {3, 64, 64});
  EXPECT_EQ(Orders(DType::kFloat32).find('L'), std::string::npos);
  Build(std::string(kConv) + "layers { relu {} } layers { flatten {} }", {3, 8, 8});
  EXPECT_EQ(Orders(), "FFF.") << "three channels are products of matrices";
}

TEST_F(ChannelOrdersTest, AreFirstWhereALayerKnowsNoOther) {
  for (const std::string layer :
       {"dropout { p: 0.5 }", "group_norm { num_groups: 2 }", "layer_norm { dimensions: 3 }"}) {
    Build(std::string(kConv) + "layers { relu {} } layers { " + layer + " } layers { relu {} } " +
              kConv + "layers { relu {} } " + kConv + "layers { flatten {} }",
          {8, 8, 8});
    EXPECT_EQ(Orders(), "FFFFFLLF.") << layer;
  }
}

TEST_F(ChannelOrdersTest, OfASumAndItsOperandsAreOne) {
  Build(std::string(kConv) + "layers { residual { layers { " +
            "conv2d { out_channels: 8 kernel_size: 1 } } shortcut { relu {} } } } " + kConv +
            "layers { relu {} } layers { adaptive_avg_pool2d { output_size: 1 } } ",
        {8, 8, 8});
  EXPECT_EQ(Orders(), "FLLLLLL.");
  Build(std::string(kConv) + "layers { residual { layers { " +
            "conv2d { out_channels: 8 kernel_size: 1 } } shortcut { dropout { p: 0.5 } } } } " +
            kConv + "layers { relu {} } layers { adaptive_avg_pool2d { output_size: 1 } } ",
        {8, 8, 8});
  EXPECT_EQ(Orders(), "FFFFFLL.");
}

TEST_F(ChannelOrdersTest, TheOutputsAreFirst) {
  Build(std::string(kConv) + kConv, {8, 8, 8});
  EXPECT_EQ(Orders(), "FLF");
}

// Features are turned behind the pooling, where they are fewer; and not where they are as many as
// the convolution turns.
TEST_F(ChannelOrdersTest, AreLastIfThatSparesMoreThanItCosts) {
  const std::string conv(kConv), pool = "layers { max_pool2d { kernel_size: 2 } } ",
                                 flatten = "layers { flatten {} }";
  Build(conv + pool + flatten, {8, 8, 8});
  EXPECT_EQ(Orders(), "FLL.");
  EXPECT_FALSE(IsAlias(graph_, orders_, 2));
  Build(conv + flatten, {8, 8, 8});
  EXPECT_EQ(Orders(), "FF.");
  EXPECT_TRUE(IsAlias(graph_, orders_, 1));
}

}  // namespace
}  // namespace rubato
