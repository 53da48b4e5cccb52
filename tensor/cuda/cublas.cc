#include "tensor/cuda/cublas.h"

#include <cstdio>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status.h"
#include "tensor/cuda/cuda_check.h"
#include "tensor/cuda/used_gpu.h"

namespace rubato {
namespace {

// The greatest power of two, up to 256, that divides an address.
uint32_t AlignmentOf(const void* address) {
  const uintptr_t bits = reinterpret_cast<uintptr_t>(address) | 256;
  return static_cast<uint32_t>(bits & -bits);
}

// How many algorithms are asked for.
constexpr int kAlgorithms = 8;

// "This configuration cannot be done" (documentation of cublasLtMatmul()), rather than a fault.
bool IsRefusal(cublasStatus_t status) {
  return status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE;
}

}  // namespace

cudaDataType_t CudaTypeOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return CUDA_R_32F;
    case DType::kBFloat16:
      return CUDA_R_16BF;
    case DType::kFloat16:
      return CUDA_R_16F;
    default:
      break;
  }
  RUBATO_CHECK(false);
}

// cuBLAS reads matrices by columns. What is row-major to us is its transpose to it, so it is asked
// for c^T = b^T a^T: its A is our b, its rows are our columns.
struct CublasHandle::Plan {
  cublasLtMatmulDesc_t description = nullptr;
  cublasLtMatrixLayout_t a = nullptr, b = nullptr, c = nullptr;
  // Those left to try, the best one last. The first that works is kept.
  std::vector<cublasLtMatmulAlgo_t> algorithms;
};

CublasHandle::CublasHandle(std::shared_ptr<const Cublas> cublas, ProductPrecision precision,
                           void* workspace)
    : cublas_(std::move(cublas)), precision_(precision), workspace_(workspace) {}

absl::StatusOr<std::unique_ptr<CublasHandle>> CublasHandle::Create(ProductPrecision precision,
                                                                   void* workspace) {
  RUBATO_ASSIGN_OR_RETURN(std::shared_ptr<const Cublas> cublas, Cublas::Open());
  std::unique_ptr<CublasHandle> handle(new CublasHandle(std::move(cublas), precision, workspace));
  const cublasStatus_t status = handle->cublas_->Create(&handle->handle_);
  if (status != CUBLAS_STATUS_SUCCESS) {
    return absl::InternalError(absl::StrCat("cuBLAS does not start on ", UsedGpu(), ": ",
                                            handle->cublas_->GetStatusString(status)));
  }
  return handle;
}

CublasHandle::~CublasHandle() {
  for (const auto& [shape, plan] : plans_) {
    for (cublasLtMatrixLayout_t layout : {plan->a, plan->b, plan->c}) {
      if (layout != nullptr) cublas_->MatrixLayoutDestroy(layout);
    }
    if (plan->description != nullptr) cublas_->MatmulDescDestroy(plan->description);
  }
  if (handle_ != nullptr) cublas_->Destroy(handle_);
}

void CublasHandle::Check(cublasStatus_t status, const char* what) const {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  EndProcess(absl::InternalError(
      absl::StrCat(what, " failed: ", cublas_->GetStatusString(status), " (cuBLAS)")));
}

CublasHandle::Shape CublasHandle::ShapeOf(const Product& p) {
  // Each at most 256. Without a bias its alignment is the greatest.
  uint64_t alignments = 0;
  for (const void* address : {p.a.values, p.b.values, p.c.values, p.bias}) {
    alignments = alignments << 16 | AlignmentOf(address);
  }
  const int kinds = (p.transpose_a == Transpose::kYes) | (p.transpose_b == Transpose::kYes) << 1 |
                    (p.bias != nullptr) << 2 | (p.beta != 0) << 3;
  const int types = static_cast<int>(p.a.dtype) << 8 | static_cast<int>(p.c.dtype);
  return {p.m,          p.n,          p.k,          p.a.pitch, p.b.pitch, p.c.pitch, p.count,
          p.a.distance, p.b.distance, p.c.distance, kinds,     types,     alignments};
}

CublasHandle::Plan& CublasHandle::PlanOf(const Product& p) {
  std::unique_ptr<Plan>& plan = plans_[ShapeOf(p)];
  if (plan != nullptr) return *plan;
  plan = std::make_unique<Plan>();
  Describe(p, plan.get());
  LayOut(p, plan.get());
  ChooseAlgorithms(p, plan.get());
  if (plan->algorithms.empty()) NoteMissing(p);
  return *plan;
}

