#ifndef RUBATO_TENSOR_CPU_GEMM_H_
#define RUBATO_TENSOR_CPU_GEMM_H_

#include <cstdint>

#include "tensor/kernels.h"

namespace rubato {

// The level at which oneDNN computes: the processor's until FixMatMulKernels or UseOpenBlasAlone;
// kGeneric: it computes nothing.
Isa OneDnnIsa();

// c = alpha a b + beta c by OpenBLAS or, in float32 and if large, by oneDNN, on one thread.
// Matrices are row-major with `lda`, `ldb`, `ldc` values from one stored row to the next; a as
// read: (m, k), b: (k, n).
void Gemm(Transpose transpose_a, Transpose transpose_b, int64_t m, int64_t n, int64_t k,
          float alpha, const float* a, int64_t lda, const float* b, int64_t ldb, float beta,
          float* c, int64_t ldc);
void Gemm(Transpose transpose_a, Transpose transpose_b, int64_t m, int64_t n, int64_t k,
          double alpha, const double* a, int64_t lda, const double* b, int64_t ldb, double beta,
          double* c, int64_t ldc);

}  // namespace rubato

#endif  // RUBATO_TENSOR_CPU_GEMM_H_
