#include "tensor/cuda/emulated_device.h"

#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tensor/cuda/emulated_queue.h"

namespace rubato {
namespace {

class EmulatedDevice final : public Device {
 public:
  explicit EmulatedDevice(const EmulatedDeviceOptions& options)
      : total_(options.memory_bytes),
        reserved_(options.reserved_bytes),
        pins_(options.pins),
        free_(options.memory_bytes),
        queue_(options.precision, options.seed, options.library, options.attention,
               options.convolution),
        kernels_(&queue_, options.columns) {}

  std::string description() const override { return "an emulated GPU"; }
  DeviceKernels& kernels() override { return kernels_; }
  std::string fused_by() const override { return fused().empty() ? "" : "plain loops"; }
  std::string fused() const override {
    return FusedNames(queue_.has_attention(), queue_.has_convolutions());
  }

  ~EmulatedDevice() override { Synchronize(); }

  absl::StatusOr<void*> Allocate(int64_t bytes) override {
    if (bytes > free_) {
      return absl::ResourceExhaustedError(
          absl::StrCat("no memory for ", bytes, " bytes; ", free_, " are free"));
    }
    free_ -= bytes;
    return AllocatePinned(bytes);
  }
  absl::StatusOr<void*> AllocatePinned(int64_t bytes) override {
    constexpr int64_t kAlignment = 256;
    const int64_t rounded = (bytes / kAlignment + 1) * kAlignment;
    memory_.emplace_back(std::aligned_alloc(kAlignment, rounded));
    if (memory_.back() == nullptr) {
      return absl::ResourceExhaustedError(absl::StrCat("no memory for ", bytes, " bytes"));
    }
    std::memset(memory_.back().get(), 0xff, rounded);
    return memory_.back().get();
  }
  bool Pin(void*, int64_t) override { return pins_; }
  int64_t free_bytes() const override { return free_; }
  int64_t total_bytes() const override { return total_; }
  int64_t reserved_bytes() const override { return reserved_; }

  void Upload(Stream stream, const void* host, void* device, int64_t bytes) override {
    queue_.Give(stream, [=] { std::memcpy(device, host, bytes); });
  }
  void Download(Stream stream, const void* device, void* host, int64_t bytes) override {
    queue_.Give(stream, [=] { std::memcpy(host, device, bytes); });
  }
  void Order(Stream waiting, Stream other) override { queue_.Order(waiting, other); }

  void Signal(Stream stream) override {
    queue_.Give(stream, [this] { ++signals_; });
  }
  void ResetSignals() override { signals_ = 0; }
  void AwaitSignals(int64_t count) override {
    queue_.Run([this, count] { return signals_ >= count; });
    RUBATO_CHECK(signals_ >= count);
  }
  void Synchronize() override {
    queue_.Run([] { return false; });
  }

  void BeginRecording() override { queue_.BeginRecording(); }
  int EndRecording() override { return queue_.EndRecording(); }
  void Replay(int recording) override { queue_.Replay(recording); }

  EmulatedQueue& queue() { return queue_; }

 private:
  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };

  const int64_t total_, reserved_;
  const bool pins_;
  int64_t free_;
  std::vector<std::unique_ptr<void, Free>> memory_;
  int64_t signals_ = 0;
  EmulatedQueue queue_;
  GpuKernels<EmulatedQueue> kernels_;
};

}  // namespace

EmulatedQueue& QueueOf(Device& device) { return static_cast<EmulatedDevice&>(device).queue(); }

std::unique_ptr<Device> MakeEmulatedDevice(const EmulatedDeviceOptions& options) {
  return std::make_unique<EmulatedDevice>(options);
}

}  // namespace rubato
