// The GPUs that tests run on: the emulated one, and a real one where there is one.
#ifndef RUBATO_TENSOR_CUDA_TESTED_GPU_H_
#define RUBATO_TENSOR_CUDA_TESTED_GPU_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "tensor/cuda/cuda_device.h"
#include "tensor/cuda/emulated_device.h"
#include "tensor/device.h"

namespace rubato {

enum class TestedGpu { kEmulated, kReal };

// Why it is not here, for GTEST_SKIP; empty if it is.
inline std::string WhyAbsent(TestedGpu gpu) {
  if (gpu == TestedGpu::kEmulated) return "";
  return std::string(CountGpus().status().message());
}

// Of the options, a real GPU takes the precision and the forms of attention and convolutions alone.
inline absl::StatusOr<std::unique_ptr<Device>> OpenTested(
    TestedGpu gpu, const EmulatedDeviceOptions& options = {}) {
  if (gpu == TestedGpu::kReal) {
    return OpenGpu(0, options.precision, options.attention, kGpuPatience, options.convolution);
  }
  return MakeEmulatedDevice(options);
}

}  // namespace rubato

#endif  // RUBATO_TENSOR_CUDA_TESTED_GPU_H_
