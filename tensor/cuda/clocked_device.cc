#include "tensor/cuda/clocked_device.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "tensor/cuda/gpu_kernels.h"
#include "tensor/cuda/plain_product.h"
#include "tensor/cuda/traced_memory.h"

namespace rubato {
namespace {

// Who acts: the host, each stream, and each stream's part in a recording.
constexpr int kHost = 0, kActors = 1 + 2 * kStreams;
constexpr const char* kNames[kActors] = {"the host",
                                         "kCompute",
                                         "kUpload",
                                         "kDownload",
                                         "kCompute in a recording",
                                         "kUpload in a recording",
                                         "kDownload in a recording"};
int ActorOf(Stream stream) { return 1 + static_cast<int>(stream); }
int RecordedActorOf(Stream stream) { return 1 + kStreams + static_cast<int>(stream); }

// Of each actor, how much of what it did has happened before.
using Clocks = std::array<int64_t, kActors>;

void Join(Clocks* to, const Clocks& from) {
  for (int i = 0; i < kActors; ++i) (*to)[i] = std::max((*to)[i], from[i]);
}

// Who touched a byte last.
struct Touched {
  int writer = -1;
  int64_t written = 0;
  Clocks read = {};
};

class Clock {
 public:
  Clock(int64_t bytes, std::vector<std::string>* races) : touched_(bytes), races_(*races) {
    clocks_[kHost][kHost] = 1;
  }

  Clocks& of(int actor) { return clocks_[actor]; }

  // What follows is another piece of the actor's, which comes after what the host did so far.
  void Begin(int actor) {
    Join(&clocks_[actor], clocks_[kHost]);
    ++clocks_[actor][actor];
    ++clocks_[kHost][kHost];
  }

  void Access(int actor, int64_t at, bool writes) {
    Touched& touched = touched_[at];
    const Clocks& now = clocks_[actor];
    if (touched.writer >= 0 && now[touched.writer] < touched.written) {
      Note(actor, writes, touched.writer, true);
    }
    for (int other = 0; writes && other < kActors; ++other) {
      if (now[other] < touched.read[other]) Note(actor, true, other, false);
    }
    if (writes) {
      touched.writer = actor;
      touched.written = now[actor];
    } else {
      touched.read[actor] = now[actor];
    }
  }

 private:
  void Note(int actor, bool writes, int other, bool wrote) {
    const std::string race =
        absl::StrCat(kNames[actor], writes ? " writes" : " reads", " what ", kNames[other],
                     wrote ? " wrote" : " read", ", and nothing orders the two");
    if (std::find(races_.begin(), races_.end(), race) == races_.end()) races_.push_back(race);
  }

  std::array<Clocks, kActors> clocks_ = {};
  std::vector<Touched> touched_;
  std::vector<std::string>& races_;
};

class ClockedDevice;

class ClockedQueue : public NoFusedAttention, public NoFusedConvolution {
 public:
  static constexpr bool kHasDouble = false;

  explicit ClockedQueue(ClockedDevice* device) : device_(*device) {}

  template <typename Kernel>
  void Launch(int64_t blocks, int threads, const Kernel& kernel);
  void* Partials(int64_t bytes);
  void Multiply(const Product& product) {
    MultiplyByLibrary(*this, product, [](const Product&) { return false; });
  }

 private:
  ClockedDevice& device_;
  void* partials_ = nullptr;
  int64_t partial_bytes_ = 0;
};

class ClockedDevice final : public Device {
 public:
  ClockedDevice(const LeftOut& left_out, std::vector<std::string>* races,
                std::vector<std::string>* orders)
      : left_out_(left_out),
        orders_(*orders),
        clock_(kBytes, races),
        memory_(kBytes, [this](int64_t at, bool writes) { clock_.Access(actor_, at, writes); }),
        queue_(this),
        kernels_(&queue_) {}

  std::string description() const override { return "a clocked GPU"; }
  DeviceKernels& kernels() override { return kernels_; }

  absl::StatusOr<void*> Allocate(int64_t bytes) override {
    memory_.Stop();
    void* const memory = memory_.Take(bytes);
    memory_.Watch();
    return memory;
  }
  absl::StatusOr<void*> AllocatePinned(int64_t bytes) override { return Allocate(bytes); }
  bool Pin(void* host, int64_t) override { return memory_.Has(host); }
  int64_t free_bytes() const override { return kBytes; }
  int64_t total_bytes() const override { return kBytes; }
  int64_t reserved_bytes() const override { return 0; }

  void Upload(Stream stream, const void* host, void* device, int64_t bytes) override {
    Copy(stream, host, device, bytes);
  }
  void Download(Stream stream, const void* device, void* host, int64_t bytes) override {
    Copy(stream, device, host, bytes);
  }

