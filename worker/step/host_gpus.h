// The GPUs of this host: NVIDIA's, or in tests' programs others in their place.
#ifndef RUBATO_WORKER_STEP_HOST_GPUS_H_
#define RUBATO_WORKER_STEP_HOST_GPUS_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tensor/cuda/fused_attention.h"
#include "tensor/cuda/fused_convolution.h"
#include "tensor/cuda/product.h"
#include "tensor/cuda/product_timer.h"
#include "tensor/device.h"
#include "tensor/exchange.h"

namespace rubato {

class HostGpus {
 public:
  virtual ~HostGpus() = default;

  // As CountGpus, GpuModel, OpenGpu and OpenProductTimer (cuda_device.h, product_timer.h).
  virtual absl::StatusOr<int> Count() const = 0;
  virtual absl::StatusOr<std::string> Model(int gpu) const = 0;
  virtual absl::StatusOr<std::unique_ptr<Device>> Open(int gpu, ProductPrecision precision,
                                                       AttentionForm attention,
                                                       ConvolutionForm convolution) const = 0;
  virtual absl::StatusOr<std::unique_ptr<ProductTimer>> OpenTimer(
      int gpu, ProductPrecision precision) const = 0;
  // As OpenNcclExchange (nccl_exchange.h).
  virtual absl::StatusOr<std::unique_ptr<Exchange>> OpenExchange(
      const std::vector<int>& gpus) const = 0;
};

const HostGpus& GpusOfThisHost();

// For tests: what `substitute` returns is taken for the host's from now on, where it is not null.
// It is asked each time.
void SubstituteHostGpus(const HostGpus* (*substitute)());

}  // namespace rubato

#endif  // RUBATO_WORKER_STEP_HOST_GPUS_H_
