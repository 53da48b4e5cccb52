// What a model's steps give a GPU to do.
#ifndef RUBATO_TENSOR_CUDA_WORK_LIST_H_
#define RUBATO_TENSOR_CUDA_WORK_LIST_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tensor/cuda/fused_attention.h"
#include "tensor/cuda/fused_convolution.h"
#include "tensor/cuda/product.h"
#include "tensor/cuda/traffic.h"
#include "tensor/device.h"

namespace rubato {

// One piece of work, in the order in which a device is given it.
struct Work {
  enum Kind { kKernel, kProduct, kAttention, kConvolution, kUpload, kDownload, kOrder, kSignal };

  Kind kind;
  Stream stream;
  Stream other = Stream::kCompute;  // kOrder: what `stream` waits for
  bool is_attention = false;        // a kernel or product of it
  // kKernel: by its name in kernel_table.txt.
  std::string kernel = {};
  int64_t blocks = 0;
  int threads = 0;
  Traffic traffic = {};
  std::optional<Product> product = {};  // kProduct: for cuBLAS
  // kAttention: for cuDNN; of `attention`, backward if it has a dx.
  std::optional<FusedAttention> attention = {};
  std::optional<FusedConvolution> convolution = {};  // kConvolution: for cuDNN
  int64_t bytes = 0;                                 // kUpload, kDownload
};

// A device that computes nothing and has any amount of memory: what it is given it appends to
// `work`, and what is recorded each time that it is replayed. Addresses are aligned as a GPU's
// would be; nothing is there. Fused attention is that of half floats, with cuDNN's workspace
// (CudnnAttentionWorkspace), fused convolutions those that cuDNN takes (CudnnTakes). `work` must
// outlive the device.
std::unique_ptr<Device> MakeWorkList(std::vector<Work>* work,
                                     AttentionForm attention = AttentionForm::kProducts,
                                     ConvolutionForm convolution = ConvolutionForm::kProducts);

// The products among it, in order.
std::vector<Product> ProductsOf(const std::vector<Work>& work);

// "ForEachIndex<Apply<BFloat16,ReluFunction>>", of what a compiler says.
std::string ShortKernelName(const char* mangled);

}  // namespace rubato

#endif  // RUBATO_TENSOR_CUDA_WORK_LIST_H_
