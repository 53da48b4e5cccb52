// A model's steps on a device: what crosses between it and the host, and when.
#ifndef RUBATO_WORKER_MODEL_DEVICE_STEP_H_
#define RUBATO_WORKER_MODEL_DEVICE_STEP_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "tensor/device.h"
#include "worker/model/device_layout.h"
#include "worker/model/forward_segments.h"
#include "worker/model/loss.h"
#include "worker/model/loss_scaler.h"
#include "worker/model/network.h"

namespace rubato {

// What becomes of a gradient: sums along a tree stay on the device until they are whole.
struct Summing {
  int adds = 0;        // so many of the gradients kept last are added to it, and kept no longer
  bool leaves = true;  // for the host; else it is kept
  // What leaves goes no further than sum(), for other devices; `ready` is told all the same.
  bool stays = false;
};

// All memory, the device's and what of the host's it reads and writes, is taken at once, before the
// first step. A step is: the batch goes over, then parameters that are new, in parts, in a stream
// of their own; forward begins, segment by segment (worker/model/forward_segments.h), as soon as
// each has its parameters; loss and backward run, and each part of the gradient leaves as soon as
// it is whole, in a third stream, while backward goes on. From the second step of its kind on, each
// segment is a recording, the last one with all that follows. Methods as Model's, on host memory.
//
// In half floats (float16, bfloat16) factors of products and activations are half floats,
// parameters and gradients float32. In float16 the loss is scaled (worker/model/loss_scaler.h); a
// gradient that overflows comes back with infinities or no numbers in it.
class DeviceStep {
 public:
  // ResourceExhausted if the device has not the memory, saying what batch would fit.
  // A segment of forward has at least so many parameters, but for the last.
  static constexpr int64_t kSegmentValues = 65536;
  static absl::StatusOr<std::unique_ptr<DeviceStep>> Create(
      Graph graph, const Objective& objective, int64_t max_batch, DType dtype, Purpose purpose,
      const Keeping& keeping, std::unique_ptr<Device> device,
      int64_t segment_values = kSegmentValues);

  const Graph& graph() const { return network_->graph(); }
  int64_t memory_bytes() const { return bytes_; }  // of the device
  int keeps() const { return keeping_.keeps; }
  std::string fused_by() const { return device_->fused_by(); }
  std::string fused() const { return device_->fused(); }

  // From now on, until Unpin, the device itself reads parameters and writes gradients that lie
  // there; whole pages. False if it cannot. They are copied through memory of its own otherwise,
  // so many bytes so far.
  bool Pin(void* host, int64_t bytes);
  void Unpin(void* host);
  bool IsPinned(const ConstTensorRef& host) const;
  int64_t copied_bytes() const { return copied_bytes_; }
  // Whether all of the last gradient that `ready` was told of is finite: the device looks. Not of
  // one that stays.
  bool is_finite() const { return is_finite_; }

  // See Model.
  void OnNewParameters() {
    ++version_;
    kept_ = 0;
  }
  // The parameters that are new have been put in their place on the device.
  void OnParametersThere() { there_ = version_; }
  // On the device, for an exchange while no call of this is under way: the parameters, and the sum
  // that left and stays.
  TensorRef parameters() const { return parameters_; }
  TensorRef sum() const { return gradients_[0]; }
  BatchResult Evaluate(const ConstTensorRef& parameters, const ConstTensorRef& features,
                       const Targets& targets);
  // Parameters go over part by part as they arrive.
  std::optional<BatchResult> Gradient(const ConstTensorRef& parameters,
                                      const ConstTensorRef& features, const Targets& targets,
                                      uint64_t key, const TensorRef& gradient,
                                      absl::FunctionRef<void(int64_t begin)> ready,
                                      AwaitParameters await, const Summing& summing = {});

 private:
  // Of the gradient: [begin, end) leaves at once.
  struct Part {
    int64_t begin, end;
  };
  struct Recording {
    bool has_run = false, is_whole = false;
    std::vector<int> ids;  // of the segments; of zeros there is one
    std::vector<Part> parts;
  };

