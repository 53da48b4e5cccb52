// Where a worker computes, as its job and its machine have it.
#ifndef RUBATO_WORKER_STEP_COMPUTE_DEVICE_H_
#define RUBATO_WORKER_STEP_COMPUTE_DEVICE_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/job.pb.h"
#include "tensor/cuda/fused_attention.h"
#include "tensor/cuda/product.h"
#include "tensor/cuda/product_timer.h"
#include "tensor/device.h"

namespace rubato {

// The GPU of the local_rank-th worker of a host with `count` of them: each its own, as far as they
// go.
inline int GpuOf(int local_rank, int count) { return local_rank % count; }

// "emulated" has workers compute on an emulated GPU (tensor/cuda/emulated_device.h), slowly: for
// tests of the whole system.
constexpr char kTestGpuVariable[] = "RUBATO_TEST_GPU";

// "products" has a GPU compute attention as products and a softmax; "auto", as if it were not set,
// in one piece, in bf16 and fp16 and by cuDNN, where that is there and takes it.
constexpr char kAttentionVariable[] = "RUBATO_ATTENTION";

// device.isa, for our own kernels and the matrix libraries'. Before any thread computes.
// FailedPrecondition if this processor lacks it: then nothing has changed.
absl::Status FixIsa(const proto::Device& device);

// What GPUs compute in.
struct GpuNumbers {
  DType dtype = DType::kFloat32;                           // models' activations
  ProductPrecision products = ProductPrecision::kFloat32;  // of float32
  AttentionForm attention = AttentionForm::kProducts;      // fused where it can be
};
// InvalidArgument for another form of attention (kAttentionVariable) than there are.
absl::StatusOr<GpuNumbers> NumbersOf(proto::Device::Precision precision);

class ComputeDevice {
 public:
  // The CPU.
  ComputeDevice() = default;

  // What device.type says. FailedPrecondition for `cuda` where there is no GPU, saying why; errors
  // as NumbersOf.
  static absl::StatusOr<ComputeDevice> Choose(const proto::Device& device, int local_rank);

  bool is_cpu() const { return kind_ == Kind::kCpu; }
  // Of a model's share. Null on the CPU. Errors as OpenGpu.
  absl::StatusOr<std::unique_ptr<Device>> Open() const;
  // For benchmarks of a GPU, which the CPU is not. Errors likewise.
  absl::StatusOr<std::unique_ptr<ProductTimer>> OpenTimer() const;
  // What models compute in.
  DType dtype() const { return numbers_.dtype; }
  // What decides the bits of results, as far as it is known; fused_by: that of the models' devices.
  std::string numerics(const std::string& fused_by = "") const;
  // One line about the choice, for the log; empty if the job left none.
  const std::string& note() const { return note_; }

 private:
  enum class Kind { kCpu, kGpu, kEmulatedGpu };

  Kind kind_ = Kind::kCpu;
  int gpu_ = 0;
  GpuNumbers numbers_;
  std::string precision_ = "float32";  // as the job says it
  std::string model_;                  // of the GPU
  std::string note_;
};

}  // namespace rubato

#endif  // RUBATO_WORKER_STEP_COMPUTE_DEVICE_H_
