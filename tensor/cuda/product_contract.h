// What cublasLt takes, by its documents: what is asked of it is held to this without a GPU.
#ifndef RUBATO_TENSOR_CUDA_PRODUCT_CONTRACT_H_
#define RUBATO_TENSOR_CUDA_PRODUCT_CONTRACT_H_

#include "absl/status/status.h"
#include "tensor/cuda/product.h"

namespace rubato {

// Whether the library may add the bias. Not to a product with a side of 1: PyTorch keeps such from
// it too (can_use_gemm_and_bias in aten/src/ATen/native/cuda/Blas.cpp), for the choice of an
// algorithm has failed for them, and results of one row have lacked the bias.
inline bool MayEndInBias(const Product& p) { return p.m > 1 && p.n > 1 && p.k > 1; }

// InvalidArgument, saying what was found and what is allowed. float64 is for tests on the CPU, and
// is held to the same rules.
absl::Status CheckContract(const Product& product);

}  // namespace rubato

#endif  // RUBATO_TENSOR_CUDA_PRODUCT_CONTRACT_H_
