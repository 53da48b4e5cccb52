#include "tensor/cuda/ptx/fat_binary.h"

#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace rubato::ptx {
namespace {

constexpr uint32_t kMagic = 0xba55ed50;
constexpr int64_t kHeader = 16, kEntryHeader = 64;
constexpr uint16_t kKindOfPtx = 1;
constexpr uint64_t kCompressedByZstandard = 0x8000;

template <typename T>
T At(absl::string_view bytes, int64_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

absl::Status Unknown(absl::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat("the fat binary is of a form that is not known: ", what));
}

}  // namespace

absl::StatusOr<absl::string_view> FatBinaryAt(const void* begin) {
  const absl::string_view header(static_cast<const char*>(begin), kHeader);
  if (At<uint32_t>(header, 0) != kMagic || At<uint16_t>(header, 6) != kHeader) {
    return Unknown("its header");
  }
  return absl::string_view(header.data(), kHeader + At<uint64_t>(header, 8));
}

absl::StatusOr<std::string> EmbeddedPtx(absl::string_view binary, int architecture,
                                        const Decompress& decompress) {
  const int64_t end = static_cast<int64_t>(binary.size());
  for (int64_t at = kHeader; at < end;) {
    if (end - at < kEntryHeader) return Unknown("it ends within an entry's header");
    const int64_t header = At<uint32_t>(binary, at + 4), size = At<uint64_t>(binary, at + 8);
    if (header < kEntryHeader || size < 0 || size > end - at - header) {
      return Unknown("an entry is longer than the whole");
    }
    if (At<uint16_t>(binary, at) == kKindOfPtx &&
        At<uint32_t>(binary, at + 28) == static_cast<uint32_t>(architecture)) {
      const int64_t compressed = At<uint32_t>(binary, at + 16);
      if (compressed == 0) return std::string(binary.substr(at + header, size));
      if ((At<uint64_t>(binary, at + 40) & kCompressedByZstandard) == 0 || compressed > size) {
        return Unknown("how its PTX is compressed");
      }
      return decompress(binary.substr(at + header, compressed), At<uint64_t>(binary, at + 56));
    }
    at += header + size;
  }
  return absl::NotFoundError(absl::StrCat("no PTX of sm_", architecture, " is embedded"));
}

}  // namespace rubato::ptx
