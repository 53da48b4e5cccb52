// PTX as nvcc embeds it in a program: what the driver would translate for a GPU.
//
// A "fat binary" is a header of 16 bytes (magic, version, the header's length; the length of what
// follows), and then entries: a header of its own, with the kind, lengths and architecture, and the
// text or machine code, compressed or not. The toolkit has no description of it but for the
// wrapper in fatbinary_section.h; what is read here was found in nvcc 13.0's output, and all else
// is refused.
#ifndef RUBATO_TENSOR_CUDA_PTX_FAT_BINARY_H_
#define RUBATO_TENSOR_CUDA_PTX_FAT_BINARY_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace rubato::ptx {

// The bytes that `compressed` (Zstandard) was made of, of which there are `size`.
using Decompress =
    std::function<absl::StatusOr<std::string>(absl::string_view compressed, int64_t size)>;

// The bytes of the fat binary that begins at `begin`, by its own header.
absl::StatusOr<absl::string_view> FatBinaryAt(const void* begin);

// The PTX for an architecture (90: sm_90) in a fat binary. NotFound without one, InvalidArgument if
// it is in a form that is not known.
absl::StatusOr<std::string> EmbeddedPtx(absl::string_view binary, int architecture,
                                        const Decompress& decompress);

// By the system's libzstd. Unavailable if it is not there.
absl::StatusOr<std::string> DecompressZstandard(absl::string_view compressed, int64_t size);

}  // namespace rubato::ptx

#endif  // RUBATO_TENSOR_CUDA_PTX_FAT_BINARY_H_
