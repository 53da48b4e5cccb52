#include "worker/model/graph.h"

#include <cmath>
#include <set>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "worker/model/layers/attention.h"
#include "worker/model/layers/build.h"
#include "worker/model/layers/linear.h"

namespace rubato {
namespace {

using Layers = google::protobuf::RepeatedPtrField<proto::Layer>;
using Names = google::protobuf::RepeatedPtrField<std::string>;

class Builder {
 public:
  Builder(absl::Span<const int64_t> example_shape, int64_t classes, std::optional<int64_t> symbols)
      : classes_(classes), symbols_(symbols) {
    graph_.shapes.emplace_back(example_shape.begin(), example_shape.end());
  }

  // Adds layers one after the other, on value `input`. `path` is their place in the job, `prefix`
  // in the names of parameters. Returns the value that they give.
  absl::StatusOr<int> AddLayers(const Layers& layers, const Names& names, const std::string& path,
                                const std::string& prefix, int input) {
    if (names.size() != 0 && names.size() != layers.size()) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": found ", names.size(),
                                                     " names, expected one for each of the ",
                                                     layers.size(), " layers"));
    }
    for (int i = 0; i < layers.size(); ++i) {
      const std::string name = names.empty() ? absl::StrCat(i) : names[i];
      RUBATO_ASSIGN_OR_RETURN(input, Add(layers[i], absl::StrCat(path, "[", i, "]"),
                                         absl::StrCat(prefix, name), input));
    }
    return input;
  }

  absl::StatusOr<Graph> Finish() && {
    for (Graph::Node& node : graph_.nodes) node.buffer_begin += graph_.trainable;
    graph_.layout.mutable_parameters()->MergeFrom(buffers_.parameters());
    graph_.size = graph_.trainable + buffer_size_;
    std::set<std::string> names;
    for (const proto::Parameter& parameter : graph_.layout.parameters()) {
      if (!names.insert(parameter.name()).second) {
        return absl::InvalidArgumentError(absl::StrCat("model.names: found two parameters called ",
                                                       parameter.name(), ", expected one"));
      }
    }
    return std::move(graph_);
  }

 private:
  const Shape& shape(int value) const { return graph_.shapes[value]; }

  static absl::Status At(const std::string& path, const proto::Layer& layer,
                         const absl::Status& status) {
    const google::protobuf::FieldDescriptor* kind =
        layer.GetReflection()->GetOneofFieldDescriptor(layer, layer.GetDescriptor()->oneof_decl(0));
    return absl::Status(
        status.code(),
        absl::StrCat(path, kind == nullptr ? "" : absl::StrCat(" (", kind->name(), ")"), ": ",
                     status.message()));
  }

  absl::StatusOr<int> Add(const proto::Layer& config, const std::string& path,
                          const std::string& name, int input) {
    switch (config.kind_case()) {
      case proto::Layer::kSequential:
        return AddLayers(config.sequential().layers(), config.sequential().names(),
                         path + ".sequential.layers", name + ".", input);
      case proto::Layer::kResidual:
        return AddResidual(config, path, name, input);
      case proto::Layer::kAttention: {
        const absl::StatusOr<int> output = AddAttention(config.attention(), name, input);
        return output.ok() ? output : At(path, config, output.status());
      }
      case proto::Layer::kTransformerBlock: {
        const absl::StatusOr<int> output = AddBlock(config.transformer_block(), name, input);
        return output.ok() ? output : At(path, config, output.status());
      }
      default: {
        const absl::StatusOr<int> output = AddSingle(config, name, input);
        return output.ok() ? output : At(path, config, output.status());
      }
    }
  }

  absl::StatusOr<int> AddSingle(const proto::Layer& config, const std::string& name, int input) {
    proto::Layer complete = config;
    if (config.has_embedding()) {
      proto::Embedding& embedding = *complete.mutable_embedding();
      if (!embedding.has_num_embeddings()) embedding.set_num_embeddings(classes_);
      RUBATO_RETURN_IF_ERROR(CheckSymbols(embedding.num_embeddings(), input));
    }
    absl::StatusOr<std::unique_ptr<Layer>> layer = BuildLayer(complete, shape(input));
    if (!layer.ok()) return layer.status();
    return AddNode(*std::move(layer), name, input);
  }

  // Whether an embedding has a row for each number that it may be given.
  absl::Status CheckSymbols(int64_t rows, int value) const {
    while (value > 0 && graph_.nodes[value - 1].layer != nullptr &&
           graph_.nodes[value - 1].layer->kind() == "flatten") {
      value = graph_.nodes[value - 1].input;
    }
    if (value > 0) {
      return absl::InvalidArgumentError(
          "found a layer before it, expected none but flatten: it takes whole numbers of the data");
    }
    if (!symbols_.has_value() || (0 < *symbols_ && *symbols_ <= rows)) return absl::OkStatus();
    return absl::InvalidArgumentError(
        *symbols_ == 0
            ? "found data whose values are not all whole numbers from 0 on, expected such: each "
              "takes a row"
            : absl::StrCat("num_embeddings: found ", rows, ", expected at least ", *symbols_,
                           ": the data's values are numbers from 0 to ", *symbols_ - 1,
                           ", of a text its characters"));
  }

  int AddNode(std::unique_ptr<Layer> layer, const std::string& name, int input) {
    Graph::Node node;
    node.input = input;
    node.begin = graph_.trainable;
    node.parameters = Declare(layer->parameters(), name, &graph_.layout);
    node.buffer_begin = buffer_size_;
    node.buffers = Declare(layer->buffers(), name, &buffers_);
    graph_.trainable += node.parameters;
    buffer_size_ += node.buffers;
    graph_.shapes.push_back(layer->output_shape());
    node.layer = std::move(layer);
    graph_.nodes.push_back(std::move(node));
    return static_cast<int>(graph_.nodes.size());
  }

  int AddSum(int input, int other) {
    Graph::Node node;
    node.input = input;
    node.other = other;
    node.begin = graph_.trainable;
    node.buffer_begin = buffer_size_;
    graph_.shapes.push_back(shape(input));
    graph_.nodes.push_back(std::move(node));
    return static_cast<int>(graph_.nodes.size());
  }

  // Returns how many values they have.
  static int64_t Declare(const std::vector<proto::Parameter>& parameters, const std::string& name,
                         proto::Layout* layout) {
    int64_t values = 0;
    for (const proto::Parameter& parameter : parameters) {
      proto::Parameter& named = *layout->add_parameters();
      named = parameter;
      named.set_name(absl::StrCat(name, ".", parameter.name()));
      values += SizeOf(parameter.shape());
    }
    return values;
  }

  absl::StatusOr<int> AddResidual(const proto::Layer& config, const std::string& path,
                                  const std::string& name, int input) {
    const proto::Residual& residual = config.residual();
    RUBATO_ASSIGN_OR_RETURN(
        const int body, AddLayers(residual.layers(), residual.names(), path + ".residual.layers",
                                  name + ".", input));
    RUBATO_ASSIGN_OR_RETURN(
        const int shortcut,
        AddLayers(residual.shortcut(), {}, path + ".residual.shortcut",
                  absl::StrCat(name, ".", residual.shortcut_name(), "."), input));
    if (shape(body) != shape(shortcut)) {
      return At(path, config,
                absl::InvalidArgumentError(
                    absl::StrCat("layers give shape ", ShapeText(shape(body)), ", the shortcut ",
                                 ShapeText(shape(shortcut)), "; expected the same")));
    }
    return AddSum(body, shortcut);
  }

  // The projections are drawn as by torch.nn.MultiheadAttention: the first by Xavier's uniform
  // distribution, the second as torch.nn.Linear; biases are 0.
  absl::StatusOr<int> AddAttention(const proto::Attention& config, const std::string& name,
                                   int input) {
    const Shape in = shape(input);
    if (in.size() != 2) {
      return absl::InvalidArgumentError(
          absl::StrCat("input has shape ", ShapeText(in), "; expected (places, channels)"));
    }
    const int64_t places = in[0], channels = in[1];
    if (channels % config.heads() != 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          "heads: found ", config.heads(), "; expected a divisor of the channels, ", channels));
    }
    LinearLayer::Parameters projection;
    projection.weight = "in_proj_weight";
    projection.bias = config.bias() ? "in_proj_bias" : nullptr;
    projection.weight_bound = std::sqrt(6.0 / static_cast<double>(4 * channels));
    int value = AddNode(std::make_unique<LinearLayer>(in, 3 * channels, projection), name, input);
    value =
        AddNode(std::make_unique<AttentionCore>(places, channels, config.heads(), config.causal()),
                name, value);
    LinearLayer::Parameters out;
    out.bias = config.bias() ? "bias" : nullptr;
    out.weight_bound = 1 / std::sqrt(static_cast<double>(channels));
    return AddNode(std::make_unique<LinearLayer>(in, channels, out), name + ".out_proj", value);
  }

  absl::StatusOr<int> AddBlock(const proto::TransformerBlock& config, const std::string& name,
                               int input) {
    if (shape(input).size() != 2) {
      return absl::InvalidArgumentError(absl::StrCat("input has shape ", ShapeText(shape(input)),
                                                     "; expected (places, channels)"));
    }
    const int64_t channels = shape(input)[1];
    proto::Layer norm, dropout, linear, gelu;
    norm.mutable_layer_norm();
    dropout.mutable_dropout()->set_p(config.dropout());
    gelu.mutable_gelu();
    const auto drop = [&](int value) -> absl::StatusOr<int> {
      if (config.dropout() == 0) return value;
      return AddSingle(dropout, "", value);
    };
    proto::Attention attention;
    attention.set_heads(config.heads());
    attention.set_causal(config.causal());

    RUBATO_ASSIGN_OR_RETURN(int value, AddSingle(norm, name + ".norm1", input));
    RUBATO_ASSIGN_OR_RETURN(value, AddAttention(attention, name + ".self_attn", value));
    RUBATO_ASSIGN_OR_RETURN(value, drop(value));
    const int middle = AddSum(value, input);
    RUBATO_ASSIGN_OR_RETURN(value, AddSingle(norm, name + ".norm2", middle));
    linear.mutable_linear()->set_out_features(
        config.has_dim_feedforward() ? config.dim_feedforward() : 4 * channels);
    RUBATO_ASSIGN_OR_RETURN(value, AddSingle(linear, name + ".linear1", value));
    RUBATO_ASSIGN_OR_RETURN(value, AddSingle(gelu, "", value));
    RUBATO_ASSIGN_OR_RETURN(value, drop(value));
    linear.mutable_linear()->set_out_features(channels);
    RUBATO_ASSIGN_OR_RETURN(value, AddSingle(linear, name + ".linear2", value));
    RUBATO_ASSIGN_OR_RETURN(value, drop(value));
    return AddSum(value, middle);
  }

  const int64_t classes_;
  const std::optional<int64_t> symbols_;
  Graph graph_;
  proto::Layout buffers_;
  int64_t buffer_size_ = 0;
};

}  // namespace

absl::StatusOr<Graph> BuildGraph(const proto::Model& config,
                                 absl::Span<const int64_t> example_shape, int64_t classes,
                                 std::optional<int64_t> symbols) {
  Builder builder(example_shape, classes, symbols);
  RUBATO_RETURN_IF_ERROR(
      builder.AddLayers(config.layers(), config.names(), "model.layers", "", 0).status());
  return std::move(builder).Finish();
}

}  // namespace rubato
