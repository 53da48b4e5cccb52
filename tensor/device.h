// Something that computes beside the host, in memory of its own: a GPU.
#ifndef RUBATO_TENSOR_DEVICE_H_
#define RUBATO_TENSOR_DEVICE_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tensor/kernel_set.h"

namespace rubato {

// What a device computes besides layers. float32 unless said otherwise.
class DeviceKernels : public KernelSet {
 public:
  // y = x, in y's type: a float32's half float.
  virtual void Convert(const ConstTensorRef& x, const TensorRef& y) = 0;
  // Likewise, each turned: x (filters, channels, places), y (filters, places, channels).
  virtual void ConvertFilters(const ConstTensorRef& x, const TensorRef& y) = 0;

  // As SoftmaxCrossEntropy and RegressionLoss of tensor/kernels.h; the gradient is multiplied by
  // `scale` (1). labels: (n) of int32. `rows` (n, 2), of float64, is scratch. sums (2), of float64,
  // receives the loss and how many were right.
  virtual void CrossEntropy(const ConstTensorRef& logits, const ConstTensorRef& labels,
                            const CrossEntropyOptions& options, const ConstTensorRef& scale,
                            const TensorRef& gradient, const TensorRef& rows,
                            const TensorRef& sums) = 0;
  virtual void RegressionLoss(const ConstTensorRef& x, const ConstTensorRef& targets,
                              const RegressionOptions& options, double factor,
                              const ConstTensorRef& scale, const TensorRef& gradient,
                              const TensorRef& rows, const TensorRef& sums) = 0;

  // gradient /= scale. Makes `overflow` (1), of float64, 1 if a value is not finite.
  virtual void Unscale(const ConstTensorRef& scale, const TensorRef& gradient,
                       const TensorRef& overflow) = 0;
  // Makes `flag` (1), of float64, 1 if a value of x is not finite.
  virtual void FlagNonFinite(const ConstTensorRef& x, const TensorRef& flag) = 0;
};

// Where work is done in order; of different streams it overlaps.
enum class Stream { kCompute, kUpload, kDownload };
constexpr int kStreams = 3;

// One model's share of a device: streams, memory and kernels, which run in the stream kCompute. For
// one thread at a time. Calls return before their work is done; pointers must stay valid until
// then, or until the device is gone, which waits for its work. What fails after creation (a kernel
// that is at fault, a device that is lost) does not heal: it ends the process, with a sentence.
class Device {
 public:
  virtual ~Device() = default;

  virtual std::string description() const = 0;  // "NVIDIA H100 (GPU 0)"
  virtual DeviceKernels& kernels() = 0;

  // The library that attention or a convolution has been given to since it was first planned,
  // "cuDNN 9.19.0", for its bits are others; empty if all are products of matrices.
  virtual std::string fused_by() const { return ""; }
  // What it has been given: "attention", "convolutions" or "attention and convolutions".
  virtual std::string fused() const { return ""; }

  // Memory of the device, and of the host where the device reads and writes it by itself; aligned
  // to 256 bytes, until the device goes. ResourceExhausted, saying how much there was.
  virtual absl::StatusOr<void*> Allocate(int64_t bytes) = 0;
  virtual absl::StatusOr<void*> AllocatePinned(int64_t bytes) = 0;
  // Whole pages of the host's memory, which stay where they are until Unpin: from now on the device
  // reads and writes there by itself, as in what AllocatePinned gives. False if it cannot; then a
  // warning has said why, once. Unpin comes when no work is left that uses them.
  virtual bool Pin(void* /*host*/, int64_t /*bytes*/) { return false; }
  virtual void Unpin(void* /*host*/) {}
  virtual int64_t free_bytes() const = 0;
  virtual int64_t total_bytes() const = 0;
  // What libraries and recordings take of the free memory later, by themselves.
  virtual int64_t reserved_bytes() const = 0;

  virtual void Upload(Stream stream, const void* host, void* device, int64_t bytes) = 0;
  virtual void Download(Stream stream, const void* device, void* host, int64_t bytes) = 0;

  // What follows in stream `waiting` comes after what `other` has been given so far.
  virtual void Order(Stream waiting, Stream other) = 0;

  // Counts one more signal when the stream comes to it. The host waits until there have been
  // `count` of them since the last ResetSignals.
  virtual void Signal(Stream stream) = 0;
  virtual void ResetSignals() = 0;
  virtual void AwaitSignals(int64_t count) = 0;

  // Until all is done.
  virtual void Synchronize() = 0;

  // What is given between the two is not done but kept, to be done again and again by Replay: with
  // the same pointers, and what lies there then. It begins in kCompute, and other streams that it
  // uses begin after kCompute and end before it (Order). Replay is work of kCompute.
  virtual void BeginRecording() = 0;
  virtual int EndRecording() = 0;
  virtual void Replay(int recording) = 0;
  // It is not replayed any more.
  virtual void Forget(int /*recording*/) {}
};

}  // namespace rubato

#endif  // RUBATO_TENSOR_DEVICE_H_
