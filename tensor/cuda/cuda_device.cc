#include "tensor/cuda/cuda_device.h"

#include <cuda_runtime.h>

#include <array>
#include <cstdio>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/base/host_memory.h"
#include "common/base/monotonic.h"
#include "common/base/status.h"
#include "tensor/cuda/cublas.h"
#include "tensor/cuda/cuda_check.h"
#include "tensor/cuda/cuda_queue.h"
#include "tensor/cuda/libraries_when_asked.h"
#include "tensor/cuda/nccl_gpu.h"
#include "tensor/cuda/no_gpu.h"
#include "tensor/cuda/registered_memory.h"
#include "tensor/cuda/used_gpu.h"

namespace rubato {
namespace {

// Of A100, H100 and what came after them.
constexpr int kMinCapability = 8;

// How often a host that waits for a signal looks whether the GPU is still at work.
constexpr absl::Duration kLook = absl::Milliseconds(200);
// One that waits for a stream looks all the time, at first; then it leaves its core to others.
constexpr int kEagerLooks = 1000;
constexpr absl::Duration kPause = absl::Microseconds(50);

// What CUDA takes after a model has its memory: the code of the kernels and of cuBLAS, which is
// loaded when it is first called, and recordings of steps. On an H100 that was 2 to 34 MiB in three
// models' steps (docs/gpu_results/2026-11-27.md); of other GPUs it is not known.
constexpr int64_t kReserved = int64_t{512} << 20;

// Of the host's memory; how much of it may be pinned is known to the driver alone.
std::string AvailableOnHost() {
  const std::optional<int64_t> bytes = AvailableHostMemory();
  return bytes.has_value() ? absl::StrCat(*bytes, " are available")
                           : "how much is available is not known";
}

class CudaDevice final : public Device {
 public:
  CudaDevice(int index, absl::Duration patience)
      : index_(index), patience_(patience), registered_(index) {}
  ~CudaDevice() override;

  absl::Status Open(ProductPrecision precision, AttentionForm attention,
                    ConvolutionForm convolution);

  std::string description() const override { return description_; }
  DeviceKernels& kernels() override { return *kernels_; }
  std::string fused_by() const override {
    const std::string attention = attention_ == nullptr ? "" : attention_->used();
    return attention.empty() && convolution_ != nullptr ? convolution_->used() : attention;
  }
  std::string fused() const override {
    return FusedNames(attention_ != nullptr && !attention_->used().empty(),
                      convolution_ != nullptr && !convolution_->used().empty());
  }

  absl::StatusOr<void*> Allocate(int64_t bytes) override;
  absl::StatusOr<void*> AllocatePinned(int64_t bytes) override;
  bool Pin(void* host, int64_t bytes) override { return registered_.Add(host, bytes); }
  void Unpin(void* host) override { registered_.Remove(host); }
  int64_t free_bytes() const override { return Memory().first; }
  int64_t total_bytes() const override { return Memory().second; }
  int64_t reserved_bytes() const override { return kReserved; }

  void Upload(Stream stream, const void* host, void* device, int64_t bytes) override {
    Use();
    CheckCuda(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, At(stream)),
              "a copy to the GPU");
  }
  void Download(Stream stream, const void* device, void* host, int64_t bytes) override {
    Use();
    CheckCuda(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, At(stream)),
              "a copy from the GPU");
  }
  void Order(Stream waiting, Stream other) override {
    Use();
    const cudaEvent_t event = events_[static_cast<int>(other)];
    CheckCuda(cudaEventRecord(event, At(other)), "an event");
    CheckCuda(cudaStreamWaitEvent(At(waiting), event, 0), "an event");
  }

  void Signal(Stream stream) override {
    Use();
    const auto count = [](void* self) { static_cast<CudaDevice*>(self)->CountSignal(); };
    CheckCuda(cudaLaunchHostFunc(At(stream), count, this), "a signal");
  }
  void ResetSignals() override {
    absl::MutexLock lock(&mutex_);
    signals_ = 0;
  }
  void AwaitSignals(int64_t count) override;
  void Synchronize() override;

