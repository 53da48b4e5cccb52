// The checksum of TensorBoard's files: CRC-32C (Castagnoli), RFC 3720, appendix B.4.
#ifndef RUBATO_COMMON_CRC32C_H_
#define RUBATO_COMMON_CRC32C_H_

#include <cstdint>

#include "absl/strings/string_view.h"

namespace rubato {

// Byte by byte, from a table: for small data.
uint32_t Crc32c(absl::string_view bytes);

}  // namespace rubato

#endif  // RUBATO_COMMON_CRC32C_H_
