// Layers at the start of a model of texts.
#ifndef RUBATO_WORKER_MODEL_LAYERS_EMBEDDING_H_
#define RUBATO_WORKER_MODEL_LAYERS_EMBEDDING_H_

#include <memory>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/job.pb.h"
#include "worker/model/layers/layer.h"

namespace rubato {

// As torch.nn.Embedding: (places) of whole numbers in [0, num_embeddings), as floats, to (places,
// embedding_dim). Parameter: weight (num_embeddings, embedding_dim), drawn from N(0, 1). It has no
// gradient by its input: dx is 0. InvalidArgument if the input has another number of dimensions.
absl::StatusOr<std::unique_ptr<Layer>> MakeEmbedding(const proto::Embedding& config,
                                                     absl::Span<const int64_t> input_shape);

// y = x + weight, for each example. Parameter: weight (places, channels), drawn from N(0, 0.02) as
// GPT-2 does: Radford et al. 2019. InvalidArgument if the input is not (places, channels).
absl::StatusOr<std::unique_ptr<Layer>> MakePositionEmbedding(absl::Span<const int64_t> input_shape);

}  // namespace rubato

#endif  // RUBATO_WORKER_MODEL_LAYERS_EMBEDDING_H_