  void BeginRecording() override {
    Use();
    CheckCuda(cudaStreamBeginCapture(At(Stream::kCompute), cudaStreamCaptureModeThreadLocal),
              "the recording of a step");
  }
  int EndRecording() override {
    Use();
    cudaGraph_t graph;
    CheckCuda(cudaStreamEndCapture(At(Stream::kCompute), &graph), "the recording of a step");
    recordings_.emplace_back();
    CheckCuda(cudaGraphInstantiate(&recordings_.back(), graph, 0), "the recording of a step");
    CheckCuda(cudaGraphDestroy(graph), "the recording of a step");
    return static_cast<int>(recordings_.size()) - 1;
  }
  void Replay(int recording) override {
    Use();
    CheckCuda(cudaGraphLaunch(recordings_[recording], At(Stream::kCompute)), "a step");
  }
  void Forget(int recording) override {  // unchecked, as a destructor: it may come from one
    cudaSetDevice(index_);
    cudaGraphExecDestroy(std::exchange(recordings_[recording], nullptr));
  }

  cudaStream_t At(Stream stream) const { return streams_[static_cast<int>(stream)]; }
  void set_look(std::function<void()> look) { look_ = std::move(look); }

 private:
  void Use() const { UseGpu(index_); }
  std::pair<int64_t, int64_t> Memory() const {
    Use();
    size_t free = 0, total = 0;
    CheckCuda(cudaMemGetInfo(&free, &total), "a look at the GPU's memory");
    return {static_cast<int64_t>(free), static_cast<int64_t>(total)};
  }
  void CountSignal() {
    absl::MutexLock lock(&mutex_);
    ++signals_;
  }

  // Whether a stream's work is done. Ends the process if it failed.
  bool IsDone(cudaStream_t stream) const {
    const cudaError_t error = cudaStreamQuery(stream);
    if (error == cudaErrorNotReady) return false;
    CheckCuda(error, "a step");
    return true;
  }
  // Ends the process if there has been nothing for too long.
  static void CheckPatience(const Patience& patience) {
    const absl::Status status = patience.Check(MonotonicNow(), "a step");
    if (!status.ok()) EndProcess(status);
  }

  const int index_;
  const absl::Duration patience_;
  std::string description_;
  std::array<cudaStream_t, kStreams> streams_ = {};
  std::array<cudaEvent_t, kStreams> events_ = {};
  std::vector<void*> memory_, pinned_;
  RegisteredMemory registered_;
  std::vector<cudaGraphExec_t> recordings_;
  std::unique_ptr<CublasHandle> cublas_;
  std::unique_ptr<AttentionLibrary> attention_;      // or null
  std::unique_ptr<ConvolutionLibrary> convolution_;  // or null
  std::unique_ptr<CudaQueue> queue_;
  std::unique_ptr<DeviceKernels> kernels_;
  std::function<void()> look_ = [] {};  // called in waits
  absl::Mutex mutex_;
  int64_t signals_ ABSL_GUARDED_BY(mutex_) = 0;
};

