// A library of the CUDA toolkit, opened when a GPU is: a program that computes on the CPU needs
// none.
#ifndef RUBATO_TENSOR_CUDA_TOOLKIT_LIBRARY_H_
#define RUBATO_TENSOR_CUDA_TOOLKIT_LIBRARY_H_

#include <string>

#include "absl/status/statusor.h"

namespace rubato {

// Stays open for as long as the process lives.
class ToolkitLibrary {
 public:
  // file: "libcublasLt.so.13". Looks on the loader's path, then where it lay beside the compiler.
  // FailedPrecondition if it cannot be opened: `needs`, and where it was sought.
  static absl::StatusOr<ToolkitLibrary> Open(const std::string& file, const std::string& needs);

  template <typename Function>
  void Find(Function* function, const char* name) {
    *function = reinterpret_cast<Function>(Address(name));
  }
  // FailedPrecondition if a function was not found.
  absl::Status status() const;

 private:
  void* Address(const char* function);

  std::string file_, missing_;
  void* handle_ = nullptr;
};

}  // namespace rubato

#endif  // RUBATO_TENSOR_CUDA_TOOLKIT_LIBRARY_H_
