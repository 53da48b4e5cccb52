// Linked where the CUDA toolkit was not there to build with.
#include "absl/status/status.h"
#include "tensor/cuda/cuda_device.h"
#include "tensor/cuda/nccl_exchange.h"
#include "tensor/cuda/product_timer.h"

namespace rubato {
namespace {

absl::Status NotBuilt() {
  return absl::FailedPreconditionError(
      "CUDA is not part of this build: no toolkit was found when it was built");
}

}  // namespace

absl::StatusOr<int> CountGpus() { return NotBuilt(); }

absl::StatusOr<std::string> GpuModel(int) { return NotBuilt(); }

absl::StatusOr<std::unique_ptr<Device>> OpenGpu(int, ProductPrecision, AttentionForm,
                                                absl::Duration, ConvolutionForm) {
  return NotBuilt();
}

absl::StatusOr<std::unique_ptr<Exchange>> OpenNcclExchange(const std::vector<int>&,
                                                           absl::Duration) {
  return NotBuilt();
}

absl::StatusOr<std::unique_ptr<ProductTimer>> OpenProductTimer(int, ProductPrecision) {
  return NotBuilt();
}

}  // namespace rubato
