// A model as a list of nodes: what a job's layers come to when compositions are taken apart.
#ifndef RUBATO_WORKER_MODEL_GRAPH_H_
#define RUBATO_WORKER_MODEL_GRAPH_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/job.pb.h"
#include "proto/layout.pb.h"
#include "tensor/tensor.h"
#include "worker/model/layers/layer.h"

namespace rubato {

// Value 0 is the input; value i + 1 what node i gives. A node takes values before its own.
struct Graph {
  struct Node {
    std::unique_ptr<Layer> layer;  // null: the sum of two values
    int input = 0;
    int other = -1;  // of a sum
    // In the flat vector: [begin, begin + parameters), and its buffers likewise.
    int64_t begin = 0, parameters = 0;
    int64_t buffer_begin = 0, buffers = 0;
  };

  std::vector<Node> nodes;
  std::vector<Shape> shapes;  // of one example of each value
  // Parameters in the order of the nodes, then all buffers: the flat vector.
  proto::Layout layout;
  int64_t trainable = 0;  // values of parameters, before the buffers
  int64_t size = 0;       // of the flat vector
};

// The graph of `config`, which has layers and no preset (see worker/model/presets.h), on examples
// of shape `example_shape`. `classes`: of the data, for embeddings that say nothing else;
// `symbols`: as an Objective's. InvalidArgument, naming the layer, if layers do not fit one another
// or the data.
absl::StatusOr<Graph> BuildGraph(const proto::Model& config,
                                 absl::Span<const int64_t> example_shape, int64_t classes,
                                 std::optional<int64_t> symbols = std::nullopt);

}  // namespace rubato

#endif  // RUBATO_WORKER_MODEL_GRAPH_H_
