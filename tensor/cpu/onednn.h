// oneDNN's part of the CPU's kernels: float32 products and convolutions where it measured better
// than products by OpenBLAS (docs/models.md). On the calling thread alone.
#ifndef RUBATO_TENSOR_CPU_ONEDNN_H_
#define RUBATO_TENSOR_CPU_ONEDNN_H_

#include <cstdint>
#include <string>

#include "common/base/isa.h"
#include "tensor/convolution.h"
#include "tensor/kernels.h"

namespace rubato {

// Whether it is oneDNN that computes this, with `isa` for its level: by shapes alone, so that equal
// jobs have equal bits. The library's level is fixed for the process by the first call whose shape
// qualifies; at another level it then takes nothing.
bool OneDnnTakes(Isa isa, int64_t m, int64_t n, int64_t k);
bool OneDnnTakes(Isa isa, const Convolution& convolution);

// As rubato::Gemm.
void OneDnnGemm(Transpose transpose_a, Transpose transpose_b, int64_t m, int64_t n, int64_t k,
                float alpha, const float* a, int64_t lda, const float* b, int64_t ldb, float beta,
                float* c, int64_t ldc);

// As the functions of tensor/convolution.h. What a batch of another size needs is made at its first
// call in a thread and kept. False if oneDNN has nothing for it: then nothing was written but to
// scratch, of OneDnnConvolutionScratch(convolution, n) values.
int64_t OneDnnConvolutionScratch(const Convolution& convolution, int64_t n);
bool OneDnnConv2d(const Convolution& convolution, const ConstTensorRef& x,
                  const ConstTensorRef& weight, const ConstTensorRef& bias, const TensorRef& y,
                  const TensorRef& scratch);
bool OneDnnConv2dBackward(const Convolution& convolution, const ConstTensorRef& x,
                          const ConstTensorRef& weight, const ConstTensorRef& dy,
                          const TensorRef& dx, const TensorRef& dweight, const TensorRef& dbias,
                          const TensorRef& scratch);

// "oneDNN 2.6.3 avx512", or "" if it computes nothing at `isa`.
std::string OneDnnSignature(Isa isa);

}  // namespace rubato

#endif  // RUBATO_TENSOR_CPU_ONEDNN_H_
