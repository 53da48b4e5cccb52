#include "worker/step/compute_device.h"

#include <cstdlib>
#include <optional>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "common/base/check.h"
#include "common/base/isa.h"
#include "common/base/status.h"
#include "tensor/cuda/cuda_device.h"
#include "tensor/cuda/emulated_device.h"
#include "tensor/kernels.h"

namespace rubato {

namespace {

// How many GPUs a test wants emulated, if it does.
std::optional<int> EmulatedGpus() {
  const char* const test = std::getenv(kTestGpuVariable);
  if (test == nullptr) return std::nullopt;
  absl::string_view text = test;
  if (!absl::ConsumePrefix(&text, "emulated")) return std::nullopt;
  if (text.empty()) return 1;
  int count = 0;
  RUBATO_CHECK(absl::ConsumePrefix(&text, ":") && absl::SimpleAtoi(text, &count) && count > 0);
  return count;
}

}  // namespace

absl::Status FixIsa(const proto::Device& device) {
  const std::string name = proto::Device::Isa_Name(device.isa());  // "ISA_AVX2"
  RUBATO_ASSIGN_OR_RETURN(const Isa isa,
                          IsaFromName(absl::AsciiStrToLower(absl::StripPrefix(name, "ISA_"))));
  SetIsa(isa);
  if (device.isa() != proto::Device::ISA_AUTO) FixMatMulKernels(isa);
  return absl::OkStatus();
}

GpuNumbers NumbersOf(proto::Device::Precision precision) {
  GpuNumbers numbers;
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

absl::StatusOr<int> FirstGpuOf(int local_rank, int each, int count) {
  if (each == 1) return local_rank % count;
  const int64_t wanted = (int64_t{local_rank} + 1) * each;
  if (wanted <= count) return local_rank * each;
  return absl::FailedPreconditionError(absl::StrCat(
      "cluster.gpus_per_worker: found ", each, ", so that ",
      local_rank == 0 ? "a worker takes" : absl::StrCat(local_rank + 1, " workers of a host take"),
      " ", wanted, " GPUs, and ", count == 1 ? "there is " : "there are ", count));
}

absl::Status ComputeDevice::ChooseGpus(bool is_emulated, int count, int local_rank, int gpus) {
  RUBATO_ASSIGN_OR_RETURN(first_gpu_, FirstGpuOf(local_rank, gpus, count));
  kind_ = is_emulated ? Kind::kEmulatedGpu : Kind::kGpu;
  gpus_ = gpus;
  std::set<std::string> models;
  for (int gpu = first_gpu_; gpu < first_gpu_ + gpus; ++gpu) {
    if (is_emulated) {
      models.insert("emulated");
      continue;
    }
    RUBATO_ASSIGN_OR_RETURN(std::string model, GpuModel(gpu));
    models.insert(std::move(model));
  }
  model_ = absl::StrJoin(models, " and ");
  note_ = absl::StrCat("computes on ", gpus == 1 ? "GPU " : "GPUs ", first_gpu_,
                       gpus == 1 ? "" : absl::StrCat(" to ", first_gpu_ + gpus - 1), " of ", count,
                       ", ", model_);
  return absl::OkStatus();
}

absl::StatusOr<ComputeDevice> ComputeDevice::Choose(const proto::Device& device, int local_rank,
                                                    int gpus) {
  ComputeDevice chosen;
  const std::optional<int> emulated = EmulatedGpus();
  if (device.type() != proto::Device::TYPE_CPU) {
    const absl::StatusOr<int> count = emulated.has_value() ? *emulated : CountGpus();
    if (count.ok()) {
      RUBATO_RETURN_IF_ERROR(chosen.ChooseGpus(emulated.has_value(), *count, local_rank, gpus));
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
    const auto add = [&](auto... text) {
      absl::StrAppend(&chosen.note_, chosen.note_.empty() ? "" : "; ", text...);
    };
    if (device.precision() != proto::Device::PRECISION_FLOAT32) {
      add("in float32, because device.precision: ", precision, " is for GPUs");
    }
    if (gpus > 1) add("without cluster.gpus_per_worker: ", gpus, ", which is for GPUs");
    return chosen;
  }
  chosen.precision_ = precision;
  chosen.numbers_ = NumbersOf(device.precision());
  return chosen;
}

absl::StatusOr<std::unique_ptr<Device>> ComputeDevice::Open(int i) const {
  switch (kind_) {
    case Kind::kCpu:
      return std::unique_ptr<Device>();
    case Kind::kGpu:
      return OpenGpu(first_gpu_ + i, numbers_.products);
    case Kind::kEmulatedGpu:
      break;
  }
  EmulatedDeviceOptions options;
  options.precision = numbers_.products;
  options.seed += first_gpu_ + i;  // each with another order of work
  return MakeEmulatedDevice(options);
}

absl::StatusOr<std::unique_ptr<ProductTimer>> ComputeDevice::OpenTimer() const {
  RUBATO_CHECK(!is_cpu());
  if (kind_ == Kind::kGpu) return OpenProductTimer(first_gpu_, numbers_.products);
  return MakeEmulatedProductTimer(numbers_.products);
}

std::string ComputeDevice::numerics() const {
  switch (kind_) {
    case Kind::kCpu:
      break;
    case Kind::kGpu:
      return absl::StrCat("cuda, ", precision_, ", ", model_);
    case Kind::kEmulatedGpu:
      return absl::StrCat("emulated cuda, ", precision_, ", ", MatMulSignature());
  }
  return absl::StrCat("cpu, ", MatMulSignature());
}

}  // namespace rubato
