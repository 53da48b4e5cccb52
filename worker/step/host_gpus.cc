#include "worker/step/host_gpus.h"

#include "tensor/cuda/cuda_device.h"
#include "tensor/cuda/nccl_exchange.h"

namespace rubato {
namespace {

class NvidiaGpus final : public HostGpus {
 public:
  absl::StatusOr<int> Count() const override { return CountGpus(); }
  absl::StatusOr<std::string> Model(int gpu) const override { return GpuModel(gpu); }
  absl::StatusOr<std::unique_ptr<Device>> Open(int gpu, ProductPrecision precision,
                                               AttentionForm attention,
                                               ConvolutionForm convolution) const override {
    return OpenGpu(gpu, precision, attention, kGpuPatience, convolution);
  }
  absl::StatusOr<std::unique_ptr<ProductTimer>> OpenTimer(
      int gpu, ProductPrecision precision) const override {
    return OpenProductTimer(gpu, precision);
  }
  absl::StatusOr<std::unique_ptr<Exchange>> OpenExchange(
      const std::vector<int>& gpus) const override {
    return OpenNcclExchange(gpus);
  }
};

const HostGpus* (*substitute_of_tests)() = nullptr;

}  // namespace

const HostGpus& GpusOfThisHost() {
  static const NvidiaGpus* const kNvidia = new NvidiaGpus;
  const HostGpus* const substitute =
      substitute_of_tests == nullptr ? nullptr : substitute_of_tests();
  return substitute == nullptr ? *kNvidia : *substitute;
}

void SubstituteHostGpus(const HostGpus* (*substitute)()) { substitute_of_tests = substitute; }

}  // namespace rubato
