#include "worker/model/layers/build.h"

#include "absl/status/status.h"
#include "worker/model/layers/activation.h"
#include "worker/model/layers/conv2d.h"
#include "worker/model/layers/dropout.h"
#include "worker/model/layers/embedding.h"
#include "worker/model/layers/flatten.h"
#include "worker/model/layers/linear.h"
#include "worker/model/layers/norm.h"
#include "worker/model/layers/pool.h"

namespace rubato {

absl::StatusOr<std::unique_ptr<Layer>> BuildLayer(const proto::Layer& config,
                                                  absl::Span<const int64_t> input_shape) {
  switch (config.kind_case()) {
    case proto::Layer::kFlatten:
      return std::make_unique<FlattenLayer>(input_shape);
    case proto::Layer::kLinear:
      return LinearLayer::Create(config.linear(), input_shape);
    case proto::Layer::kRelu:
      return MakeRelu(input_shape);
    case proto::Layer::kGelu:
      return MakeGelu(config.gelu(), input_shape);
    case proto::Layer::kTanh:
      return MakeTanh(input_shape);
    case proto::Layer::kSigmoid:
      return MakeSigmoid(input_shape);
    case proto::Layer::kDropout:
      return DropoutLayer::Create(config.dropout(), input_shape);
    case proto::Layer::kConv2D:
      return Conv2dLayer::Create(config.conv2d(), input_shape);
    case proto::Layer::kMaxPool2D:
      return MakeMaxPool2d(config.max_pool2d(), input_shape);
    case proto::Layer::kAvgPool2D:
      return MakeAvgPool2d(config.avg_pool2d(), input_shape);
    case proto::Layer::kAdaptiveAvgPool2D:
      return MakeAdaptiveAvgPool2d(config.adaptive_avg_pool2d(), input_shape);
    case proto::Layer::kLayerNorm:
      return MakeLayerNorm(config.layer_norm(), input_shape);
    case proto::Layer::kGroupNorm:
      return MakeGroupNorm(config.group_norm(), input_shape);
    case proto::Layer::kBatchNorm:
      return MakeBatchNorm(config.batch_norm(), input_shape);
    case proto::Layer::kEmbedding:
      return MakeEmbedding(config.embedding(), input_shape);
    case proto::Layer::kPositionEmbedding:
      return MakePositionEmbedding(input_shape);
    case proto::Layer::kSequential:
    case proto::Layer::kResidual:
    case proto::Layer::kAttention:
    case proto::Layer::kTransformerBlock:
      break;  // of several layers: see worker/model/graph.h
    case proto::Layer::KIND_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError("no kind of layer is given");
}

}  // namespace rubato
