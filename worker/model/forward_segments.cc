#include "worker/model/forward_segments.h"

#include <algorithm>

#include "common/base/check.h"

namespace rubato {

std::vector<ForwardSegment> ForwardSegments(const Graph& graph, int64_t least) {
  constexpr int64_t kMostSegments = 16;
  const int64_t enough = std::max(least, graph.trainable / kMostSegments);
  std::vector<ForwardSegment> segments;
  ForwardSegment segment = {{0, 0}, {0, 0}, {graph.trainable, graph.trainable}};
  for (const Graph::Node& node : graph.nodes) {
    if (node.parameters > 0 && segment.parameters.size() >= enough) {
      segments.push_back(segment);
      segment = {{segment.nodes.end, segment.nodes.end},
                 {segment.parameters.end, segment.parameters.end},
                 {segment.buffers.end, segment.buffers.end}};
    }
    ++segment.nodes.end;
    if (node.parameters > 0) {
      RUBATO_CHECK(node.begin == segment.parameters.end);
      segment.parameters.end += node.parameters;
    }
    if (node.buffers > 0) {
      RUBATO_CHECK(node.buffer_begin == segment.buffers.end);
      segment.buffers.end += node.buffers;
    }
  }
  RUBATO_CHECK(segment.parameters.end == graph.trainable && segment.buffers.end == graph.size);
  segments.push_back(segment);
  return segments;
}

}  // namespace rubato
