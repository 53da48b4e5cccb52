// What a safetensors file says about its tensors, and the JSON in which it says so. The format,
// version 0.4 (Hugging Face), which PyTorch, NumPy and others read:
//
//   8 bytes   length of the header, little-endian
//   header    JSON, padded with spaces to a multiple of 8 bytes:
//             {"__metadata__": {"key": "text", …}, "name": {"dtype": "F32", "shape": [2, 3],
//             "data_offsets": [0, 24]}, …}
//   data      the tensors' bytes, row-major, little-endian, without gaps
#ifndef RUBATO_COMMON_FILES_SAFETENSORS_HEADER_H_
#define RUBATO_COMMON_FILES_SAFETENSORS_HEADER_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace rubato {

enum class Dtype { kF64, kF32, kF16, kBF16, kI64, kI32, kI16, kI8, kU64, kU32, kU16, kU8, kBool };

absl::string_view DtypeName(Dtype dtype);  // as the format writes it, e.g. "F32"
int64_t DtypeBytes(Dtype dtype);           // of one element

// What a file says about a tensor.
struct TensorInfo {
  std::string name;
  Dtype dtype = Dtype::kF32;
  std::vector<int64_t> shape;  // row-major; empty: a single number

  int64_t Elements() const;
  int64_t Bytes() const { return Elements() * DtypeBytes(dtype); }
};

using Metadata = std::map<std::string, std::string>;

struct SafetensorsHeader {
  Metadata metadata;
  std::vector<TensorInfo> tensors;  // in the order of their bytes
  std::vector<int64_t> offsets;     // of each tensor's first byte in the data
  int64_t data_bytes = 0;           // of all tensors
};

// The header of a file in which `tensors` lie one after another. InvalidArgument if a name is
// empty, reserved, given twice or not UTF-8, or a size is negative, or the sizes make 2^63 bytes or
// more.
absl::StatusOr<SafetensorsHeader> MakeSafetensorsHeader(absl::Span<const TensorInfo> tensors,
                                                        const Metadata& metadata);

// The header's text with its length before it and its padding: the file up to its data.
std::string SafetensorsHeaderBytes(const SafetensorsHeader& header);

// Reads the header's text, from any source. InvalidArgument, in half a sentence that says what is
// wrong, unless every name comes once, the types are known, the sizes are those of the shapes, and
// the data lie without gap or overlap.
absl::StatusOr<SafetensorsHeader> ParseSafetensorsHeader(absl::string_view text);

// Text from a file, made suitable for an error message: in quotes, on one line and not too long.
std::string QuotedName(absl::string_view text);

}  // namespace rubato

#endif  // RUBATO_COMMON_FILES_SAFETENSORS_HEADER_H_