absl::Status CudaDevice::Open(ProductPrecision precision, AttentionForm attention,
                              ConvolutionForm convolution) {
  const std::string gpu = absl::StrCat("GPU ", index_);
  RUBATO_RETURN_IF_ERROR(CudaStatus(cudaSetDevice(index_), absl::StrCat("the choice of ", gpu)));
  cudaDeviceProp properties;
  RUBATO_RETURN_IF_ERROR(
      CudaStatus(cudaGetDeviceProperties(&properties, index_), absl::StrCat("a look at ", gpu)));
  description_ = absl::StrCat(properties.name, " (GPU ", index_, ")");
  if (properties.major < kMinCapability) {
    return absl::FailedPreconditionError(
        absl::StrCat(description_, " has compute capability ", properties.major, ".",
                     properties.minor, ", expected ", kMinCapability, ".0 or later"));
  }
  for (int i = 0; i < kStreams; ++i) {
    RUBATO_RETURN_IF_ERROR(
        CudaStatus(cudaStreamCreateWithFlags(&streams_[i], cudaStreamNonBlocking),
                   absl::StrCat("a stream of ", gpu)));
    RUBATO_RETURN_IF_ERROR(CudaStatus(cudaEventCreateWithFlags(&events_[i], cudaEventDisableTiming),
                                      absl::StrCat("an event of ", gpu)));
  }
  RUBATO_ASSIGN_OR_RETURN(void* const workspace, Allocate(CublasHandle::kWorkspaceBytes));
  RUBATO_ASSIGN_OR_RETURN(void* const partials, Allocate(CudaQueue::kPartialBytes));
  RUBATO_ASSIGN_OR_RETURN(cublas_, CublasHandle::Create(precision, workspace));
  if (attention == AttentionForm::kFused) {
    attention_ = std::make_unique<AttentionWhenAsked>(properties.major, At(Stream::kCompute));
  }
  if (convolution == ConvolutionForm::kFused) {
    convolution_ = std::make_unique<ConvolutionsWhenAsked>(properties.major, At(Stream::kCompute));
  }
  queue_ = std::make_unique<CudaQueue>(index_, At(Stream::kCompute), partials, cublas_.get(),
                                       attention_.get(), convolution_.get());
  kernels_ = MakeCudaKernels(queue_.get());
  return absl::OkStatus();
}

// Nothing is checked here or in other destructors: a process that ends may have no driver any more.
CudaDevice::~CudaDevice() {
  cudaSetDevice(index_);
  const Patience patience(patience_, MonotonicNow());
  for (cudaStream_t stream : streams_) {
    while (stream != nullptr && cudaStreamQuery(stream) == cudaErrorNotReady) {
      if (!patience.Check(MonotonicNow(), "").ok()) return;  // what is given back waits for it, too
      absl::SleepFor(kPause);
    }
  }
  for (cudaGraphExec_t recording : recordings_) {
    if (recording != nullptr) cudaGraphExecDestroy(recording);
  }
  kernels_.reset();
  attention_.reset();
  convolution_.reset();
  cublas_.reset();
  for (void* memory : memory_) cudaFree(memory);
  for (void* memory : pinned_) cudaFreeHost(memory);
  for (int i = 0; i < kStreams; ++i) {
    if (events_[i] != nullptr) cudaEventDestroy(events_[i]);
    if (streams_[i] != nullptr) cudaStreamDestroy(streams_[i]);
  }
}

absl::StatusOr<void*> CudaDevice::Allocate(int64_t bytes) {
  Use();
  void* memory = nullptr;
  const cudaError_t error = cudaMalloc(&memory, bytes);
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // it heals
    return absl::ResourceExhaustedError(absl::StrCat(description_, " has no memory for ", bytes,
                                                     " bytes; of ", total_bytes(), ", ",
                                                     free_bytes(), " are free"));
  }
  RUBATO_RETURN_IF_ERROR(CudaStatus(error, absl::StrCat("taking memory of GPU ", index_)));
  memory_.push_back(memory);
  return memory;
}

absl::StatusOr<void*> CudaDevice::AllocatePinned(int64_t bytes) {
  Use();
  void* memory = nullptr;
  const cudaError_t error = cudaMallocHost(&memory, bytes);
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // it heals
    return absl::ResourceExhaustedError(absl::StrCat("the host has no memory for ", bytes,
                                                     " bytes that ", description_,
                                                     " reads and writes; ", AvailableOnHost()));
  }
  RUBATO_RETURN_IF_ERROR(
      CudaStatus(error, absl::StrCat("taking memory that GPU ", index_, " reads")));
  pinned_.push_back(memory);
  return memory;
}

