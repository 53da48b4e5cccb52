#include "worker/layers/build.h"

#include "absl/status/status.h"
#include "worker/layers/activation.h"
#include "worker/layers/dropout.h"
#include "worker/layers/flatten.h"
#include "worker/layers/linear.h"

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
    case proto::Layer::KIND_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError("no kind of layer is given");
}

}  // namespace rubato
