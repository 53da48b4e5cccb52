// Layers that bring values to mean 0 and variance 1.
#ifndef RUBATO_WORKER_MODEL_LAYERS_NORM_H_
#define RUBATO_WORKER_MODEL_LAYERS_NORM_H_

#include <memory>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/job.pb.h"
#include "worker/model/layers/layer.h"

namespace rubato {

// As torch.nn.LayerNorm over the last `dimensions` dimensions: Ba et al. 2016. InvalidArgument if
// the input has fewer.
absl::StatusOr<std::unique_ptr<Layer>> MakeLayerNorm(const proto::LayerNorm& config,
                                                     absl::Span<const int64_t> input_shape);

// As torch.nn.GroupNorm: Wu & He 2018. InvalidArgument unless num_groups divides the channels.
absl::StatusOr<std::unique_ptr<Layer>> MakeGroupNorm(const proto::GroupNorm& config,
                                                     absl::Span<const int64_t> input_shape);

// As torch.nn.BatchNorm1d and 2d: Ioffe & Szegedy 2015. Buffers: running_mean and running_var
// (channels). In training the batch is normalised by its own statistics and adds n times its mean
// and its variance (dividing by the number of values less 1, as PyTorch keeps it) to the averages.
// InvalidArgument if the input is neither (channels) nor (channels, height, width).
absl::StatusOr<std::unique_ptr<Layer>> MakeBatchNorm(const proto::BatchNorm& config,
                                                     absl::Span<const int64_t> input_shape);

}  // namespace rubato

#endif  // RUBATO_WORKER_MODEL_LAYERS_NORM_H_
