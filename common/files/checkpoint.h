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
// A folder under its final name survives a crash of any process. It survives a loss of power once
// it is flushed, when it is published or later (FlushCheckpoint). After a loss of power, a
// checkpoint that was not flushed may exist with short files or wrong bytes: CheckCheckpoint
// detects that.
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
// names; one if it names none. Fills in what the manifest says about the files, and flushes all. An
// error (such as a full disk) names the file and leaves nothing behind.
absl::StatusOr<std::string> WriteCheckpoint(const std::string& folder, proto::Manifest manifest,
                                            const std::string& job_yaml,
                                            const proto::Layout& layout,
                                            const TrainingState& state);

// The same in two steps, with the parts between them. Makes the folder `temporary` beside the
// checkpoints in `folder`, or takes it as it is.
absl::Status BeginCheckpoint(const std::string& folder, const std::string& temporary);
// Makes the folder for the parts of one snapshot, PARTS/SNAPSHOT in the existing folder `parts`,
// and returns its path. Another server or RecycleCheckpoint may have made it already.
absl::StatusOr<std::string> BeginParts(const std::string& parts, uint32_t snapshot);
// Renames `temporary`, which holds the parts that the manifest names, to its final name in
// `folder`. If `flushes`, or if it replaces another checkpoint, all files are flushed first,
// whichever process of this machine has written them. InvalidArgument if a part is missing or not
// whole.
absl::StatusOr<std::string> PublishCheckpoint(const std::string& folder,
                                              const std::string& temporary,
                                              proto::Manifest manifest, const std::string& job_yaml,
                                              bool flushes);
// Flushes to the disk a checkpoint that was published without being flushed. Errors name the file.
absl::Status FlushCheckpoint(const std::string& path);

// The complete checkpoints of a folder, oldest first; those of the same step by name. Empty if
// there is no such folder.
std::vector<std::string> ListCheckpoints(const std::string& folder);

// Deletes a checkpoint so that it never looks complete in between. If the machine crashes
// meanwhile, it may be found damaged.
absl::Status RemoveCheckpoint(const std::string& path);

// The same, but the folder is reused for the parts of a later snapshot, which overwrite its files:
// this takes less than half the time of creating and removing them. The checkpoint must have the
// same parts. If the snapshot already has a folder that is not empty, the checkpoint is deleted.
absl::Status RecycleCheckpoint(const std::string& path, const std::string& parts,
                               uint32_t snapshot);

// Reads the manifest without checking the floats. Errors as CheckCheckpoint.
absl::StatusOr<proto::Manifest> ReadManifest(const std::string& path);

// Checks all of it, floats and digests included. InvalidArgument, in one sentence, if it is
// damaged; NotFound.
absl::StatusOr<proto::Manifest> CheckCheckpoint(const std::string& path);

// `path` is a checkpoint, or a run's folder, which stands for its newest complete checkpoint.
// `warnings` gets a line for each damaged one that was passed over. NotFound if there is none,
// with the reason of each; InvalidArgument, naming the one before, if `path` itself is a damaged
// checkpoint; PermissionDenied.
absl::StatusOr<std::string> FindCheckpoint(const std::string& path,
                                           std::vector<std::string>* warnings);

// The floats, in the order of `layout`. Errors as of CheckpointReader.
absl::StatusOr<TrainingState> ReadTrainingState(const std::string& path,
                                                const proto::Manifest& manifest,
                                                const proto::Layout& layout);

}  // namespace rubato

#endif  // RUBATO_COMMON_FILES_CHECKPOINT_H_
