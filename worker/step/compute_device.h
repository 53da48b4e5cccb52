// Where a worker computes, as its job and its machine have it.
#ifndef RUBATO_WORKER_STEP_COMPUTE_DEVICE_H_
#define RUBATO_WORKER_STEP_COMPUTE_DEVICE_H_

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/job.pb.h"
#include "tensor/cuda/fused_attention.h"
#include "tensor/cuda/fused_convolution.h"
#include "tensor/cuda/product.h"
#include "tensor/cuda/product_timer.h"
#include "tensor/device.h"
#include "tensor/exchange.h"
#include "worker/step/host_gpus.h"

namespace rubato {

// Which of its host's GPUs are a worker's.
struct GpuShare {
  int local_rank = 0;  // which of its host's workers it is
  int each = 1;        // GPUs of each of them
  // It does with those of its GPUs that are there and work, if there is one: it was started again.
  bool only_working = false;
};

// Of `count` GPUs. If each has one, workers take turns where there are more than GPUs; otherwise
// FailedPrecondition if there are not so many.
absl::StatusOr<std::vector<int>> GpusOf(const GpuShare& share, int count);

// device.isa, for our own kernels and the matrix libraries'. Before any thread computes.
// FailedPrecondition if this processor lacks it: then nothing has changed.
absl::Status FixIsa(const proto::Device& device);

// What GPUs compute in.
struct GpuNumbers {
  DType dtype = DType::kFloat32;                           // models' activations
  ProductPrecision products = ProductPrecision::kFloat32;  // of float32
  // In float32 products; else fused where they can be, unless the job wants products.
  AttentionForm attention = AttentionForm::kProducts;
  ConvolutionForm convolution = ConvolutionForm::kProducts;
};
GpuNumbers NumbersOf(const proto::Device& device);

class ComputeDevice {
 public:
  // The CPU.
  ComputeDevice() = default;

  // What device.type says. FailedPrecondition for `cuda` where there is no GPU, saying why, and
  // where there are too few.
  static absl::StatusOr<ComputeDevice> Choose(const proto::Device& device,
                                              const GpuShare& share = {});

  bool is_cpu() const { return gpus_.empty(); }
  // 0 on the CPU.
  int gpus() const { return static_cast<int>(gpus_.size()); }
  // Of a model's share, of the i-th GPU of these. Null on the CPU. Errors as OpenGpu.
  absl::StatusOr<std::unique_ptr<Device>> Open(int i = 0) const;
  // The i-th GPU cannot be used: whether it does without, being one of several that are to do with
  // those that work. The next one is the i-th then.
  bool LeaveOut(int i, const absl::Status& why);
  // Whether several GPUs are to exchange slices, and their exchange: of the first `gpus` of these.
  // Errors as OpenNcclExchange.
  bool exchanges() const { return exchanges_ && gpus() > 1; }
  absl::StatusOr<std::unique_ptr<Exchange>> OpenExchange(int gpus) const;
  // For benchmarks of the first GPU, which the CPU is not. Errors likewise.
  absl::StatusOr<std::unique_ptr<ProductTimer>> OpenTimer() const;
  // What models compute in.
  DType dtype() const { return numbers_.dtype; }
  // What decides the bits of results, as far as it is known; fused_by: that of the models' devices.
  std::string numerics(const std::string& fused_by = "") const;
  // One line about the choice, for the log; empty if the job left none.
  std::string note() const;
  // GPUs that are left out, and why.
  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  // Of the `count` that there are.
  absl::Status ChooseGpus(const GpuShare& share, int count);
  // "NVIDIA H200, cuBLAS 13.1.0", or several.
  std::string Models() const;

  const HostGpus* host_ = nullptr;
  int count_ = 0;
  std::vector<int> gpus_;
  std::map<int, std::string> models_;  // of GPUs
  bool only_working_ = false, exchanges_ = false;
  GpuNumbers numbers_;
  std::string precision_ = "float32";  // as the job says it
  std::string note_;                   // on the CPU
  std::vector<std::string> warnings_;
};

}  // namespace rubato

#endif  // RUBATO_WORKER_STEP_COMPUTE_DEVICE_H_