void CublasHandle::Describe(const Product& p, Plan* plan) const {
  const bool tf32 = precision_ == ProductPrecision::kTf32 && p.a.dtype == DType::kFloat32;
  Check(
      cublas_->MatmulDescCreate(
          &plan->description, tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F, CUDA_R_32F),
      "a product's description");
  const auto describe = [&](cublasLtMatmulDescAttributes_t attribute, const auto& value) {
    Check(cublas_->MatmulDescSetAttribute(plan->description, attribute, &value, sizeof value),
          "a product's description");
  };
  const auto operation = [](Transpose t) {
    return t == Transpose::kYes ? CUBLAS_OP_T : CUBLAS_OP_N;
  };
  describe(CUBLASLT_MATMUL_DESC_TRANSA, operation(p.transpose_b));
  describe(CUBLASLT_MATMUL_DESC_TRANSB, operation(p.transpose_a));
  if (p.bias == nullptr) return;
  // The heuristic takes the bias's alignment from its address (cublasLt.h,
  // CUBLASLT_MATMUL_DESC_BIAS_POINTER).
  describe(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
  describe(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, CudaTypeOf(p.c.dtype));
  describe(CUBLASLT_MATMUL_DESC_BIAS_POINTER, p.bias);
}

void CublasHandle::LayOut(const Product& p, Plan* plan) const {
  const auto lay_out = [&](cublasLtMatrixLayout_t* layout, const Matrix& matrix, int64_t rows,
                           int64_t columns) {
    Check(
        cublas_->MatrixLayoutCreate(layout, CudaTypeOf(matrix.dtype), columns, rows, matrix.pitch),
        "a matrix's layout");
    if (p.count == 1) return;
    const int32_t count = static_cast<int32_t>(p.count);
    const int64_t distance = matrix.distance;
    Check(cublas_->MatrixLayoutSetAttribute(*layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count,
                                            sizeof count),
          "a matrix's layout");
    Check(cublas_->MatrixLayoutSetAttribute(*layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                            &distance, sizeof distance),
          "a matrix's layout");
  };
  const bool ta = p.transpose_a == Transpose::kYes, tb = p.transpose_b == Transpose::kYes;
  lay_out(&plan->a, p.b, tb ? p.n : p.k, tb ? p.k : p.n);
  lay_out(&plan->b, p.a, ta ? p.k : p.m, ta ? p.m : p.k);
  lay_out(&plan->c, p.c, p.m, p.n);
}

void CublasHandle::ChooseAlgorithms(const Product& p, Plan* plan) const {
  constexpr char kWhat[] = "the choice of a product's algorithm";
  cublasLtMatmulPreference_t preference;
  Check(cublas_->MatmulPreferenceCreate(&preference), kWhat);
  const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
    Check(cublas_->MatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value),
          kWhat);
  };
  prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<size_t>(kWorkspaceBytes));
  // Where k is cut, parts are added in float32. The other schemes add in the output's type.
  prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
         static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, AlignmentOf(p.b.values));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, AlignmentOf(p.a.values));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, AlignmentOf(p.c.values));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, AlignmentOf(p.c.values));
  cublasLtMatmulHeuristicResult_t results[kAlgorithms];
  int found = 0;
  const cublasStatus_t status =
      cublas_->MatmulAlgoGetHeuristic(handle_, plan->description, plan->a, plan->b, plan->c,
                                      plan->c, preference, kAlgorithms, results, &found);
  Check(cublas_->MatmulPreferenceDestroy(preference), kWhat);
  if (IsRefusal(status)) return;
  Check(status, kWhat);
  // A result is one only if its own state says so (cublasLt.h, cublasLtMatmulHeuristicResult_t).
  for (int i = found - 1; i >= 0; --i) {
    if (results[i].state != CUBLAS_STATUS_SUCCESS) continue;
    if (results[i].workspaceSize > static_cast<size_t>(kWorkspaceBytes)) continue;
    plan->algorithms.push_back(results[i].algo);
  }
}

void CublasHandle::NoteMissing(const Product& p) {
  std::fprintf(stderr,
               "warning: on %s: cuBLAS has no algorithm for a product of %lld x %lld and %lld x "
               "%lld%s; it is done in another way, which may be slow\n",
               UsedGpu().c_str(), static_cast<long long>(p.m), static_cast<long long>(p.k),
               static_cast<long long>(p.k), static_cast<long long>(p.n),
               p.bias == nullptr ? "" : " with a bias");
}

bool CublasHandle::Multiply(const Product& p, cudaStream_t stream) {
  Plan& plan = PlanOf(p);
  if (plan.algorithms.empty()) return false;
  if (p.bias != nullptr) {
    Check(cublas_->MatmulDescSetAttribute(plan.description, CUBLASLT_MATMUL_DESC_BIAS_POINTER,
                                          &p.bias, sizeof p.bias),
          "a product's bias");
  }
  const float alpha = static_cast<float>(p.alpha), beta = static_cast<float>(p.beta);
  void* const c = const_cast<void*>(p.c.values);
  while (!plan.algorithms.empty()) {
    const cublasStatus_t status = cublas_->Matmul(
        handle_, plan.description, &alpha, p.b.values, plan.a, p.a.values, plan.b, &beta, c, plan.c,
        c, plan.c, &plan.algorithms.back(), workspace_, kWorkspaceBytes, stream);
    if (!IsRefusal(status)) {
      Check(status, "a product");
      return true;
    }
    plan.algorithms.pop_back();  // nothing was begun
  }
  NoteMissing(p);
  return false;
}

}  // namespace rubato
