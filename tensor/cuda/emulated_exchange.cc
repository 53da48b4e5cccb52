#include "tensor/cuda/emulated_exchange.h"

#include <cstring>
#include <functional>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "tensor/cuda/emulated_device.h"
#include "tensor/cuda/emulated_queue.h"

namespace rubato {
namespace {

void Copy(const float* from, float* to, int64_t count) {
  RUBATO_CHECK(from + count <= to || to + count <= from);
  std::memcpy(to, from, count * sizeof(float));
}

class EmulatedExchange final : public Exchange {
 public:
  EmulatedExchange(int gpus, uint64_t seed, int64_t memory_bytes) {
    for (int i = 0; i < gpus; ++i) {
      EmulatedDeviceOptions options;
      options.seed = seed + i;
      options.memory_bytes = memory_bytes;
      gpus_.push_back(MakeEmulatedDevice(options));
    }
  }
  // Each ends its work, for which it may need another.
  ~EmulatedExchange() override {
    for (const auto& gpu : gpus_) gpu->Synchronize();
  }

  int gpus() const override { return static_cast<int>(gpus_.size()); }
  std::string description() const override { return "copies"; }
  Device& gpu(int i) override { return *gpus_[i]; }

  void AllToAll(absl::Span<const float* const> from, absl::Span<float* const> to,
                int64_t count) override {
    const std::vector<const float*> sources(from.begin(), from.end());
    const std::vector<float*> places(to.begin(), to.end());
    Give([sources, places, count] {
      for (size_t i = 0; i < sources.size(); ++i) {
        for (size_t j = 0; j < places.size(); ++j) {
          Copy(sources[i] + j * count, places[j] + i * count, count);
        }
      }
    });
  }
  void AllGather(absl::Span<float* const> values, int64_t count) override {
    const std::vector<float*> places(values.begin(), values.end());
    Give([places, count] {
      for (size_t i = 0; i < places.size(); ++i) {
        for (size_t j = 0; j < places.size(); ++j) {
          if (i != j) Copy(places[i] + i * count, places[j] + i * count, count);
        }
      }
    });
  }

 private:
  // Of all GPUs, and which have come to it.
  struct Meeting {
    std::function<void()> work;
    std::vector<bool> here;
    int64_t left;
  };

  void Give(std::function<void()> work) {
    const size_t n = gpus_.size();
    const auto meeting = std::make_shared<Meeting>(
        Meeting{std::move(work), std::vector<bool>(n), static_cast<int64_t>(n)});
    for (size_t i = 0; i < n; ++i) {
      QueueOf(*gpus_[i]).Give(Stream::kCompute, [this, meeting, i] { Come(meeting.get(), i); });
    }
  }
  // The last to come does the work, and nobody goes on before.
  void Come(Meeting* meeting, size_t i) {
    meeting->here[i] = true;
    if (--meeting->left == 0) meeting->work();
    for (size_t j = 0; j < gpus_.size(); ++j) {
      const auto is_here = [&] { return static_cast<bool>(meeting->here[j]); };
      QueueOf(*gpus_[j]).Run(is_here);
      RUBATO_CHECK(is_here());
    }
  }

  std::vector<std::unique_ptr<Device>> gpus_;
};

}  // namespace

std::unique_ptr<Exchange> MakeEmulatedExchange(int gpus, uint64_t seed, int64_t memory_bytes) {
  return std::make_unique<EmulatedExchange>(gpus, seed, memory_bytes);
}

}  // namespace rubato
