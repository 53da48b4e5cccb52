#include <cblas.h>

#include <atomic>
#include <cstdlib>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "tensor/cpu/by_dtype.h"
#include "tensor/cpu/gemm.h"
#include "tensor/cpu/onednn.h"
#include "tensor/kernels.h"

// OpenBLAS chooses its kernels when it is loaded, by the processor or by the environment variable
// OPENBLAS_CORETYPE. Its header keeps silent about these two, which undo the choice and repeat it.
extern "C" {
void gotoblas_dynamic_quit(void);
void gotoblas_dynamic_init(void);
}

namespace rubato {
namespace {

// The library would choose its number of threads by itself, and with it the bits of its sums.
void UseOneThread() {
  static const bool once = [] {
    openblas_set_num_threads(1);
    return true;
  }();
  static_cast<void>(once);
}

// The library's name of the processor whose kernels need the level and no more. Prescott is the
// least that it knows of 64 bits.
const char* CoreOf(Isa isa) {
  switch (isa) {
    case Isa::kAvx512:
      return "SkylakeX";
    case Isa::kAvx2:
      return "Haswell";
    case Isa::kGeneric:
      break;
  }
  return "Prescott";
}

// Of oneDNN. Written at start-up and by tests.
std::atomic<Isa>& Level() {
  static std::atomic<Isa> level(DetectIsa());
  return level;
}

blasint Dim(int64_t dim) {
  RUBATO_CHECK(dim <= std::numeric_limits<blasint>::max());
  return static_cast<blasint>(dim);
}

CBLAS_TRANSPOSE Blas(Transpose transpose) {
  return transpose == Transpose::kYes ? CblasTrans : CblasNoTrans;
}

}  // namespace

Isa OneDnnIsa() { return Level().load(std::memory_order_relaxed); }

void Gemm(Transpose transpose_a, Transpose transpose_b, int64_t m, int64_t n, int64_t k,
          float alpha, const float* a, int64_t lda, const float* b, int64_t ldb, float beta,
          float* c, int64_t ldc) {
  if (OneDnnTakes(OneDnnIsa(), m, n, k)) {
    OneDnnGemm(transpose_a, transpose_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
    return;
  }
  UseOneThread();
  cblas_sgemm(CblasRowMajor, Blas(transpose_a), Blas(transpose_b), Dim(m), Dim(n), Dim(k), alpha, a,
              Dim(lda), b, Dim(ldb), beta, c, Dim(ldc));
}

void Gemm(Transpose transpose_a, Transpose transpose_b, int64_t m, int64_t n, int64_t k,
          double alpha, const double* a, int64_t lda, const double* b, int64_t ldb, double beta,
          double* c, int64_t ldc) {
  UseOneThread();
  cblas_dgemm(CblasRowMajor, Blas(transpose_a), Blas(transpose_b), Dim(m), Dim(n), Dim(k), alpha, a,
              Dim(lda), b, Dim(ldb), beta, c, Dim(ldc));
}

namespace {

// c = a b + beta c.
void Product(const ConstTensorRef& a, Transpose transpose_a, const ConstTensorRef& b,
             Transpose transpose_b, int beta, const TensorRef& c) {
  RUBATO_CHECK(a.shape().size() == 2 && b.shape().size() == 2 && c.shape().size() == 2);
  RUBATO_CHECK(a.dtype() == c.dtype() && b.dtype() == c.dtype());
  const int64_t m = c.dim(0), n = c.dim(1), k = a.dim(transpose_a == Transpose::kYes ? 0 : 1);
  RUBATO_CHECK(a.dim(transpose_a == Transpose::kYes ? 1 : 0) == m);
  RUBATO_CHECK(b.dim(transpose_b == Transpose::kYes ? 1 : 0) == k);
  RUBATO_CHECK(b.dim(transpose_b == Transpose::kYes ? 0 : 1) == n);
  const auto run = [&](auto zero) {
    using T = decltype(zero);
    Gemm(transpose_a, transpose_b, m, n, k, T(1), a.values<T>().data(), a.dim(1),
         b.values<T>().data(), b.dim(1), T(beta), c.values<T>().data(), n);
  };
  ByDType(c, run);
}

}  // namespace

void MatMul(const ConstTensorRef& a, Transpose transpose_a, const ConstTensorRef& b,
            Transpose transpose_b, const TensorRef& c) {
  Product(a, transpose_a, b, transpose_b, 0, c);
}

void MatMulAdd(const ConstTensorRef& a, Transpose transpose_a, const ConstTensorRef& b,
               Transpose transpose_b, const TensorRef& c) {
  Product(a, transpose_a, b, transpose_b, 1, c);
}

void FixMatMulKernels(Isa isa) {
  setenv("OPENBLAS_CORETYPE", CoreOf(isa), /*overwrite=*/1);
  gotoblas_dynamic_quit();
  gotoblas_dynamic_init();
  Level().store(isa, std::memory_order_relaxed);
}

void UseOpenBlasAlone() { Level().store(Isa::kGeneric, std::memory_order_relaxed); }

std::string MatMulSignature() {
  // "OpenBLAS 0.3.21 NO_LAPACKE DYNAMIC_ARCH ...": the version is the second word.
  const std::string config = openblas_get_config();
  const size_t end = config.find(' ', config.find(' ') + 1);
  const std::string other = OneDnnSignature(OneDnnIsa());
  return absl::StrCat(config.substr(0, end), " ", openblas_get_corename(),
                      other.empty() ? "" : ", ", other);
}

}  // namespace rubato
