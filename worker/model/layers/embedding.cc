#include "worker/model/layers/embedding.h"

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "worker/model/layers/parameter.h"

namespace rubato {
namespace {

class EmbeddingLayer : public Layer {
 public:
  EmbeddingLayer(const proto::Embedding& config, int64_t places)
      : Layer({places}, {places, config.embedding_dim()},
              {NormalParameter("weight", {config.num_embeddings(), config.embedding_dim()}, 1)}),
        rows_{config.num_embeddings(), config.embedding_dim()} {}

  std::string kind() const override { return "embedding"; }
  bool TakesIndices() const override { return true; }
  bool BackwardReadsY() const override { return false; }

  void Forward(const LayerContext& context, const ConstTensorRef& parameters,
               const ConstTensorRef& x, const TensorRef& y) override {
    context.kernels->Embed(x, parameters.Reshaped(rows_), y);
  }

  void Backward(const LayerContext& context, const ConstTensorRef&, const ConstTensorRef& x,
                const ConstTensorRef&, const ConstTensorRef& dy, const TensorRef& dx,
                const TensorRef& dparameters) override {
    context.kernels->EmbedBackward(x, dy, dparameters.Reshaped(rows_));
    if (!dx.is_null()) context.kernels->SetToZero(dx);
  }

 private:
  const Shape rows_;
};

class PositionEmbeddingLayer : public Layer {
 public:
  explicit PositionEmbeddingLayer(absl::Span<const int64_t> input_shape)
      : Layer(Shape(input_shape.begin(), input_shape.end()),
              Shape(input_shape.begin(), input_shape.end()),
              {NormalParameter("weight", input_shape, 0.02)}) {}

  std::string kind() const override { return "position_embedding"; }
  bool BackwardReadsX() const override { return false; }
  bool BackwardReadsY() const override { return false; }
  bool MayRunInPlace() const override { return true; }

  void Forward(const LayerContext& context, const ConstTensorRef& parameters,
               const ConstTensorRef& x, const TensorRef& y) override {
    context.kernels->AddRow(x, parameters, y);
  }

  void Backward(const LayerContext& context, const ConstTensorRef&, const ConstTensorRef&,
                const ConstTensorRef&, const ConstTensorRef& dy, const TensorRef& dx,
                const TensorRef& dparameters) override {
    context.kernels->ColumnSums(dy.Reshaped({dy.dim(0), dparameters.size()}), dparameters);
    if (!dx.is_null()) context.kernels->Copy(dy, dx);
  }
};

}  // namespace

absl::StatusOr<std::unique_ptr<Layer>> MakeEmbedding(const proto::Embedding& config,
                                                     absl::Span<const int64_t> input_shape) {
  if (input_shape.size() != 1) {
    return absl::InvalidArgumentError(absl::StrCat("input has shape ", ShapeText(input_shape),
                                                   "; expected one dimension, of places"));
  }
  if (config.num_embeddings() < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("num_embeddings: found ", config.num_embeddings(), "; expected at least 1"));
  }
  return std::make_unique<EmbeddingLayer>(config, input_shape[0]);
}

absl::StatusOr<std::unique_ptr<Layer>> MakePositionEmbedding(
    absl::Span<const int64_t> input_shape) {
  if (input_shape.size() != 2) {
    return absl::InvalidArgumentError(
        absl::StrCat("input has shape ", ShapeText(input_shape), "; expected (places, channels)"));
  }
  return std::make_unique<PositionEmbeddingLayer>(input_shape);
}

}  // namespace rubato
