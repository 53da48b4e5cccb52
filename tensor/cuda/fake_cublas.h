// A cublasLt for tests, that is linked in the place of cublas_library.cc: it notes what it was
// asked for, answers as it is told to, and multiplies, plainly, in the host's memory.
#ifndef RUBATO_TENSOR_CUDA_FAKE_CUBLAS_H_
#define RUBATO_TENSOR_CUDA_FAKE_CUBLAS_H_

#include <cublasLt.h>

#include <cstdint>
#include <string>
#include <vector>

namespace rubato {

struct FakeCublas {
  struct Layout {
    cudaDataType_t type = CUDA_R_32F;
    uint64_t rows = 0, columns = 0;
    int64_t leading = 0;
    int32_t count = 1;
    int64_t offset = 0;
  };
  struct Description {
    cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
    cudaDataType_t scale = CUDA_R_32F;
    cublasOperation_t a = CUBLAS_OP_N, b = CUBLAS_OP_N;
    cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    const void* bias = nullptr;
    cudaDataType_t bias_type = CUDA_R_32F;
  };
  // The defaults are cublasLt.h's.
  struct Preference {
    uint64_t workspace = 0;
    uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_MASK;
    uint32_t alignments[4] = {256, 256, 256, 256};  // of A to D
  };
  // One question for algorithms, and what the bias's address was divisible by.
  struct Question {
    Description description;
    Layout a, b, c;
    Preference preference;
    int wanted;
    uint64_t bias_alignment;
  };

  // What is answered: to a question its status and the states of as many results; to a product, by
  // the place of its algorithm among them.
  cublasStatus_t heuristic = CUBLAS_STATUS_SUCCESS;
  std::vector<cublasStatus_t> states = {CUBLAS_STATUS_SUCCESS};
  std::vector<cublasStatus_t> products = {CUBLAS_STATUS_SUCCESS};
  int64_t fails_at = -1;                                  // the call that fails, counted from 0
  cublasStatus_t error = CUBLAS_STATUS_EXECUTION_FAILED;  // with which

  std::vector<std::string> calls;  // names, in order
  int64_t live = 0;                // handles, descriptions, layouts and preferences

  std::vector<Question> questions;
  std::vector<int> used;                // of each product asked for, the place of its algorithm
  std::vector<std::string> violations;  // of what cublasLt.h demands
};

// The library's one state, as it is now; begins anew with ResetFakeCublas.
FakeCublas& TheFakeCublas();
void ResetFakeCublas();

}  // namespace rubato

#endif  // RUBATO_TENSOR_CUDA_FAKE_CUBLAS_H_
