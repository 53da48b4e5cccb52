// A checkpoint: a folder that appears whole or not at all.
//
//   checkpoints/step-00000500/
//     parameters-0-of-2.safetensors        what each server has written: see checkpoint_part.h
//     momentum_buffer-0-of-2.safetensors
//     ...
//     manifest.json            all else that the job needs to go on (proto/checkpoint.proto)
//     job.yaml                 the resolved job
//     COMPLETE                 written last, before the folder gets its name; in one whose files
//                              are written over (RecycleCheckpoint) it stays
//
// Manifests of format 1 have all parameters in parameters.safetensors and all slots in
// optimizer.safetensors, with a digest of each file instead of a checksum of each block.
//
// All that reads and writes checkpoints goes through this file: whole states, or one server's part
// (CheckpointPart, CheckpointReader) of a folder that BeginCheckpoint and PublishCheckpoint frame.
//
// A folder that has its name outlives every process. It outlives the machine once it is flushed,
// when it is published or later (FlushCheckpoint). One that was not may be there all the same after
// a loss of power, with files that are short or hold other bytes: CheckCheckpoint finds that.
#ifndef RUBATO_COMMON_FILES_CHECKPOINT_H_
#define RUBATO_COMMON_FILES_CHECKPOINT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/files/checkpoint_reader.h"
#include "common/files/manifest.h"
#include "proto/checkpoint.pb.h"
#include "proto/layout.pb.h"

namespace rubato {

// The floats of a model in training, each flat vector in the layout's order.
struct TrainingState {
  std::vector<float> parameters;
  std::vector<std::vector<float>> slots;  // in the order of manifest.slots
};

// Writes folder/step-… for manifest.step and returns its path, with as many parts as the manifest
// names; one if it names none. What the manifest says of the files is filled in. It is flushed. An
// error (a full disk, say) names the file and leaves nothing behind.
absl::StatusOr<std::string> WriteCheckpoint(const std::string& folder, proto::Manifest manifest,
                                            const std::string& job_yaml,
                                            const proto::Layout& layout,
                                            const TrainingState& state);

// The same in two steps, with the parts between them. Makes the folder `temporary` beside the
// checkpoints in `folder`, or takes it as it is.
absl::Status BeginCheckpoint(const std::string& folder, const std::string& temporary);
// Where the parts of one of several snapshots are written: PARTS/SNAPSHOT, whose path it returns,
// in the folder `parts`, which is there. It is made, unless another server or RecycleCheckpoint
// has.
absl::StatusOr<std::string> BeginParts(const std::string& parts, uint32_t snapshot);
// Gives `temporary`, which holds the parts that the manifest names, its name in `folder`; if
// `flushes`, or if it replaces another, when it is on the disk, whoever on this machine has written
// the parts.
// InvalidArgument if a part is missing or not whole.
absl::StatusOr<std::string> PublishCheckpoint(const std::string& folder,
                                              const std::string& temporary,
                                              proto::Manifest manifest, const std::string& job_yaml,
                                              bool flushes);
// Has one that was published without being flushed on the disk. Errors name the file.
absl::Status FlushCheckpoint(const std::string& path);

// The complete checkpoints of a folder, oldest first; those of the same step by name. Empty if
// there is no such folder.
std::vector<std::string> ListCheckpoints(const std::string& folder);

// Deletes a checkpoint such that it is never taken for a whole one, unless the machine goes down
// meanwhile: then it may be found damaged.
absl::Status RemoveCheckpoint(const std::string& path);

// The same, but its folder becomes that of the parts of a snapshot to come, which is written over
// its files, for less than half of what it takes to make and to remove them. Of a checkpoint with
// the same parts; if that snapshot has a folder with something in it, it is deleted.
absl::Status RecycleCheckpoint(const std::string& path, const std::string& parts,
                               uint32_t snapshot);

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

// The floats, in the order of `layout`. Errors as of CheckpointReader.
absl::StatusOr<TrainingState> ReadTrainingState(const std::string& path,
                                                const proto::Manifest& manifest,
                                                const proto::Layout& layout);

}  // namespace rubato

#endif  // RUBATO_COMMON_FILES_CHECKPOINT_H_
