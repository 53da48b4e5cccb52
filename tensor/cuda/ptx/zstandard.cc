#include <dlfcn.h>

#include <cstddef>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "tensor/cuda/ptx/fat_binary.h"

namespace rubato::ptx {

// zstd.h of libzstd 1.x, whose functions keep their form (its "Stable API").
absl::StatusOr<std::string> DecompressZstandard(absl::string_view compressed, int64_t size) {
  void* const library = dlopen("libzstd.so.1", RTLD_NOW);
  if (library == nullptr) {
    return absl::UnavailableError(absl::StrCat("no libzstd, which opens the PTX: ", dlerror()));
  }
  using Function = size_t (*)(void*, size_t, const void*, size_t);
  const auto decompress = reinterpret_cast<Function>(dlsym(library, "ZSTD_decompress"));
  if (decompress == nullptr) return absl::UnavailableError("libzstd has no ZSTD_decompress");
  std::string text(size, '\0');
  const size_t found = decompress(text.data(), text.size(), compressed.data(), compressed.size());
  if (found != text.size()) {
    return absl::DataLossError(absl::StrCat("the PTX has ", found, " bytes, expected ", size));
  }
  return text;
}

}  // namespace rubato::ptx
