#include "worker/model.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/random.h"
#include "common/status.h"
#include "worker/layers/build.h"

namespace rubato {
namespace {

absl::Status At(int index, const proto::Layer& layer, const absl::Status& status) {
  const google::protobuf::FieldDescriptor* kind =
      layer.GetReflection()->GetOneofFieldDescriptor(layer, layer.GetDescriptor()->oneof_decl(0));
  const std::string name = kind == nullptr ? "" : absl::StrCat(" (", kind->name(), ")");
  return absl::Status(status.code(),
                      absl::StrCat("model.layers[", index, "]", name, ": ", status.message()));
}

absl::Status CheckOutput(absl::Span<const int64_t> shape, const Objective& objective) {
  const int64_t outputs = objective.outputs;
  const bool classes = IsClassification(objective.loss);
  const std::string data = absl::StrCat(outputs, classes        ? " classes"
                                                 : outputs == 1 ? " target value"
                                                                : " target values");
  if (shape.size() != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("the last layer's output has shape ", ShapeText(shape),
                     "; expected one value for each of the data's ", data));
  }
  if (classes ? shape[0] < outputs : shape[0] != outputs) {
    return absl::InvalidArgumentError(absl::StrCat("the last layer gives ", shape[0],
                                                   shape[0] == 1 ? " value" : " values",
                                                   "; the data has ", data));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::unique_ptr<Layer>>> BuildLayers(
    const proto::Model& config, absl::Span<const int64_t> example_shape,
    const Objective& objective) {
  std::vector<std::unique_ptr<Layer>> layers;
  Shape shape(example_shape.begin(), example_shape.end());
  bool trainable = false;
  for (int i = 0; i < config.layers_size(); ++i) {
    absl::StatusOr<std::unique_ptr<Layer>> layer = BuildLayer(config.layers(i), shape);
    if (!layer.ok()) return At(i, config.layers(i), layer.status());
    shape = (*layer)->output_shape();
    trainable = trainable || !(*layer)->parameters().empty();
    layers.push_back(*std::move(layer));
  }
  if (!trainable) {
    return absl::InvalidArgumentError("model.layers: no layer has parameters; nothing to train");
  }
  const int last = config.layers_size() - 1;
  const absl::Status status = CheckOutput(shape, objective);
  if (!status.ok()) return At(last, config.layers(last), status);
  return layers;
}

proto::Layout NameParameters(absl::Span<const std::unique_ptr<Layer>> layers) {
  proto::Layout layout;
  for (size_t i = 0; i < layers.size(); ++i) {
    for (const proto::Parameter& parameter : layers[i]->parameters()) {
      proto::Parameter& named = *layout.add_parameters();
      named = parameter;
      named.set_name(absl::StrCat(i, ".", parameter.name()));
    }
  }
  return layout;
}

int64_t CountParameters(const Layer& layer) {
  int64_t count = 0;
  for (const proto::Parameter& parameter : layer.parameters()) count += SizeOf(parameter.shape());
  return count;
}

// The first n examples of a tensor that holds the activations of a maximal batch.
TensorRef FirstExamples(Tensor& tensor, int64_t n, const Shape& example) {
  const Shape shape = BatchOf(n, example);
  return tensor.ref().Slice(0, shape);
}

}  // namespace

absl::StatusOr<proto::Layout> LayoutOf(const proto::Model& config,
                                       absl::Span<const int64_t> example_shape,
                                       const Objective& objective) {
  RUBATO_ASSIGN_OR_RETURN(const auto layers, BuildLayers(config, example_shape, objective));
  return NameParameters(layers);
}

absl::StatusOr<std::unique_ptr<Model>> Model::Create(const proto::Model& config,
                                                     absl::Span<const int64_t> example_shape,
                                                     const Objective& objective, int64_t max_batch,
                                                     DType dtype) {
  RUBATO_CHECK(max_batch >= 1 && dtype != DType::kInt32);
  RUBATO_ASSIGN_OR_RETURN(auto layers, BuildLayers(config, example_shape, objective));
  auto model =
      absl::WrapUnique(new Model(NameParameters(layers), example_shape, objective, max_batch));
  int64_t widest = 0;  // values of an example's largest activation
  for (std::unique_ptr<Layer>& layer : layers) {
    Stage stage;
    stage.begin = model->parameter_count_;
    stage.parameters = CountParameters(*layer);
    model->parameter_count_ += stage.parameters;
    widest = std::max(widest, SizeOf(layer->output_shape()));
    if (!layer->OutputIsInput()) {
      RUBATO_ASSIGN_OR_RETURN(stage.output,
                              Tensor::Zeros(BatchOf(max_batch, layer->output_shape()), dtype));
    }
    stage.layer = std::move(layer);
    model->stages_.push_back(std::move(stage));
  }
  for (Tensor& gradient : model->gradients_) {
    RUBATO_ASSIGN_OR_RETURN(gradient, Tensor::Zeros({max_batch, widest}, dtype));
  }
  return model;
}

Model::Model(proto::Layout layout, absl::Span<const int64_t> example_shape,
             const Objective& objective, int64_t max_batch)
    : layout_(std::move(layout)),
      example_shape_(example_shape.begin(), example_shape.end()),
      objective_(objective),
      max_batch_(max_batch) {}

int64_t Model::Forward(const ConstTensorRef& parameters, const ConstTensorRef& features,
                       bool training, uint64_t key) {
  const int64_t n = features.size() / example_size();
  RUBATO_CHECK(n >= 1 && n <= max_batch_);
  RUBATO_CHECK(parameters.size() == parameter_count_);
  ConstTensorRef x = features.Reshaped(BatchOf(n, example_shape_));
  for (size_t i = 0; i < stages_.size(); ++i) {
    Stage& stage = stages_[i];
    stage.context = {training, Key(key, i)};
    stage.x = x;
    const Shape& shape = stage.layer->output_shape();
    if (stage.layer->OutputIsInput()) {
      stage.y = x.Reshaped(BatchOf(n, shape));
    } else {
      const TensorRef y = FirstExamples(stage.output, n, shape);
      stage.layer->Forward(stage.context, parameters.Slice(stage.begin, {stage.parameters}), x, y);
      stage.y = y;
    }
    x = stage.y;
  }
  return n;
}

BatchResult Model::Loss(const Targets& targets, const TensorRef& gradient) {
  return ComputeLoss(objective_.loss, stages_.back().y, targets, gradient);
}

ConstTensorRef Model::Logits(const ConstTensorRef& parameters, const ConstTensorRef& features) {
  Forward(parameters, features, /*training=*/false, /*key=*/0);
  return stages_.back().y;
}

BatchResult Model::Evaluate(const ConstTensorRef& parameters, const ConstTensorRef& features,
                            const Targets& targets) {
  const int64_t n = Forward(parameters, features, /*training=*/false, /*key=*/0);
  return Loss(targets, FirstExamples(gradients_[0], n, stages_.back().layer->output_shape()));
}

BatchResult Model::Gradient(const ConstTensorRef& parameters, const ConstTensorRef& features,
                            const Targets& targets, uint64_t key, const TensorRef& gradient,
                            absl::FunctionRef<void(int64_t begin)> ready) {
  const int64_t n = Forward(parameters, features, /*training=*/true, key);
  RUBATO_CHECK(gradient.size() == parameter_count_);
  int side = 0;  // of gradients_, that holds the gradient by the output of the stage at hand
  TensorRef dy = FirstExamples(gradients_[side], n, stages_.back().layer->output_shape());
  const BatchResult result = Loss(targets, dy);
  for (auto stage = stages_.rbegin(); stage != stages_.rend(); ++stage) {
    Layer& layer = *stage->layer;
    // The stage whose parameters come first in the vector: nothing before it wants a gradient.
    const bool first = stage->begin == 0 && stage->parameters > 0;
    TensorRef dx;
    if (layer.OutputIsInput()) {
      dx = dy.Reshaped(BatchOf(n, layer.input_shape()));
    } else {
      if (!first) {
        side = 1 - side;
        dx = FirstExamples(gradients_[side], n, layer.input_shape());
      }
      layer.Backward(stage->context, parameters.Slice(stage->begin, {stage->parameters}), stage->x,
                     stage->y, dy, dx, gradient.Slice(stage->begin, {stage->parameters}));
    }
    if (stage->parameters > 0) ready(stage->begin);
    if (first) break;
    dy = dx;
  }
  return result;
}

}  // namespace rubato
