#include "tensor/cuda/ptx/embedded_kernels.h"

#include <fatbinary_section.h>

#include <cstdio>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "tensor/cuda/ptx/fat_binary.h"
#include "tensor/cuda/ptx/machine.h"

namespace rubato::ptx {
namespace {

// Of the PTX that is embedded (tools/bazel/nvcc.bzl).
constexpr int kArchitecture = 90;

void Print(const absl::Status& status) {
  std::fprintf(stderr, "error: %s\n", std::string(status.message()).c_str());
}

}  // namespace

absl::StatusOr<std::vector<std::string>> EmbeddedKernels::Texts() {
  std::vector<std::string> texts;
  for (const void* registered : FakeFatBinaries()) {
    const auto& wrapper = *static_cast<const __fatBinC_Wrapper_t*>(registered);
    if (wrapper.magic != FATBINC_MAGIC) return absl::InvalidArgumentError("no fat binary");
    RUBATO_ASSIGN_OR_RETURN(const absl::string_view binary, FatBinaryAt(wrapper.data));
    RUBATO_ASSIGN_OR_RETURN(texts.emplace_back(),
                            EmbeddedPtx(binary, kArchitecture, DecompressZstandard));
  }
  return texts;
}

absl::StatusOr<std::unique_ptr<EmbeddedKernels>> EmbeddedKernels::Create(
    const std::vector<std::string>& texts) {
  auto kernels = std::make_unique<EmbeddedKernels>();
  for (const std::string& text : texts) {
    RUBATO_ASSIGN_OR_RETURN(ModuleText module, ReadModule(text));
    kernels->modules_.push_back(std::move(module));
  }
  return kernels;
}

EmbeddedKernels::Summary EmbeddedKernels::Summarize() const {
  Summary summary;
  for (const ModuleText& module : modules_) {
    summary.kernels += static_cast<int64_t>(module.kernels.size());
  }
  for (const auto& [name, coverage] : coverage_) {
    ++summary.kernels_run;
    summary.executed += coverage.executed;
    summary.instructions += static_cast<int64_t>(coverage.reached.size());
    for (uint8_t reached : coverage.reached) summary.instructions_run += reached;
  }
  return summary;
}

absl::StatusOr<const Kernel*> EmbeddedKernels::Find(const std::string& name) {
  const auto found = decoded_.find(name);
  if (found != decoded_.end()) return &found->second;
  for (const ModuleText& module : modules_) {
    for (const KernelText& text : module.kernels) {
      if (text.name != name) continue;
      RUBATO_ASSIGN_OR_RETURN(Kernel kernel, Decode(text, module.shared));
      return &(decoded_[name] = std::move(kernel));
    }
  }
  return absl::NotFoundError(absl::StrCat("kernel ", name, " is not in the embedded PTX"));
}

FakeWork EmbeddedKernels::Prepare(const FakeLaunch& asked) {
  const absl::StatusOr<const Kernel*> kernel = Find(asked.kernel);
  if (!kernel.ok()) {
    Print(kernel.status());
    return [] { return cudaErrorInvalidKernelImage; };
  }
  if (asked.grid.y != 1 || asked.grid.z != 1 || asked.block.y != 1 || asked.block.z != 1) {
    Print(absl::InvalidArgumentError("a grid or a block of more than one dimension"));
    return [] { return cudaErrorInvalidConfiguration; };
  }
  Launch launch;
  launch.blocks = asked.grid.x;
  launch.threads = static_cast<int>(asked.block.x);
  launch.shared_bytes = static_cast<int64_t>(asked.shared);
  launch.backwards = ++launches_ % 2 == 0;
  launch.parameters.resize((*kernel)->parameter_bytes);
  for (size_t i = 0; i < (*kernel)->parameters.size(); ++i) {
    const ParameterText& parameter = (*kernel)->parameters[i];
    std::memcpy(&launch.parameters[parameter.offset], asked.arguments[i], parameter.size);
  }
  return [this, kernel = *kernel, launch = std::move(launch)] {
    std::vector<Piece> pieces;
    for (const auto& [begin, bytes] : FakeGpuMemory()) {
      const auto at = reinterpret_cast<uintptr_t>(begin);
      pieces.push_back({at, at + bytes});
    }
    const absl::Status status =
        Run(*kernel, launch, GlobalMemory(std::move(pieces)), &accesses_, &coverage_[kernel->name]);
    if (!status.ok()) Print(status);
    return status.ok() ? cudaSuccess : cudaErrorIllegalAddress;
  };
}

}  // namespace rubato::ptx
