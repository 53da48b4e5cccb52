// The checksum of TensorBoard's files, of recordings and of checkpoints: CRC-32C (Castagnoli), RFC
// 3720, appendix B.4.
#ifndef RUBATO_COMMON_BASE_CRC32C_H_
#define RUBATO_COMMON_BASE_CRC32C_H_

#include <cstdint>

#include "absl/strings/string_view.h"

namespace rubato {

// The checksum of data whose checksum is `before`, followed by `bytes`. Uses the processor's
// instruction where there is one (SSE 4.2: some 8 bytes in a cycle; in 3 cycles for data shorter
// than 12 KiB), else a table, byte by byte.
uint32_t Crc32c(absl::string_view bytes, uint32_t before = 0);

}  // namespace rubato

#endif  // RUBATO_COMMON_BASE_CRC32C_H_
