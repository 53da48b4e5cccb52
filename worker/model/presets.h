// Models by name.
#ifndef RUBATO_WORKER_MODEL_PRESETS_H_
#define RUBATO_WORKER_MODEL_PRESETS_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/job.pb.h"

namespace rubato {

// `config` with the layers that its preset means on examples of shape `example_shape`, of `outputs`
// classes or target values; as it is if it names none. InvalidArgument if the preset does not take
// such examples.
absl::StatusOr<proto::Model> ExpandPreset(const proto::Model& config,
                                          absl::Span<const int64_t> example_shape, int64_t outputs);

}  // namespace rubato

#endif  // RUBATO_WORKER_MODEL_PRESETS_H_
