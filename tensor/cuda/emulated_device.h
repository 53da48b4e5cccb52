#ifndef RUBATO_TENSOR_CUDA_EMULATED_DEVICE_H_
#define RUBATO_TENSOR_CUDA_EMULATED_DEVICE_H_

#include <cstdint>
#include <memory>

#include "tensor/cuda/fused_attention.h"
#include "tensor/cuda/fused_convolution.h"
#include "tensor/cuda/gpu_kernels.h"
#include "tensor/cuda/product.h"
#include "tensor/device.h"

namespace rubato {

// What products the emulated library has algorithms for.
enum class EmulatedLibrary { kWhole, kNoBias, kNothing };

// What a test chooses of an emulated GPU.
struct EmulatedDeviceOptions {
  ProductPrecision precision = ProductPrecision::kFloat32;
  uint64_t seed = 1;  // of the order of work, see EmulatedQueue
  int64_t memory_bytes = int64_t{4} << 30;
  int64_t reserved_bytes = 0;
  EmulatedLibrary library = EmulatedLibrary::kWhole;
  AttentionForm attention = AttentionForm::kProducts;
  ConvolutionForm convolution = ConvolutionForm::kProducts;
  int64_t columns = kColumns;  // see ConvolutionKernels
  bool pins = true;            // the host's memory
};

// A GPU's kernels, streams and transfers on the CPU, slowly: for tests on machines without one. Its
// memory is filled with NaNs before use.
std::unique_ptr<Device> MakeEmulatedDevice(const EmulatedDeviceOptions& options = {});

}  // namespace rubato

#endif  // RUBATO_TENSOR_CUDA_EMULATED_DEVICE_H_