void CudaDevice::AwaitSignals(int64_t count) {
  const auto there = [this, count]()
                         ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return signals_ >= count; };
  Use();
  Patience patience(patience_, MonotonicNow());
  for (int64_t seen = 0;;) {
    {
      absl::MutexLock lock(&mutex_);
      if (mutex_.AwaitWithTimeout(absl::Condition(&there), kLook)) return;
      if (signals_ > seen) patience.OnMoved(MonotonicNow());
      seen = signals_;
    }
    for (cudaStream_t stream : streams_) IsDone(stream);  // one that has failed signals nothing
    look_();
    CheckPatience(patience);
  }
}

void CudaDevice::Synchronize() {
  Use();
  Patience patience(patience_, MonotonicNow());
  for (cudaStream_t stream : streams_) {
    for (int looks = 0; !IsDone(stream); ++looks) {
      if (looks < kEagerLooks) continue;
      absl::SleepFor(kPause);
      look_();
      CheckPatience(patience);
    }
    patience.OnMoved(MonotonicNow());
  }
}

}  // namespace

cudaStream_t ComputeStreamOf(const Device& device) {
  return static_cast<const CudaDevice&>(device).At(Stream::kCompute);
}

void CallWhileWaiting(Device* device, std::function<void()> call) {
  static_cast<CudaDevice*>(device)->set_look(std::move(call));
}

bool CudaQueue::MultiplyByCublas(const Product& product) {
  UseGpu(index_);
  return cublas_.Multiply(product, stream_);
}

int64_t CudaQueue::AttentionWorkspace(const Attention& attention, int64_t n) const {
  if (attention_ == nullptr || !IsHalf(attention.dtype)) return -1;
  UseGpu(index_);
  return attention_->Workspace(attention, n);
}

void CudaQueue::Attend(const FusedAttention& fused) {
  UseGpu(index_);
  attention_->Attend(fused);
}

int64_t CudaQueue::ConvolutionWorkspace(const Convolution& convolution, DType dtype,
                                        int64_t n) const {
  if (convolution_ == nullptr || !IsHalf(dtype)) return -1;
  UseGpu(index_);
  return convolution_->Workspace(convolution, dtype, n);
}

void CudaQueue::Convolve(const FusedConvolution& fused) {
  UseGpu(index_);
  convolution_->Convolve(fused);
}

absl::StatusOr<int> CountGpus() {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaSuccess && count > 0) return count;
  NoGpu found;
  found.build = CUDART_VERSION;
  if (error != cudaSuccess) found.error = cudaGetErrorString(error);
  found.kind = error == cudaSuccess || error == cudaErrorNoDevice ? NoGpu::kNone
               : error == cudaErrorInsufficientDriver             ? NoGpu::kNoDriver
                                                                  : NoGpu::kOther;
  const cudaError_t asked = cudaDriverGetVersion(&found.driver);
  if (asked != cudaSuccess) found.driver_error = cudaGetErrorString(asked);
  return absl::FailedPreconditionError(WhyNoGpu(found));
}

absl::StatusOr<std::string> GpuModel(int index) {
  cudaDeviceProp properties;
  RUBATO_RETURN_IF_ERROR(CudaStatus(cudaGetDeviceProperties(&properties, index),
                                    absl::StrCat("a look at GPU ", index)));
  RUBATO_ASSIGN_OR_RETURN(const std::shared_ptr<const Cublas> cublas, Cublas::Open());
  return absl::StrCat(properties.name, ", cuBLAS ", cublas->Version());
}

absl::StatusOr<std::unique_ptr<Device>> OpenGpu(int index, ProductPrecision precision,
                                                AttentionForm attention, absl::Duration patience,
                                                ConvolutionForm convolution) {
  auto device = std::make_unique<CudaDevice>(index, patience);
  RUBATO_RETURN_IF_ERROR(device->Open(precision, attention, convolution));
  return device;
}

}  // namespace rubato
