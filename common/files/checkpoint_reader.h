// Reads the floats of checkpoints.
#ifndef RUBATO_COMMON_FILES_CHECKPOINT_READER_H_
#define RUBATO_COMMON_FILES_CHECKPOINT_READER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/files/safetensors.h"
#include "common/space/flat_space.h"
#include "proto/checkpoint.pb.h"
#include "proto/layout.pb.h"

namespace rubato {

// The tensors of one vector, in however many files: of the parameters if `slot` is empty. Nothing
// is compared with a digest or checksum. InvalidArgument if a part is missing or not whole.
absl::StatusOr<SafetensorsReader> OpenVector(const std::string& path,
                                             const proto::Manifest& manifest,
                                             const std::string& slot);

// Compares the files of a checkpoint of format 1 with their digests. InvalidArgument if one is
// damaged.
absl::Status CheckDigests(const std::string& path, const proto::Manifest& manifest);

// Reads ranges of the flat vectors: of the parameters (vector 0) and the manifest's slots.
class CheckpointReader {
 public:
  // InvalidArgument, with a list, if the names or shapes of the model differ; for format 1 also the
  // errors of CheckDigests.
  static absl::StatusOr<CheckpointReader> Open(const std::string& path,
                                               const proto::Manifest& manifest,
                                               const proto::Layout& layout);

  // Fills `out` with the values from `begin` on. InvalidArgument if a block that contains them has
  // a wrong checksum.
  absl::Status Read(size_t vector, int64_t begin, absl::Span<float> out) const;

 private:
  struct Vector {
    SafetensorsReader file;
    std::vector<size_t> tensors;  // by parameter
  };

  CheckpointReader(const proto::Manifest& manifest, const proto::Layout& layout);
  absl::Status ReadUnchecked(size_t vector, int64_t begin, absl::Span<float> out) const;
  absl::Status CheckBlock(size_t vector, int64_t block, absl::Span<const float> values) const;

  const proto::Manifest manifest_;
  const proto::Layout layout_;
  const FlatSpace space_;
  std::vector<Vector> vectors_;
};

// The parameters of a file, in the order of `layout`. InvalidArgument if names or shapes are
// others, listing them.
absl::StatusOr<std::vector<float>> ReadParameters(const SafetensorsReader& file,
                                                  const proto::Layout& layout);

}  // namespace rubato

#endif  // RUBATO_COMMON_FILES_CHECKPOINT_READER_H_
