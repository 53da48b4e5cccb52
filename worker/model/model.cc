#include "worker/model/model.h"

#include <string>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status.h"
#include "worker/model/presets.h"

namespace rubato {
namespace {

absl::Status CheckOutput(absl::Span<const int64_t> shape, const Objective& objective) {
  const int64_t outputs = objective.outputs;
  const bool classes = IsClassification(objective.loss);
  const std::string data = absl::StrCat(outputs, classes        ? " classes"
                                                 : outputs == 1 ? " target value"
                                                                : " target values");
  const bool has_places = objective.places > 1;
  if (shape.size() != (has_places ? 2 : 1) || (has_places && shape[0] != objective.places)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the last layer's output has shape ", ShapeText(shape),
        "; expected one value for each of the data's ", data,
        has_places ? absl::StrCat(", for each of ", objective.places, " places") : ""));
  }
  const int64_t given = shape.back();
  if (classes ? given < outputs : given != outputs) {
    return absl::InvalidArgumentError(absl::StrCat("the last layer gives ", given,
                                                   given == 1 ? " value" : " values",
                                                   "; the data has ", data));
  }
  if (!objective.class_weights.empty() && given != outputs) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the last layer gives ", given, " values; loss.class_weights has one for each of ", data));
  }
  return absl::OkStatus();
}

// "model.layers[2] (linear)", of the last.
std::string LastLayer(const proto::Model& config) {
  const proto::Layer& layer = config.layers(config.layers_size() - 1);
  const google::protobuf::FieldDescriptor* kind =
      layer.GetReflection()->GetOneofFieldDescriptor(layer, layer.GetDescriptor()->oneof_decl(0));
  return absl::StrCat("model.layers[", config.layers_size() - 1, "] (", kind->name(), ")");
}

absl::StatusOr<Graph> Build(const proto::Model& config, absl::Span<const int64_t> example_shape,
                            const Objective& objective) {
  RUBATO_ASSIGN_OR_RETURN(const proto::Model model,
                          ExpandPreset(config, example_shape, objective.outputs));
  RUBATO_ASSIGN_OR_RETURN(Graph graph,
                          BuildGraph(model, example_shape, objective.outputs, objective.symbols));
  if (graph.trainable == 0) {
    return absl::InvalidArgumentError("model.layers: no layer has parameters; nothing to train");
  }
  const absl::Status status = CheckOutput(graph.shapes.back(), objective);
  if (!status.ok()) {
    return absl::Status(status.code(), absl::StrCat(LastLayer(model), ": ", status.message()));
  }
  return graph;
}

}  // namespace

absl::StatusOr<proto::Layout> LayoutOf(const proto::Model& config,
                                       absl::Span<const int64_t> example_shape,
                                       const Objective& objective) {
  RUBATO_ASSIGN_OR_RETURN(const Graph graph, Build(config, example_shape, objective));
  return graph.layout;
}

absl::StatusOr<int64_t> MemoryOf(const proto::Model& config,
                                 absl::Span<const int64_t> example_shape,
                                 const Objective& objective, int64_t max_batch, Purpose purpose) {
  RUBATO_ASSIGN_OR_RETURN(const Graph graph, Build(config, example_shape, objective));
  return PlanMemory(graph, max_batch, purpose).size * BytesOf(DType::kFloat32);
}

absl::StatusOr<std::unique_ptr<Model>> Model::Create(const proto::Model& config,
                                                     absl::Span<const int64_t> example_shape,
                                                     const Objective& objective, int64_t max_batch,
                                                     DType dtype, Purpose purpose,
                                                     std::unique_ptr<Device> device,
                                                     const Keeping& keeping) {
  RUBATO_ASSIGN_OR_RETURN(Graph graph, Build(config, example_shape, objective));
  if (device != nullptr) {
    RUBATO_ASSIGN_OR_RETURN(std::unique_ptr<DeviceStep> step,
                            DeviceStep::Create(std::move(graph), objective, max_batch, dtype,
                                               purpose, keeping, std::move(device)));
    return absl::WrapUnique(
        new Model(nullptr, std::move(step), example_shape, objective, max_batch));
  }
  RUBATO_ASSIGN_OR_RETURN(std::unique_ptr<Network> network,
                          Network::Create(std::move(graph), max_batch, dtype, purpose));
  return absl::WrapUnique(
      new Model(std::move(network), nullptr, example_shape, objective, max_batch));
}

Model::Model(std::unique_ptr<Network> network, std::unique_ptr<DeviceStep> device_step,
             absl::Span<const int64_t> example_shape, const Objective& objective, int64_t max_batch)
    : network_(std::move(network)),
      device_step_(std::move(device_step)),
      example_shape_(example_shape.begin(), example_shape.end()),
      objective_(objective),
      max_batch_(max_batch) {}

ConstTensorRef Model::Logits(const ConstTensorRef& parameters, const ConstTensorRef& features) {
  RUBATO_CHECK(device_step_ == nullptr);
  return network_->Forward(parameters, features, /*training=*/false, /*key=*/0, TensorRef());
}

BatchResult Model::Evaluate(const ConstTensorRef& parameters, const ConstTensorRef& features,
                            const Targets& targets) {
  if (device_step_ != nullptr) return device_step_->Evaluate(parameters, features, targets);
  const ConstTensorRef logits = Logits(parameters, features);
  return ComputeLoss(objective_, logits, targets, network_->output_gradient());
}

std::optional<BatchResult> Model::Gradient(const ConstTensorRef& parameters,
                                           const ConstTensorRef& features, const Targets& targets,
                                           uint64_t key, const TensorRef& gradient,
                                           absl::FunctionRef<void(int64_t begin)> ready,
                                           AwaitParameters await) {
  RUBATO_CHECK(gradient.size() == parameter_count());
  if (device_step_ != nullptr) {
    return device_step_->Gradient(parameters, features, targets, key, gradient, ready, await);
  }
  const ConstTensorRef logits =
      network_->Forward(parameters, features, /*training=*/true, key, gradient, await);
  if (logits.is_null() || !await({0, parameter_count()})) return std::nullopt;
  const BatchResult result = ComputeLoss(objective_, logits, targets, network_->output_gradient());
  network_->Backward(parameters, gradient, ready);
  return result;
}

std::shared_ptr<const void> Model::Pin(void* host, int64_t bytes) {
  if (device_step_ == nullptr || !device_step_->Pin(host, bytes)) return nullptr;
  return std::shared_ptr<const void>(host,
                                     [this, host](const void*) { device_step_->Unpin(host); });
}

std::optional<BatchResult> Model::GradientOnDevice(
    const ConstTensorRef& parameters, const ConstTensorRef& features, const Targets& targets,
    uint64_t key, const TensorRef& gradient, const Summing& summing,
    absl::FunctionRef<void(int64_t begin)> ready, AwaitParameters await) {
  return device_step_->Gradient(parameters, features, targets, key, gradient, ready, await,
                                summing);
}

}  // namespace rubato
