#include "worker/presets.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "tensor/tensor.h"

namespace rubato {
namespace {

// Layers in the order in which they are named.
class Chain {
 public:
  explicit Chain(proto::Model* model) : model_(*model) {}

  proto::Layer& Add() { return *model_.add_layers(); }
  void Linear(int64_t features) { Add().mutable_linear()->set_out_features(features); }
  void Relu() { Add().mutable_relu(); }
  void Flatten() { Add().mutable_flatten(); }
  void Conv(int64_t channels, int64_t kernel, int64_t padding) {
    proto::Conv2d& conv = *Add().mutable_conv2d();
    conv.set_out_channels(channels);
    conv.set_kernel_size(kernel);
    conv.set_padding(padding);
  }
  void MaxPool(int64_t size) { Add().mutable_max_pool2d()->set_kernel_size(size); }

 private:
  proto::Model& model_;
};

void Mlp(const proto::Model& config, bool is_image, int64_t outputs, Chain chain) {
  if (is_image) chain.Flatten();
  for (const int64_t width : config.hidden()) {
    chain.Linear(width);
    chain.Relu();
  }
  chain.Linear(outputs);
}

void Cnn(int64_t outputs, Chain chain) {
  for (const int64_t channels : {32, 64}) {
    chain.Conv(channels, 3, 0);
    chain.Relu();
    chain.MaxPool(2);
  }
  chain.Flatten();
  chain.Linear(128);
  chain.Relu();
  chain.Linear(outputs);
}

// LeCun et al., "Gradient-based learning applied to document recognition", 1998: layers and sizes
// of LeNet-5, with what has replaced its activations and its subsampling since.
void LeNet(int64_t outputs, Chain chain) {
  chain.Conv(6, 5, 2);
  chain.Relu();
  chain.MaxPool(2);
  chain.Conv(16, 5, 0);
  chain.Relu();
  chain.MaxPool(2);
  chain.Flatten();
  for (const int64_t width : {120, 84}) {
    chain.Linear(width);
    chain.Relu();
  }
  chain.Linear(outputs);
}

// The form of GPT-2: Radford et al., "Language models are unsupervised multitask learners", 2019.
void CharGpt(const proto::Model& config, int64_t outputs, Chain chain) {
  chain.Add().mutable_embedding()->set_embedding_dim(config.channels());
  chain.Add().mutable_position_embedding();
  if (config.dropout() > 0) chain.Add().mutable_dropout()->set_p(config.dropout());
  for (int64_t i = 0; i < config.blocks(); ++i) {
    proto::TransformerBlock& block = *chain.Add().mutable_transformer_block();
    block.set_heads(config.heads());
    block.set_dropout(config.dropout());
  }
  chain.Add().mutable_layer_norm();
  chain.Linear(outputs);
}

absl::Status Expect(bool fits, absl::string_view preset, absl::string_view examples,
                    absl::Span<const int64_t> example_shape) {
  if (fits) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("model.preset: found ", preset, " with examples of shape ",
                   ShapeText(example_shape), ", expected ", examples));
}

}  // namespace

absl::StatusOr<proto::Model> ExpandPreset(const proto::Model& config,
                                          absl::Span<const int64_t> example_shape,
                                          int64_t outputs) {
  proto::Model model = config;
  const Chain chain(&model);
  const bool is_image = example_shape.size() == 3;
  absl::Status status;
  switch (config.preset()) {
    case proto::Model::PRESET_NONE:
      break;
    case proto::Model::PRESET_MLP:
      Mlp(config, is_image, outputs, chain);
      break;
    case proto::Model::PRESET_CNN:
      status = Expect(is_image, "cnn", "images", example_shape);
      Cnn(outputs, chain);
      break;
    case proto::Model::PRESET_LENET:
      status = Expect(is_image, "lenet", "images", example_shape);
      LeNet(outputs, chain);
      break;
    case proto::Model::PRESET_CHAR_GPT:
      status = Expect(example_shape.size() == 1, "char_gpt", "a text", example_shape);
      CharGpt(config, outputs, chain);
      break;
  }
  if (!status.ok()) return status;
  return model;
}

}  // namespace rubato
