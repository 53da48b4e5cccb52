#include "worker/model/presets.h"

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "tensor/tensor.h"

namespace rubato {
namespace {

// Layers in the order in which they are named.
class Chain {
 public:
  explicit Chain(proto::Model* model) : model_(*model) {}

  proto::Layer& Add() { return AddNamed(absl::StrCat(number_++)); }
  // Beside the numbers.
  proto::Layer& AddNamed(const std::string& name) {
    model_.add_names(name);
    return *model_.add_layers();
  }
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
  int number_ = 0;
};

void Mlp(const proto::Model& config, bool is_image, int64_t outputs, Chain chain) {
  if (is_image) chain.Flatten();
  for (const int64_t width : config.hidden()) {
    chain.Linear(width);
    chain.Relu();
  }
  chain.Linear(outputs);
}

void Cnn(const proto::Model& config, int64_t outputs, Chain chain) {
  for (const int64_t channels : {32, 64}) {
    chain.Conv(channels, 3, config.padding());
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
  // A dropout has no parameters, so it takes no number: names do not depend on whether there is
  // one.
  chain.Add().mutable_embedding()->set_embedding_dim(config.channels());
  chain.Add().mutable_position_embedding();
  if (config.dropout() > 0) chain.AddNamed("dropout").mutable_dropout()->set_p(config.dropout());
  for (int64_t i = 0; i < config.blocks(); ++i) {
    proto::TransformerBlock& block = *chain.Add().mutable_transformer_block();
    block.set_heads(config.heads());
    block.set_dropout(config.dropout());
  }
  chain.Add().mutable_layer_norm();
  chain.Linear(outputs);
}

// Residual networks by the names of torchvision's modules.
class ResNet {
 public:
  // `layers` and `names` are where they go.
  ResNet(google::protobuf::RepeatedPtrField<proto::Layer>* layers,
         google::protobuf::RepeatedPtrField<std::string>* names)
      : layers_(*layers), names_(*names) {}

  proto::Layer& Add(const std::string& name) {
    *names_.Add() = name;
    return *layers_.Add();
  }

  void Conv(const std::string& name, int64_t channels, int64_t kernel, int64_t stride) {
    SetConv(channels, kernel, stride, Add(name).mutable_conv2d());
  }

  // Two convolutions, and a shortcut that is a convolution where sizes change: He et al., "Deep
  // residual learning for image recognition", 2016, fig. 2, option B.
  void Block(const std::string& name, int64_t channels, int64_t stride, bool changes) {
    proto::Residual& residual = *Add(name).mutable_residual();
    ResNet body(residual.mutable_layers(), residual.mutable_names());
    body.Conv("conv1", channels, 3, stride);
    body.Add("bn1").mutable_batch_norm();
    body.Add("relu").mutable_relu();
    body.Conv("conv2", channels, 3, 1);
    body.Add("bn2").mutable_batch_norm();
    if (changes) {
      residual.set_shortcut_name("downsample");
      SetConv(channels, 1, stride, residual.add_shortcut()->mutable_conv2d());
      residual.add_shortcut()->mutable_batch_norm();
    }
    Add(name + "_relu").mutable_relu();
  }

  // `widths` stages of `blocks` blocks, behind a first convolution that gives `first` channels.
  void Stages(absl::Span<const int64_t> widths, int64_t blocks, int64_t first) {
    for (size_t stage = 0; stage < widths.size(); ++stage) {
      proto::Sequential& sequential = *Add(absl::StrCat("layer", stage + 1)).mutable_sequential();
      ResNet inside(sequential.mutable_layers(), sequential.mutable_names());
      for (int64_t i = 0; i < blocks; ++i) {
        const int64_t stride = stage > 0 && i == 0 ? 2 : 1;
        inside.Block(absl::StrCat(i), widths[stage], stride, i == 0 && widths[stage] != first);
      }
      first = widths[stage];
    }
  }

  void Head(int64_t outputs) {
    Add("avgpool").mutable_adaptive_avg_pool2d();
    Add("flatten").mutable_flatten();
    Add("fc").mutable_linear()->set_out_features(outputs);
  }

 private:
  static void SetConv(int64_t channels, int64_t kernel, int64_t stride, proto::Conv2d* conv) {
    conv->set_out_channels(channels);
    conv->set_kernel_size(kernel);
    conv->set_stride(stride);
    conv->set_padding(kernel / 2);
    conv->set_bias(false);
  }

  google::protobuf::RepeatedPtrField<proto::Layer>& layers_;
  google::protobuf::RepeatedPtrField<std::string>& names_;
};

// The same paper, section 4.2.
void ResNet20(int64_t outputs, ResNet net) {
  net.Conv("conv1", 16, 3, 1);
  net.Add("bn1").mutable_batch_norm();
  net.Add("relu").mutable_relu();
  net.Stages({16, 32, 64}, 3, 16);
  net.Head(outputs);
}

// The same paper, table 1, as torchvision.models.resnet18.
void ResNet18(int64_t outputs, ResNet net) {
  net.Conv("conv1", 64, 7, 2);
  net.Add("bn1").mutable_batch_norm();
  net.Add("relu").mutable_relu();
  proto::Pool2d& pool = *net.Add("maxpool").mutable_max_pool2d();
  pool.set_kernel_size(3);
  pool.set_stride(2);
  pool.set_padding(1);
  net.Stages({64, 128, 256, 512}, 2, 64);
  net.Head(outputs);
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
    case proto::Model::PRESET_SCRIPT:
      status =
          absl::FailedPreconditionError("model: found a script's, expected one of Rubato's own");
      break;
    case proto::Model::PRESET_MLP:
      Mlp(config, is_image, outputs, chain);
      break;
    case proto::Model::PRESET_CNN:
      status = Expect(is_image, "cnn", "images", example_shape);
      Cnn(config, outputs, chain);
      break;
    case proto::Model::PRESET_LENET:
      status = Expect(is_image, "lenet", "images", example_shape);
      LeNet(outputs, chain);
      break;
    case proto::Model::PRESET_CHAR_GPT:
      status = Expect(example_shape.size() == 1, "char_gpt", "a text", example_shape);
      CharGpt(config, outputs, chain);
      break;
    case proto::Model::PRESET_RESNET20:
      status = Expect(is_image, "resnet20", "images", example_shape);
      ResNet20(outputs, ResNet(model.mutable_layers(), model.mutable_names()));
      break;
    case proto::Model::PRESET_RESNET18:
      status = Expect(is_image, "resnet18", "images", example_shape);
      ResNet18(outputs, ResNet(model.mutable_layers(), model.mutable_names()));
      break;
  }
  if (!status.ok()) return status;
  return model;
}

}  // namespace rubato
