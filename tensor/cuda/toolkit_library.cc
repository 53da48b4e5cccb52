#include "tensor/cuda/toolkit_library.h"

#include <dlfcn.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace rubato {

absl::StatusOr<ToolkitLibrary> ToolkitLibrary::Open(const std::string& file,
                                                    const std::string& needs) {
  ToolkitLibrary library;
  library.file_ = file;
  const std::string beside = absl::StrCat(RUBATO_CUDA_FOLDER "/lib64/", file);
  for (const std::string& path : {file, beside}) {
    if (library.handle_ == nullptr) library.handle_ = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  }
  if (library.handle_ == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat(
        needs, " was found neither on the loader's path (LD_LIBRARY_PATH) nor as ", beside));
  }
  return library;
}

void* ToolkitLibrary::Address(const char* function) {
  void* const address = dlsym(handle_, function);
  if (address == nullptr) missing_ = function;
  return address;
}

absl::Status ToolkitLibrary::status() const {
  if (missing_.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(file_, " has no function ", missing_));
}

}  // namespace rubato
