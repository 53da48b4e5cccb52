#include "worker/step/test_gpus.h"

#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/check.h"
#include "common/base/log.h"
#include "tensor/cuda/emulated_device.h"
#include "tensor/cuda/emulated_exchange.h"
#include "tensor/kernels.h"
#include "worker/step/host_gpus.h"

namespace rubato {
namespace {

// Fails as a GPU does: with its process.
class FailingGpu final : public Device {
 public:
  FailingGpu(int index, int waits, std::string file, std::unique_ptr<Device> gpu)
      : index_(index), left_(waits), file_(std::move(file)), gpu_(std::move(gpu)) {}

  void Synchronize() override {
    if (--left_ == 0) {
      std::ofstream(file_).flush();
      PrintError(absl::InternalError(absl::StrCat("on GPU ", index_, ": a step failed")));
      _exit(1);
    }
    gpu_->Synchronize();
  }

  std::string description() const override { return gpu_->description(); }
  DeviceKernels& kernels() override { return gpu_->kernels(); }
  std::string fused_by() const override { return gpu_->fused_by(); }
  std::string fused() const override { return gpu_->fused(); }
  absl::StatusOr<void*> Allocate(int64_t bytes) override { return gpu_->Allocate(bytes); }
  absl::StatusOr<void*> AllocatePinned(int64_t bytes) override {
    return gpu_->AllocatePinned(bytes);
  }
  bool Pin(void* host, int64_t bytes) override { return gpu_->Pin(host, bytes); }
  void Unpin(void* host) override { gpu_->Unpin(host); }
  int64_t free_bytes() const override { return gpu_->free_bytes(); }
  int64_t total_bytes() const override { return gpu_->total_bytes(); }
  int64_t reserved_bytes() const override { return gpu_->reserved_bytes(); }
  void Upload(Stream stream, const void* host, void* device, int64_t bytes) override {
    gpu_->Upload(stream, host, device, bytes);
  }
  void Download(Stream stream, const void* device, void* host, int64_t bytes) override {
    gpu_->Download(stream, device, host, bytes);
  }
  void Order(Stream waiting, Stream other) override { gpu_->Order(waiting, other); }
  void Signal(Stream stream) override { gpu_->Signal(stream); }
  void ResetSignals() override { gpu_->ResetSignals(); }
  void AwaitSignals(int64_t count) override { gpu_->AwaitSignals(count); }
  void BeginRecording() override { gpu_->BeginRecording(); }
  int EndRecording() override { return gpu_->EndRecording(); }
  void Replay(int recording) override { gpu_->Replay(recording); }
  void Forget(int recording) override { gpu_->Forget(recording); }

 private:
  const int index_;
  int left_;
  const std::string file_;
  const std::unique_ptr<Device> gpu_;
};

class TestGpus final : public HostGpus {
 public:
  absl::StatusOr<int> Count() const override {
    absl::string_view text = std::getenv(kTestGpuVariable);
    int count = 1;
    RUBATO_CHECK(absl::ConsumePrefix(&text, "emulated"));
    if (absl::ConsumePrefix(&text, ":")) RUBATO_CHECK(absl::SimpleAtoi(text, &count) && count > 0);
    return count;
  }

  absl::StatusOr<std::string> Model(int) const override {
    return absl::StrCat("emulated by ", MatMulSignature());
  }

  absl::StatusOr<std::unique_ptr<Device>> Open(int gpu, ProductPrecision precision,
                                               AttentionForm attention,
                                               ConvolutionForm convolution) const override {
    EmulatedDeviceOptions options;
    options.precision = precision;
    options.attention = attention;
    options.convolution = convolution;
    options.seed += gpu;  // each with another order of work
    std::unique_ptr<Device> device = MakeEmulatedDevice(options);
    const char* const fails = std::getenv(kTestGpuFailsVariable);
    const std::vector<std::string> words = absl::StrSplit(fails == nullptr ? "" : fails, ':');
    int failing = -1, waits = 0;
    if (words.size() != 3 || !absl::SimpleAtoi(words[0], &failing) || failing != gpu) return device;
    RUBATO_CHECK(absl::SimpleAtoi(words[1], &waits));
    if (access(words[2].c_str(), F_OK) == 0) {
      return absl::InternalError("the choice of a GPU failed: it was told to");
    }
    return std::unique_ptr<Device>(new FailingGpu(gpu, waits, words[2], std::move(device)));
  }

  absl::StatusOr<std::unique_ptr<ProductTimer>> OpenTimer(
      int, ProductPrecision precision) const override {
    return MakeEmulatedProductTimer(precision);
  }

  absl::StatusOr<std::unique_ptr<Exchange>> OpenExchange(
      const std::vector<int>& gpus) const override {
    if (std::getenv(kTestExchangeRefusesVariable) != nullptr) {
      return absl::FailedPreconditionError("an exchange was told to refuse");
    }
    return MakeEmulatedExchange(static_cast<int>(gpus.size()));
  }
};

const HostGpus* IfAskedFor() {
  static const TestGpus* const kGpus = new TestGpus;
  const char* const test = std::getenv(kTestGpuVariable);
  return absl::StartsWith(test == nullptr ? "" : test, "emulated") ? kGpus : nullptr;
}

[[maybe_unused]] const bool kSubstituted = (SubstituteHostGpus(&IfAskedFor), true);

}  // namespace
}  // namespace rubato