  void Order(Stream waiting, Stream other) override {
    const bool is_left_out = static_cast<int>(orders_.size()) == left_out_.order;
    orders_.push_back(absl::StrCat(kNames[ActorOf(waiting)], " after ", kNames[ActorOf(other)]));
    if (is_left_out) return;
    Give(waiting, [this, other](int actor, bool in_recording) {
      Join(&clock_.of(actor), clock_.of(in_recording ? RecordedActorOf(other) : ActorOf(other)));
    });
  }

  void Signal(Stream stream) override {
    Give(stream, [this](int actor, bool) { signals_.push_back(clock_.of(actor)); });
  }
  void ResetSignals() override { signals_.clear(); }
  void AwaitSignals(int64_t count) override {
    RUBATO_CHECK(count <= static_cast<int64_t>(signals_.size()));
    for (int64_t i = 0; i < count && !left_out_.signals; ++i) {
      Join(&clock_.of(kHost), signals_[i]);
    }
  }
  void Synchronize() override {
    for (int s = 0; s < kStreams && !left_out_.synchronize; ++s) {
      Join(&clock_.of(kHost), clock_.of(1 + s));
    }
  }

  void BeginRecording() override {
    recordings_.emplace_back();
    is_recording_ = true;
  }
  int EndRecording() override {
    is_recording_ = false;
    return static_cast<int>(recordings_.size()) - 1;
  }
  void Replay(int recording) override {
    const int compute = ActorOf(Stream::kCompute);
    clock_.Begin(compute);
    for (int s = 0; s < kStreams; ++s) {
      const int actor = RecordedActorOf(static_cast<Stream>(s));
      const int64_t own = clock_.of(actor)[actor];
      clock_.of(actor) = clock_.of(compute);
      clock_.of(actor)[actor] = own;
    }
    for (const Recorded& recorded : recordings_[recording]) {
      Do(RecordedActorOf(recorded.stream), true, recorded.work);
    }
    for (int s = 0; s < kStreams; ++s) {
      Join(&clock_.of(compute), clock_.of(RecordedActorOf(static_cast<Stream>(s))));
    }
  }

  // work(actor, in_recording) is done now, or each time that it is replayed.
  using StreamWork = std::function<void(int actor, bool in_recording)>;
  void Give(Stream stream, StreamWork work) {
    if (is_recording_) {
      recordings_.back().push_back({stream, std::move(work)});
    } else {
      Do(ActorOf(stream), false, work);
    }
  }

 private:
  static constexpr int64_t kBytes = 1 << 18;
  struct Recorded {
    Stream stream;
    StreamWork work;
  };

  void Do(int actor, bool in_recording, const StreamWork& work) {
    clock_.Begin(actor);
    actor_ = actor;
    work(actor, in_recording);
    actor_ = kHost;
  }
  void Copy(Stream stream, const void* from, void* to, int64_t bytes) {
    Give(stream, [this, from, to, bytes](int actor, bool) {
      for (int64_t i = 0; i < bytes; ++i) {
        clock_.Access(actor, memory_.OffsetOf(from) + i, false);
        clock_.Access(actor, memory_.OffsetOf(to) + i, true);
      }
      memory_.Stop();
      std::memcpy(to, from, bytes);
      memory_.Watch();
    });
  }

  const LeftOut left_out_;
  std::vector<std::string>& orders_;
  int actor_ = kHost;  // of the access at hand
  Clock clock_;
  TracedMemory memory_;
  std::vector<Clocks> signals_;  // of each signal, what has happened before it
  bool is_recording_ = false;
  std::vector<std::vector<Recorded>> recordings_;
  ClockedQueue queue_;
  GpuKernels<ClockedQueue> kernels_;
};

template <typename Kernel>
void ClockedQueue::Launch(int64_t blocks, int threads, const Kernel& kernel) {
  device_.Give(Stream::kCompute, [blocks, threads, kernel](int, bool) {
    for (int64_t i = 0; i < blocks; ++i) {
      HostBlock block(i, threads, /*backwards=*/false);
      kernel(block);
    }
  });
}

void* ClockedQueue::Partials(int64_t bytes) {
  if (bytes > partial_bytes_) {
    partials_ = *device_.Allocate(bytes);
    partial_bytes_ = bytes;
  }
  return partials_;
}

}  // namespace

std::unique_ptr<Device> MakeClockedDevice(const LeftOut& left_out, std::vector<std::string>* races,
                                          std::vector<std::string>* orders) {
  return std::make_unique<ClockedDevice>(left_out, races, orders);
}

}  // namespace rubato
