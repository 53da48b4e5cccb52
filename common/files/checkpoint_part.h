// The files of a checkpoint that one server writes: for each flat vector (the parameters, each slot
// of the optimizer) one with the values of its blocks.
//
//   parameters-0-of-2.safetensors        of server 0 of two
//   momentum_buffer-0-of-2.safetensors   of a slot of the optimizer
//   parameters.safetensors               of the only server
//
// Each is a safetensors file: a whole parameter has its name and shape of the model, a part of a
// parameter is a flat range of values under the name "NAME[BEGIN:END]". The data of all parts,
// concatenated, are the flat vector.
#ifndef RUBATO_COMMON_FILES_CHECKPOINT_PART_H_
#define RUBATO_COMMON_FILES_CHECKPOINT_PART_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/files/safetensors.h"
#include "common/space/flat_space.h"
#include "proto/layout.pb.h"

namespace rubato {

// Which part it is: the blocks `blocks` of `space`.
struct PartPlace {
  int part = 0;
  int parts = 1;
  Range blocks;
};

// The tensors of a flat vector: of the parameters if `slot` is empty, else of that slot.
std::vector<TensorInfo> VectorTensors(const proto::Layout& layout, const std::string& slot);

// Opens the file of a vector of one part in `folder`. Errors as SafetensorsReader::Open.
absl::StatusOr<SafetensorsReader> OpenPart(const std::string& folder, const std::string& slot,
                                           const PartPlace& place);

// Whether that file exists and is long enough for its data. Its contents are not read: they may be
// old ones that are still to be overwritten.
bool HasPart(const std::string& folder, const std::string& slot, const FlatSpace& space,
             const PartPlace& place);

// For one thread.
class CheckpointPart {
 public:
  // Begins the files in `folder`, over those that are there (RecycleCheckpoint). No files if there
  // are no blocks. Errors as AtomicFile::Reuse.
  static absl::StatusOr<CheckpointPart> Create(const std::string& folder,
                                               const proto::Layout& layout, const FlatSpace& space,
                                               const std::vector<std::string>& slots,
                                               const PartPlace& place);

  // The values of the next block of vector `vector`: 0 the parameters, then the slots. DataLoss,
  // naming the parameter, if one is not finite: the sum of finite gradients can overflow, and such
  // a checkpoint is useless. Else errors as SafetensorsWriter::Append.
  absl::Status Append(size_t vector, absl::Span<const float> values);
  // Call it when all blocks of all vectors are appended: the files are complete then. `flush` says
  // whether their contents are flushed; their names are flushed by the process that publishes the
  // folder. `goes_on`, if given, is asked before each; Cancelled if it says no.
  absl::Status Finish(Flush flush = Flush::kNothing,
                      const std::function<bool()>& goes_on = nullptr);

  // Whether the part is so large that it is written in another way than small ones.
  bool is_large() const { return is_large_; }
  // CRC-32C of the bytes of each vector, for the blocks in order.
  const std::vector<uint32_t>& checksums() const { return checksums_; }

 private:
  CheckpointPart(const proto::Layout& layout, const FlatSpace& space, Range blocks)
      : layout_(layout), space_(space), blocks_(blocks) {}

  const proto::Layout layout_;
  const FlatSpace space_;
  const Range blocks_;
  bool is_large_ = false;
  std::vector<SafetensorsWriter> files_;  // by vector
  std::vector<int64_t> appended_;         // blocks, by vector
  std::vector<uint32_t> checksums_;
};

}  // namespace rubato

#endif  // RUBATO_COMMON_FILES_CHECKPOINT_PART_H_
