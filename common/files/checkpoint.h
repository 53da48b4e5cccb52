// A checkpoint: a folder that appears whole or not at all.
//
//   checkpoints/step-00000500/
//     parameters.safetensors   under their own names
//     optimizer.safetensors    the optimizer's slots, "1.weight.momentum"; absent if it has none
//     manifest.json            all else that the job needs to go on (proto/checkpoint.proto)
//     job.yaml                 the resolved job
//     COMPLETE                 written last, before the folder gets its name
#ifndef RUBATO_COMMON_FILES_CHECKPOINT_H_
#define RUBATO_COMMON_FILES_CHECKPOINT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/checkpoint.pb.h"
#include "proto/layout.pb.h"

namespace rubato {

// The floats of a model in training, each flat vector in the layout's order.
struct TrainingState {
  std::vector<float> parameters;
  std::vector<std::vector<float>> slots;  // in the order of manifest.slots
};

// Writes folder/step-… for manifest.step and returns its path. The manifest's digests are filled
// in. An error (a full disk, say) names the file and leaves nothing behind.
absl::StatusOr<std::string> WriteCheckpoint(const std::string& folder, proto::Manifest manifest,
                                            const std::string& job_yaml,
                                            const proto::Layout& layout,
                                            const TrainingState& state);

// The complete checkpoints of a folder, oldest first; those of the same step by name. Empty if
// there is no such folder.
std::vector<std::string> ListCheckpoints(const std::string& folder);

// Deletes a checkpoint such that it is never taken for a whole one.
absl::Status RemoveCheckpoint(const std::string& path);

// What it says, without a look at its floats. Errors as CheckCheckpoint.
absl::StatusOr<proto::Manifest> ReadManifest(const std::string& path);

// Checks all of it, floats and digests included. InvalidArgument, in one sentence, if it is
// damaged; NotFound.
absl::StatusOr<proto::Manifest> CheckCheckpoint(const std::string& path);

// `path` is a checkpoint, or a run's folder, of which the newest whole checkpoint is meant.
// `warnings` gets a line for each damaged one that was passed over. NotFound if there is none;
// InvalidArgument, naming the one before, if `path` itself is a damaged checkpoint.
absl::StatusOr<std::string> FindCheckpoint(const std::string& path,
                                           std::vector<std::string>* warnings);

// The floats, in the order of `layout`. InvalidArgument if names, shapes or slots are others,
// listing them.
absl::StatusOr<TrainingState> ReadTrainingState(const std::string& path,
                                                const proto::Manifest& manifest,
                                                const proto::Layout& layout);

// A safetensors file of parameters, in the order of `layout`. InvalidArgument if names or shapes
// are others, listing them.
absl::StatusOr<std::vector<float>> ReadParameters(const std::string& path,
                                                  const proto::Layout& layout);

// Of a checkpoint on arrival: the contributions, of those that had been given out, that some block
// does not hold. They are computed again.
std::vector<int64_t> UnitsNotWhole(const proto::Manifest& checkpoint);

}  // namespace rubato

#endif  // RUBATO_COMMON_FILES_CHECKPOINT_H_
