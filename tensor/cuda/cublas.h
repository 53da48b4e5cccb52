// cuBLAS, by the interface whose choices can be kept and whose products may end in an addition of a
// bias (cublasLt). The library is opened when a GPU is: a program that computes on the CPU needs
// none.
#ifndef RUBATO_TENSOR_CUDA_CUBLAS_H_
#define RUBATO_TENSOR_CUDA_CUBLAS_H_

#include <cublasLt.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tensor/cuda/product.h"
#include "tensor/cuda/toolkit_library.h"

namespace rubato {

// The toolkit's name of a type of numbers on GPUs.
cudaDataType_t CudaTypeOf(DType dtype);

// A library of cuBLAS's, for as long as the process lives.
class CublasLibrary {
 public:
  // name: "cublasLt". FailedPrecondition if it cannot be opened, saying where it was sought.
  static absl::StatusOr<CublasLibrary> Open(absl::string_view name);

  template <typename Function>
  void Find(Function* function, const char* name) {
    library_.Find(function, name);
  }
  // FailedPrecondition if a function was not found.
  absl::Status status() const;

 private:
  explicit CublasLibrary(ToolkitLibrary library) : library_(std::move(library)) {}

  ToolkitLibrary library_;
};

// The library's functions.
struct Cublas {
  // Errors as CublasLibrary's.
  static absl::StatusOr<std::shared_ptr<const Cublas>> Open();

  // "13.1.0", of what was opened, which may be another than what was built with.
  std::string Version() const;

  decltype(&cublasLtCreate) Create = nullptr;
  decltype(&cublasLtDestroy) Destroy = nullptr;
  decltype(&cublasLtGetVersion) GetVersion = nullptr;
  decltype(&cublasLtGetStatusString) GetStatusString = nullptr;
  decltype(&cublasLtMatmul) Matmul = nullptr;
  decltype(&cublasLtMatmulAlgoGetHeuristic) MatmulAlgoGetHeuristic = nullptr;
  decltype(&cublasLtMatmulDescCreate) MatmulDescCreate = nullptr;
  decltype(&cublasLtMatmulDescDestroy) MatmulDescDestroy = nullptr;
  decltype(&cublasLtMatmulDescSetAttribute) MatmulDescSetAttribute = nullptr;
  decltype(&cublasLtMatmulPreferenceCreate) MatmulPreferenceCreate = nullptr;
  decltype(&cublasLtMatmulPreferenceDestroy) MatmulPreferenceDestroy = nullptr;
  decltype(&cublasLtMatmulPreferenceSetAttribute) MatmulPreferenceSetAttribute = nullptr;
  decltype(&cublasLtMatrixLayoutCreate) MatrixLayoutCreate = nullptr;
  decltype(&cublasLtMatrixLayoutDestroy) MatrixLayoutDestroy = nullptr;
  decltype(&cublasLtMatrixLayoutSetAttribute) MatrixLayoutSetAttribute = nullptr;
};

// Products on one stream. What fails ends the process.
class CublasHandle {
 public:
  // Recommended for Hopper: cuBLAS documentation, cublasSetWorkspace.
  static constexpr int64_t kWorkspaceBytes = int64_t{32} << 20;

  // workspace: kWorkspaceBytes of the GPU's memory.
  static absl::StatusOr<std::unique_ptr<CublasHandle>> Create(ProductPrecision precision,
                                                              void* workspace);
  ~CublasHandle();

  // False, and nothing is done, if the library has no algorithm for it.
  bool Multiply(const Product& product, cudaStream_t stream);

 private:
  // All that the choice of an algorithm depends on.
  using Shape = std::tuple<int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t,
                           int64_t, int64_t, int, int, uint64_t>;
  struct Plan;

  CublasHandle(std::shared_ptr<const Cublas> cublas, ProductPrecision precision, void* workspace);
  void Check(cublasStatus_t status, const char* what) const;
  static Shape ShapeOf(const Product& product);
  // Made once for products of one shape.
  Plan& PlanOf(const Product& product);
  // The parts of a plan: what is computed, how its matrices lie, and by which algorithms.
  void Describe(const Product& product, Plan* plan) const;
  void LayOut(const Product& product, Plan* plan) const;
  void ChooseAlgorithms(const Product& product, Plan* plan) const;
  static void NoteMissing(const Product& product);

  const std::shared_ptr<const Cublas> cublas_;
  const ProductPrecision precision_;
  void* const workspace_;
  cublasLtHandle_t handle_ = nullptr;
  std::map<Shape, std::unique_ptr<Plan>> plans_;
};

}  // namespace rubato

#endif  // RUBATO_TENSOR_CUDA_CUBLAS_H_
