// The checksum of TensorBoard's files, of recordings and of checkpoints: CRC-32C (Castagnoli), RFC
// 3720, appendix B.4.
#ifndef RUBATO_COMMON_BASE_CRC32C_H_
#define RUBATO_COMMON_BASE_CRC32C_H_

#include <cstdint>

#include "absl/strings/string_view.h"

namespace rubato {

// Of what had the checksum `before`, followed by `bytes`. With the processor's instruction for it
// where there is one (SSE 4.2: some 8 bytes in a cycle, in 3 of what is shorter than 12 KiB), else
// byte by byte from a table.
uint32_t Crc32c(absl::string_view bytes, uint32_t before = 0);

}  // namespace rubato

#endif  // RUBATO_COMMON_BASE_CRC32C_H_
