#include <dlfcn.h>

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "tensor/cuda/cublas.h"

namespace rubato {

absl::StatusOr<CublasLibrary> CublasLibrary::Open(absl::string_view name) {
  CublasLibrary library;
  library.name_ = absl::StrCat("lib", name, ".so.", CUBLAS_VER_MAJOR);
  // On the loader's own path, or where it lay beside the compiler.
  const std::string beside = absl::StrCat(RUBATO_CUDA_FOLDER "/lib64/", library.name_);
  for (const std::string& path : {library.name_, beside}) {
    if (library.handle_ == nullptr) library.handle_ = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  }
  if (library.handle_ == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("cuBLAS is needed for the GPU, but ", library.name_,
                     " was found neither on the loader's path (LD_LIBRARY_PATH) nor as ", beside));
  }
  return library;
}

void* CublasLibrary::Address(const char* function) {
  void* const address = dlsym(handle_, function);
  if (address == nullptr) missing_ = function;
  return address;
}

absl::Status CublasLibrary::status() const {
  if (missing_.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(name_, " has no function ", missing_,
                                                    "; expected cuBLAS ", CUBLAS_VER_MAJOR, ".",
                                                    CUBLAS_VER_MINOR, " or later"));
}

absl::StatusOr<std::shared_ptr<const Cublas>> Cublas::Open() {
  RUBATO_ASSIGN_OR_RETURN(CublasLibrary library, CublasLibrary::Open("cublasLt"));
  auto cublas = std::make_shared<Cublas>();
  const auto find = [&](auto* function, const char* name) { library.Find(function, name); };
  find(&cublas->Create, "cublasLtCreate");
  find(&cublas->Destroy, "cublasLtDestroy");
  find(&cublas->GetVersion, "cublasLtGetVersion");
  find(&cublas->GetStatusString, "cublasLtGetStatusString");
  find(&cublas->Matmul, "cublasLtMatmul");
  find(&cublas->MatmulAlgoGetHeuristic, "cublasLtMatmulAlgoGetHeuristic");
  find(&cublas->MatmulDescCreate, "cublasLtMatmulDescCreate");
  find(&cublas->MatmulDescDestroy, "cublasLtMatmulDescDestroy");
  find(&cublas->MatmulDescSetAttribute, "cublasLtMatmulDescSetAttribute");
  find(&cublas->MatmulPreferenceCreate, "cublasLtMatmulPreferenceCreate");
  find(&cublas->MatmulPreferenceDestroy, "cublasLtMatmulPreferenceDestroy");
  find(&cublas->MatmulPreferenceSetAttribute, "cublasLtMatmulPreferenceSetAttribute");
  find(&cublas->MatrixLayoutCreate, "cublasLtMatrixLayoutCreate");
  find(&cublas->MatrixLayoutDestroy, "cublasLtMatrixLayoutDestroy");
  find(&cublas->MatrixLayoutSetAttribute, "cublasLtMatrixLayoutSetAttribute");
  RUBATO_RETURN_IF_ERROR(library.status());
  return cublas;
}

std::string Cublas::Version() const {
  const size_t version = GetVersion();  // CUBLAS_VERSION of the library that was opened
  return absl::StrCat(version / 10000, ".", version / 100 % 100, ".", version % 100);
}

}  // namespace rubato
