// Where forward on a device waits for parameters: it is cut in segments, each of which begins when
// its own are on their way.
#ifndef RUBATO_WORKER_MODEL_FORWARD_SEGMENTS_H_
#define RUBATO_WORKER_MODEL_FORWARD_SEGMENTS_H_

#include <cstdint>
#include <vector>

#include "common/space/flat_space.h"
#include "worker/model/graph.h"

namespace rubato {

// Nodes [nodes.begin, nodes.end), and what they read that none before them did.
struct ForwardSegment {
  Range nodes;
  Range parameters, buffers;  // of the flat vector
};

// In order, at least one; together they are all nodes and the whole flat vector. A segment ends
// when its parameters are a sixteenth of all and at least `least`: each is a launch of its own,
// some microseconds of the host's, and what forward waits for before it begins is the first alone.
std::vector<ForwardSegment> ForwardSegments(const Graph& graph, int64_t least);

}  // namespace rubato

#endif  // RUBATO_WORKER_MODEL_FORWARD_SEGMENTS_H_
