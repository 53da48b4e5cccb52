#include "worker/step/compute_device.h"

#include <cstdlib>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/check.h"
#include "common/base/isa.h"
#include "common/base/status.h"
#include "tensor/cuda/cuda_device.h"
#include "tensor/cuda/emulated_device.h"
#include "tensor/kernels.h"

namespace rubato {

absl::Status FixIsa(const proto::Device& device) {
  const std::string name = proto::Device::Isa_Name(device.isa());  // "ISA_AVX2"
  RUBATO_ASSIGN_OR_RETURN(const Isa isa,
                          IsaFromName(absl::AsciiStrToLower(absl::StripPrefix(name, "ISA_"))));
  SetIsa(isa);
  if (device.isa() != proto::Device::ISA_AUTO) FixMatMulKernels(isa);
  return absl::OkStatus();
}

absl::StatusOr<GpuNumbers> NumbersOf(proto::Device::Precision precision) {
  GpuNumbers numbers;
  const char* const set = std::getenv(kAttentionVariable);
  const absl::string_view form = set == nullptr ? "auto" : set;
  if (form != "auto" && form != "products") {
    return absl::InvalidArgumentError(
        absl::StrCat(kAttentionVariable, ": found ", form, ", expected auto or products"));
  }
  if (form == "auto") numbers.attention = AttentionForm::kFused;
  switch (precision) {
    case proto::Device::PRECISION_FLOAT32:
      break;
    case proto::Device::PRECISION_TF32:
      numbers.products = ProductPrecision::kTf32;
      break;
    case proto::Device::PRECISION_BF16:
      numbers.dtype = DType::kBFloat16;
      break;
    case proto::Device::PRECISION_FP16:
      numbers.dtype = DType::kFloat16;
      break;
  }
  return numbers;
}

absl::StatusOr<ComputeDevice> ComputeDevice::Choose(const proto::Device& device, int local_rank) {
  ComputeDevice chosen;
  const char* const test = std::getenv(kTestGpuVariable);
  if (device.type() == proto::Device::TYPE_CPU) {
    chosen.kind_ = Kind::kCpu;
  } else if (test != nullptr && absl::string_view(test) == "emulated") {
    chosen.kind_ = Kind::kEmulatedGpu;
  } else {
    const absl::StatusOr<int> count = CountGpus();
    if (count.ok()) {
      chosen.kind_ = Kind::kGpu;
      chosen.gpu_ = GpuOf(local_rank, *count);
      RUBATO_ASSIGN_OR_RETURN(chosen.model_, GpuModel(chosen.gpu_));
      chosen.note_ =
          absl::StrCat("computes on GPU ", chosen.gpu_, " of ", *count, ", ", chosen.model_);
    } else if (device.type() == proto::Device::TYPE_CUDA) {
      return absl::FailedPreconditionError(
          absl::StrCat("device.type: found cuda, but ", count.status().message()));
    } else {
      chosen.note_ = absl::StrCat("computes on the CPU: ", count.status().message());
    }
  }
  const std::string name = proto::Device::Precision_Name(device.precision());  // "PRECISION_BF16"
  const std::string precision = absl::AsciiStrToLower(absl::StripPrefix(name, "PRECISION_"));
  if (chosen.is_cpu()) {
    if (device.precision() != proto::Device::PRECISION_FLOAT32) {
      absl::StrAppend(&chosen.note_, chosen.note_.empty() ? "" : "; ",
                      "in float32, because device.precision: ", precision, " is for GPUs");
    }
    return chosen;
  }
  chosen.precision_ = precision;
  RUBATO_ASSIGN_OR_RETURN(chosen.numbers_, NumbersOf(device.precision()));
  return chosen;
}

absl::StatusOr<std::unique_ptr<Device>> ComputeDevice::Open() const {
  const bool is_half = BytesOf(numbers_.dtype) < BytesOf(DType::kFloat32);
  switch (kind_) {
    case Kind::kCpu:
      return std::unique_ptr<Device>();
    case Kind::kGpu:
      return OpenGpu(gpu_, numbers_.products,
                     is_half ? numbers_.attention : AttentionForm::kProducts);
    case Kind::kEmulatedGpu:
      break;
  }
  EmulatedDeviceOptions options;
  options.precision = numbers_.products;
  options.attention = numbers_.attention;
  return MakeEmulatedDevice(options);
}

absl::StatusOr<std::unique_ptr<ProductTimer>> ComputeDevice::OpenTimer() const {
  RUBATO_CHECK(!is_cpu());
  if (kind_ == Kind::kGpu) return OpenProductTimer(gpu_, numbers_.products);
  return MakeEmulatedProductTimer(numbers_.products);
}

std::string ComputeDevice::numerics(const std::string& fused_by) const {
  const std::string attention = fused_by.empty() ? "" : absl::StrCat(", ", fused_by);
  switch (kind_) {
    case Kind::kCpu:
      break;
    case Kind::kGpu:
      return absl::StrCat("cuda, ", precision_, ", ", model_, attention);
    case Kind::kEmulatedGpu:
      return absl::StrCat("emulated cuda, ", precision_, ", ", MatMulSignature(), attention);
  }
  return absl::StrCat("cpu, ", MatMulSignature());
}

}  // namespace rubato
