// Where a worker computes, as its job and its machine have it.
#ifndef RUBATO_WORKER_STEP_COMPUTE_DEVICE_H_
#define RUBATO_WORKER_STEP_COMPUTE_DEVICE_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/job.pb.h"
#include "tensor/cuda/product.h"
#include "tensor/cuda/product_timer.h"
#include "tensor/device.h"

namespace rubato {

// The first GPU of the local_rank-th worker of a host with `count` of them, `each` of which are a
// worker's: of one, each has its own as far as they go, and then they share; otherwise
// FailedPrecondition if there are not so many.
absl::StatusOr<int> FirstGpuOf(int local_rank, int each, int count);

// "emulated:4" has workers compute on emulated GPUs (tensor/cuda/emulated_device.h), of which the
// host has 4, slowly: for tests of the whole system. "emulated" is one.
constexpr char kTestGpuVariable[] = "RUBATO_TEST_GPU";

// device.isa, for our own kernels and the matrix libraries'. Before any thread computes.
// FailedPrecondition if this processor lacks it: then nothing has changed.
absl::Status FixIsa(const proto::Device& device);

// What GPUs compute in.
struct GpuNumbers {
  DType dtype = DType::kFloat32;                           // models' activations
  ProductPrecision products = ProductPrecision::kFloat32;  // of float32
};
GpuNumbers NumbersOf(proto::Device::Precision precision);

class ComputeDevice {
 public:
  // The CPU.
  ComputeDevice() = default;

  // What device.type says, on so many GPUs. FailedPrecondition for `cuda` where there is no GPU,
  // saying why, and where there are too few.
  static absl::StatusOr<ComputeDevice> Choose(const proto::Device& device, int local_rank,
                                              int gpus = 1);

  bool is_cpu() const { return kind_ == Kind::kCpu; }
  // 0 on the CPU.
  int gpus() const { return is_cpu() ? 0 : gpus_; }
  // Of a model's share, of the i-th GPU of these. Null on the CPU. Errors as OpenGpu.
  absl::StatusOr<std::unique_ptr<Device>> Open(int i = 0) const;
  // For benchmarks of the first GPU, which the CPU is not. Errors likewise.
  absl::StatusOr<std::unique_ptr<ProductTimer>> OpenTimer() const;
  // What models compute in.
  DType dtype() const { return numbers_.dtype; }
  // What decides the bits of results, as far as it is known.
  std::string numerics() const;
  // One line about the choice, for the log; empty if the job left none.
  const std::string& note() const { return note_; }

 private:
  enum class Kind { kCpu, kGpu, kEmulatedGpu };

  // `gpus` of the `count` that there are.
  absl::Status ChooseGpus(bool is_emulated, int count, int local_rank, int gpus);

  Kind kind_ = Kind::kCpu;
  int first_gpu_ = 0, gpus_ = 1;
  GpuNumbers numbers_;
  std::string precision_ = "float32";  // as the job says it
  std::string model_;                  // of the GPUs
  std::string note_;
};

}  // namespace rubato

#endif  // RUBATO_WORKER_STEP_COMPUTE_DEVICE_H_