  DeviceStep(const Objective& objective, int64_t max_batch, DType dtype, Purpose purpose,
             const Keeping& keeping, std::unique_ptr<Device> device);
  absl::Status Allocate(Graph graph, int64_t segment_values);

  // Called before the work of the i-th segment; false if the step is to end.
  using BeginSegment = absl::FunctionRef<bool(size_t i)>;

  // Before the first segment's parameters.
  void BeginParameters();
  // Those of a segment, if they are new. False if nobody waits for them any more: then all that was
  // begun is done.
  bool SendParameters(size_t segment, const ConstTensorRef& parameters, AwaitParameters await);
  bool SendRange(Range values, const ConstTensorRef& parameters, AwaitParameters await);
  // Whether those of the call at hand go over.
  bool ParametersCross() const { return sends_ && there_ != version_; }
  // Before the first parameters: a GPU has one engine for all that goes over, in the order in which
  // it was given, whatever its stream. `key`: of training.
  void SendBatch(const ConstTensorRef& features, const Targets& targets,
                 std::optional<uint64_t> key);
  // Give the device a batch of n, from what is staged. False if `begin` said so.
  bool EnqueueGradient(int64_t n, const Summing& summing, BeginSegment begin);
  bool EnqueueForward(int64_t n, bool training, BeginSegment begin);
  // Those segments, as they come or recorded; `send` sends what each reads. False likewise.
  bool RunGradient(int64_t n, const Summing& summing, Recording* recording, BeginSegment send);
  void Forget(Recording* recording);
  void EnqueueLoss(int64_t n);
  // Of the gradient: a part that is whole, and parts of nothing but zeros.
  void FinishPart(const Part& part, const Summing& summing);
  void EnqueueZeros(const Summing& summing);
  BatchResult ResultOf(int64_t n, const Targets& targets) const;

  const Objective objective_;
  const int64_t max_batch_;
  const DType dtype_;  // of activations
  const DType value_;  // of the host's values: float32, or float64 like dtype_
  const Purpose purpose_;
  const Keeping keeping_;
  const std::unique_ptr<Device> device_;
  std::unique_ptr<Network> network_;
  int64_t bytes_ = 0;
  LossScaler scaler_;
  // Of the gradients since parameters were last sent: whether there were any, and one overflowed.
  bool has_stepped_ = false, has_overflowed_ = false;

  // On the device.
  TensorRef parameters_, factors_, features_, converted_, targets_, class_weights_, scale_, rows_,
      sums_;
  TensorRef flags_;           // by part of the gradient: whether it is not finite
  TensorRef sums_and_flags_;  // one behind the other
  // The first `kept_` are sums; the next is that of the batch at hand.
  std::vector<TensorRef> gradients_;
  int kept_ = 0;
  std::vector<int64_t> factor_begins_;  // by node, of factors_
  const uint64_t* keys_ = nullptr;
  ConstTensorRef logits_;  // of the last forward

  // Where the device reads and writes on the host.
  TensorRef staged_parameters_, staged_features_, staged_targets_, staged_gradient_, staged_sums_,
      staged_flags_;
  float* staged_scale_ = nullptr;  // fp16's factor; that times the targets' weight
  uint64_t* staged_keys_ = nullptr;

  std::vector<ForwardSegment> segments_;
  std::vector<Part> parts_;  // of the gradient at hand, last ones first
  // Of the parameters: of the calls', 0 if that may be any, of the device's, and of those that
  // others put there.
  int64_t version_ = 0, sent_ = -1, there_ = -1;
  bool sends_ = false;  // they are new in the call at hand
  // Of gradients: by the size of the batch, how many are kept, the summing, and where the sum comes
  // to on the host, or null.
  std::map<std::tuple<int64_t, int, int, bool, char*>, Recording> recordings_;
  TensorRef target_;                 // where it comes to: the caller's memory, or staged_gradient_
  std::map<char*, int64_t> pinned_;  // of others, with lengths
  int64_t copied_bytes_ = 0;
  bool is_finite_ = true;
};

}  // namespace rubato

#endif  // RUBATO_WORKER_MODEL_DEVICE_STEP_H_
