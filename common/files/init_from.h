// Initial parameters from a safetensors file (model.init_from).
#ifndef RUBATO_COMMON_FILES_INIT_FROM_H_
#define RUBATO_COMMON_FILES_INIT_FROM_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/files/safetensors.h"
#include "proto/layout.pb.h"

namespace rubato {

// OK if `file` has exactly the parameters of `layout`, by name, shape and type (F32). Else
// InvalidArgument with a line for each kind of mismatch, all at once:
//   a.safetensors: found no 1.bias, 3.weight, expected all 4 parameters of the model
//   a.safetensors: found fc.weight, which the model does not have
//   a.safetensors: 1.weight: found shape (256, 784), expected (128, 784)
// PyTorch's count of a batch norm's batches, "*.num_batches_tracked", may be there as well.
absl::Status CheckInitialParameters(const SafetensorsReader& file, const proto::Layout& layout);

// Opens `path` and checks it, and that all its numbers are finite. Also the errors of
// SafetensorsReader::Open.
absl::StatusOr<SafetensorsReader> OpenInitialParameters(std::string path,
                                                        const proto::Layout& layout);

// Fills `out` with the values [begin, begin + out.size()) of the flat vector, from a file that has
// been checked. They must lie within it. Unavailable if the disk fails.
absl::Status ReadInitialValues(const SafetensorsReader& file, const proto::Layout& layout,
                               int64_t begin, absl::Span<float> out);

}  // namespace rubato

#endif  // RUBATO_COMMON_FILES_INIT_FROM_H_
