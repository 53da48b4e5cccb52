// NVIDIA's GPUs.
#ifndef RUBATO_TENSOR_CUDA_CUDA_DEVICE_H_
#define RUBATO_TENSOR_CUDA_CUDA_DEVICE_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tensor/cuda/fused_attention.h"
#include "tensor/cuda/fused_convolution.h"
#include "tensor/cuda/patience.h"
#include "tensor/cuda/product.h"
#include "tensor/device.h"

namespace rubato {

// How many there are for this process (CUDA_VISIBLE_DEVICES), at least one. FailedPrecondition,
// saying why, if there is none, or if CUDA is not part of this build.
absl::StatusOr<int> CountGpus();

// What decides the bits of its results: "NVIDIA H200, cuBLAS 13.1.0", of the library that
// is there. Errors as CountGpus.
absl::StatusOr<std::string> GpuModel(int index);

// One model's share of GPU `index`. FailedPrecondition if it is too old, or cuBLAS is not there;
// ResourceExhausted without memory. Fused attention and convolutions are cuDNN's, where that is
// there. A wait of the device's ends the process when nothing has moved for as long as `patience`.
absl::StatusOr<std::unique_ptr<Device>> OpenGpu(
    int index, ProductPrecision precision, AttentionForm attention = AttentionForm::kProducts,
    absl::Duration patience = kGpuPatience,
    ConvolutionForm convolution = ConvolutionForm::kProducts);

}  // namespace rubato

#endif  // RUBATO_TENSOR_CUDA_CUDA_DEVICE_H_
