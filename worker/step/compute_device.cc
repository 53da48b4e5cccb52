#include "worker/step/compute_device.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "common/base/check.h"
#include "common/base/isa.h"
#include "common/base/status.h"
#include "tensor/kernels.h"
#include "worker/step/host_gpus.h"

namespace rubato {

absl::Status FixIsa(const proto::Device& device) {
  const std::string name = proto::Device::Isa_Name(device.isa());  // "ISA_AVX2"
  RUBATO_ASSIGN_OR_RETURN(const Isa isa,
                          IsaFromName(absl::AsciiStrToLower(absl::StripPrefix(name, "ISA_"))));
  SetIsa(isa);
  if (device.isa() != proto::Device::ISA_AUTO) FixMatMulKernels(isa);
  return absl::OkStatus();
}

GpuNumbers NumbersOf(const proto::Device& device) {
  GpuNumbers numbers;
  switch (device.precision()) {
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
  if (!IsHalf(numbers.dtype)) return numbers;
  if (device.attention() == proto::Device::ATTENTION_AUTO) {
    numbers.attention = AttentionForm::kFused;
  }
  if (device.convolution() == proto::Device::CONVOLUTION_AUTO) {
    numbers.convolution = ConvolutionForm::kFused;
  }
  return numbers;
}

absl::StatusOr<std::vector<int>> GpusOf(const GpuShare& share, int count) {
  if (share.each == 1) return std::vector<int>{share.local_rank % count};
  const int64_t begin = int64_t{share.local_rank} * share.each, end = begin + share.each;
  if (end > count && !(share.only_working && begin < count)) {
    return absl::FailedPreconditionError(
        absl::StrCat("cluster.gpus_per_worker: found ", share.each, ", so that ",
                     begin == 0 ? "a worker takes"
                                : absl::StrCat(share.local_rank + 1, " workers of a host take"),
                     " ", end, " GPUs, and ", count == 1 ? "there is " : "there are ", count));
  }
  std::vector<int> gpus;
  for (int64_t gpu = begin; gpu < std::min<int64_t>(end, count); ++gpu) {
    gpus.push_back(static_cast<int>(gpu));
  }
  return gpus;
}

absl::Status ComputeDevice::ChooseGpus(const GpuShare& share, int count) {
  RUBATO_ASSIGN_OR_RETURN(gpus_, GpusOf(share, count));
  count_ = count;
  only_working_ = share.only_working;
  if (gpus() < share.each) {
    warnings_.push_back(absl::StrCat("computes on ", gpus(), " GPUs and not on ", share.each, ": ",
                                     count, " are there"));
  }
  for (int i = 0; i < gpus();) {
    absl::StatusOr<std::string> model = host_->Model(gpus_[i]);
    if (model.ok()) {
      models_[gpus_[i++]] = *std::move(model);
    } else if (!LeaveOut(i, model.status())) {
      return model.status();
    }
  }
  return absl::OkStatus();
}

bool ComputeDevice::LeaveOut(int i, const absl::Status& why) {
  if (!only_working_ || gpus() < 2) return false;
  warnings_.push_back(absl::StrCat("leaves GPU ", gpus_[i], " out: ", why.message()));
  models_.erase(gpus_[i]);
  gpus_.erase(gpus_.begin() + i);
  return true;
}

std::string ComputeDevice::Models() const {
  std::set<std::string> models;
  for (const auto& [gpu, model] : models_) models.insert(model);
  return absl::StrJoin(models, " and ");
}

std::string ComputeDevice::note() const {
  if (is_cpu()) return note_;
  return absl::StrCat("computes on ", gpus() == 1 ? "GPU " : "GPUs ", absl::StrJoin(gpus_, ", "),
                      " of ", count_, ", ", Models());
}

absl::StatusOr<ComputeDevice> ComputeDevice::Choose(const proto::Device& device,
                                                    const GpuShare& share) {
  ComputeDevice chosen;
  if (device.type() != proto::Device::TYPE_CPU) {
    chosen.host_ = &GpusOfThisHost();
    const absl::StatusOr<int> count = chosen.host_->Count();
    if (count.ok()) {
      RUBATO_RETURN_IF_ERROR(chosen.ChooseGpus(share, *count));
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
    if (share.each > 1) {
      add("without cluster.gpus_per_worker: ", share.each, ", which is for GPUs");
    }
    return chosen;
  }
  chosen.precision_ = precision;
  chosen.numbers_ = NumbersOf(device);
  chosen.exchanges_ = device.exchange() == proto::Device::EXCHANGE_AUTO;
  return chosen;
}

absl::StatusOr<std::unique_ptr<Device>> ComputeDevice::Open(int i) const {
  if (is_cpu()) return std::unique_ptr<Device>();
  return host_->Open(gpus_[i], numbers_.products, numbers_.attention, numbers_.convolution);
}

absl::StatusOr<std::unique_ptr<Exchange>> ComputeDevice::OpenExchange(int gpus) const {
  return host_->OpenExchange({gpus_.begin(), gpus_.begin() + gpus});
}

absl::StatusOr<std::unique_ptr<ProductTimer>> ComputeDevice::OpenTimer() const {
  RUBATO_CHECK(!is_cpu());
  return host_->OpenTimer(gpus_[0], numbers_.products);
}

std::string ComputeDevice::numerics(const std::string& fused_by) const {
  if (is_cpu()) return absl::StrCat("cpu, ", MatMulSignature());
  return absl::StrCat("cuda, ", precision_, ", ", Models(), fused_by.empty() ? "" : ", ", fused_by);
}

}  // namespace rubato
