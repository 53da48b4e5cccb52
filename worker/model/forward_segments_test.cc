#include "worker/model/forward_segments.h"

#include <utility>

#include "common/base/status_matchers.h"
#include "gtest/gtest.h"
#include "worker/model/preset_trajectory.h"
#include "worker/model/presets.h"

namespace rubato {
namespace {

Graph GraphOf(const char* model, const std::vector<int64_t>& shape) {
  const auto expanded = ExpandPreset(ParseModel(model), shape, 10);
  RUBATO_EXPECT_OK(expanded);
  auto graph = BuildGraph(*expanded, shape, 10);
  RUBATO_EXPECT_OK(graph);
  return *std::move(graph);
}

TEST(ForwardSegments, AreTheWholeModelInOrderAndNotMany) {
  for (const char* model : {"preset: PRESET_RESNET18", "preset: PRESET_RESNET20"}) {
    const Graph graph = GraphOf(model, {3, 32, 32});
    const std::vector<ForwardSegment> segments = ForwardSegments(graph, 1);
    EXPECT_GE(segments.size(), 6u);
    EXPECT_LE(segments.size(), 17u);
    ForwardSegment end = {{0, 0}, {0, 0}, {graph.trainable, graph.trainable}};
    for (const ForwardSegment& segment : segments) {
      EXPECT_EQ(segment.nodes.begin, end.nodes.end);
      EXPECT_EQ(segment.parameters.begin, end.parameters.end);
      EXPECT_EQ(segment.buffers.begin, end.buffers.end);
      for (int64_t i = segment.nodes.begin; i < segment.nodes.end; ++i) {
        const Graph::Node& node = graph.nodes[i];
        if (node.parameters > 0) {
          EXPECT_GE(node.begin, segment.parameters.begin);
        }
        EXPECT_LE(node.begin + node.parameters, segment.parameters.end);
        if (node.buffers > 0) {
          EXPECT_LE(node.buffer_begin + node.buffers, segment.buffers.end);
        }
      }
      end = segment;
    }
    EXPECT_EQ(end.nodes.end, static_cast<int64_t>(graph.nodes.size()));
    EXPECT_EQ(end.parameters.end, graph.trainable);
    EXPECT_EQ(end.buffers.end, graph.size);
  }
}

TEST(ForwardSegments, HaveAtLeastWhatIsAskedFor) {
  const Graph graph = GraphOf("preset: PRESET_MLP hidden: [20, 20]", {20});
  EXPECT_EQ(ForwardSegments(graph, graph.size).size(), 1u);
  const std::vector<ForwardSegment> segments = ForwardSegments(graph, 421);  // more than a layer
  ASSERT_EQ(segments.size(), 2u);
  EXPECT_EQ(segments[1].parameters.begin, 2 * 420);
}

TEST(ForwardSegments, OfNoParametersThereIsOne) {
  const Graph graph = GraphOf("layers { relu {} }", {10});
  EXPECT_EQ(ForwardSegments(graph, 1).size(), 1u);
}

}  // namespace
}  // namespace rubato
