#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "tensor/cuda/cublas.h"

namespace rubato {

absl::StatusOr<CublasLibrary> CublasLibrary::Open(absl::string_view name) {
  const std::string file = absl::StrCat("lib", name, ".so.", CUBLAS_VER_MAJOR);
  RUBATO_ASSIGN_OR_RETURN(
      ToolkitLibrary library,
      ToolkitLibrary::Open(file, absl::StrCat("cuBLAS is needed for the GPU, but ", file)));
  return CublasLibrary(std::move(library));
}

absl::Status CublasLibrary::status() const {
  const absl::Status status = library_.status();
  if (status.ok()) return status;
  return absl::FailedPreconditionError(absl::StrCat(status.message(), "; expected cuBLAS ",
                                                    CUBLAS_VER_MAJOR, ".", CUBLAS_VER_MINOR,
                                                    " or later"));
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
