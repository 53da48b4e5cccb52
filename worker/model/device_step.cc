#include "worker/model/device_step.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "common/base/check.h"
#include "common/base/random.h"
#include "common/base/status.h"
#include "worker/model/device_layout.h"
#include "worker/model/device_room.h"
#include "worker/model/factors.h"

namespace rubato {
namespace {

// Parts of parameters and gradients cross at once: a block of wire.chunk's default. Parameters that
// the host does not copy go in larger ones: on an H100, copies of 256 KiB, one after the other, go
// at 29 GB/s, those of 2 MiB at 50.
constexpr int64_t kPartBytes = 256 << 10, kPinnedPartBytes = 2 << 20;

TensorRef At(void* memory, int64_t offset, DType dtype, int64_t size) {
  return TensorRef::At(static_cast<char*>(memory) + offset, dtype, {size});
}

void* Address(const ConstTensorRef& tensor) { return const_cast<void*>(tensor.address()); }

int64_t BytesOf(const ConstTensorRef& tensor) { return tensor.size() * BytesOf(tensor.dtype()); }

}  // namespace

absl::StatusOr<std::unique_ptr<DeviceStep>> DeviceStep::Create(
    Graph graph, const Objective& objective, int64_t max_batch, DType dtype, Purpose purpose,
    const Keeping& keeping, std::unique_ptr<Device> device, int64_t segment_values) {
  std::unique_ptr<DeviceStep> step(
      new DeviceStep(objective, max_batch, dtype, purpose, keeping, std::move(device)));
  RUBATO_RETURN_IF_ERROR(step->Allocate(std::move(graph), segment_values));
  return step;
}

DeviceStep::DeviceStep(const Objective& objective, int64_t max_batch, DType dtype, Purpose purpose,
                       const Keeping& keeping, std::unique_ptr<Device> device)
    : objective_(objective),
      max_batch_(max_batch),
      dtype_(dtype),
      value_(HostTypeOf(dtype)),
      purpose_(purpose),
      keeping_(keeping),
      device_(std::move(device)) {}

absl::Status DeviceStep::Allocate(Graph graph, int64_t segment_values) {
  const KernelSet& kernels = device_->kernels();
  const auto bytes_for = [&](int64_t n) {
    return LayOut(graph, PlanMemory(graph, n, purpose_, kernels, dtype_), objective_, n, dtype_,
                  purpose_, keeping_)
        .device_bytes;
  };
  MemoryPlan plan = PlanMemory(graph, max_batch_, purpose_, kernels, dtype_);
  const DeviceLayout l = LayOut(graph, plan, objective_, max_batch_, dtype_, purpose_, keeping_);
  const int64_t room = device_->free_bytes() - device_->reserved_bytes();
  if (l.device_bytes > room) {
    return DoesNotFit(*device_, room, purpose_, max_batch_, bytes_for);
  }
  RUBATO_ASSIGN_OR_RETURN(void* const memory, device_->Allocate(l.device_bytes));
  bytes_ = l.device_bytes;
  RUBATO_ASSIGN_OR_RETURN(void* const host, device_->AllocatePinned(l.host.bytes));
  parameters_ = At(memory, l.parameters, value_, graph.size);
  if (IsHalf(dtype_)) {
    factors_ = At(memory, l.factors, dtype_, l.n_factors);
    factor_begins_ = l.factor_begins;
    converted_ = At(memory, l.converted, dtype_, l.n_features);
  }
  if (purpose_ != Purpose::kEvaluation) {
    for (int64_t offset : l.gradients) {
      gradients_.push_back(At(memory, offset, value_, graph.size));
    }
    staged_gradient_ = At(host, l.host.gradient, value_, graph.size);
  }
  features_ = At(memory, l.features, value_, l.n_features);
  targets_ = At(memory, l.targets, l.target, l.n_targets);
  scale_ = At(memory, l.scale, DType::kFloat32, 2);
  rows_ = At(memory, l.rows, DType::kFloat64, 2 * l.n_rows);
  sums_and_flags_ = At(memory, l.sums, DType::kFloat64, 3 + l.n_flags);
  sums_ = sums_and_flags_.Slice(0, {3});
  flags_ = sums_and_flags_.Slice(3, {l.n_flags});
  keys_ = reinterpret_cast<const uint64_t*>(static_cast<char*>(memory) + l.keys);
  staged_parameters_ = At(host, l.host.parameters, value_, graph.size);
  staged_features_ = At(host, l.host.features, value_, l.n_features);
  staged_targets_ = At(host, l.host.targets, l.target, l.n_targets);
  staged_sums_ = At(host, l.host.sums, DType::kFloat64, 3);
  staged_flags_ = At(host, l.host.flags, DType::kFloat64, l.n_flags);
  staged_scale_ = reinterpret_cast<float*>(static_cast<char*>(host) + l.host.scale);
  staged_keys_ = reinterpret_cast<uint64_t*>(static_cast<char*>(host) + l.host.keys);
  if (l.n_weights > 0) {  // Once: batches follow in the same stream
    class_weights_ = At(memory, l.weights, DType::kFloat32, l.n_weights);
    const TensorRef staged = At(host, l.host.weights, DType::kFloat32, l.n_weights);
    std::copy(objective_.class_weights.begin(), objective_.class_weights.end(),
              staged.values<float>().begin());
    device_->Upload(Stream::kUpload, staged.address(), Address(class_weights_), BytesOf(staged));
  }
  segments_ = ForwardSegments(graph, segment_values);
  const TensorRef arena = At(memory, l.arena, dtype_, plan.size);
  network_ = std::make_unique<Network>(std::move(graph), std::move(plan), max_batch_,
                                       &device_->kernels(), arena);
  return absl::OkStatus();
}

void DeviceStep::BeginParameters() {
  sends_ = version_ == 0 || version_ != sent_;
  if (!sends_) return;
  sent_ = -1;
  if (has_stepped_) scaler_.OnStep(has_overflowed_);
  has_stepped_ = has_overflowed_ = false;
}

bool DeviceStep::Pin(void* host, int64_t bytes) {
  if (!device_->Pin(host, bytes)) return false;
  pinned_[static_cast<char*>(host)] = bytes;
  return true;
}

void DeviceStep::Unpin(void* host) {
  char* const begin = static_cast<char*>(host);
  const auto pinned = pinned_.find(begin);
  for (auto it = recordings_.begin(); it != recordings_.end();) {
    char* const target = std::get<4>(it->first);
    if (target < begin || target >= begin + pinned->second) {
      ++it;
      continue;
    }
    Forget(&it->second);
    it = recordings_.erase(it);
  }
  pinned_.erase(pinned);
  device_->Unpin(host);
}

void DeviceStep::Forget(Recording* recording) {
  for (const int id : recording->ids) device_->Forget(id);
  recording->ids.clear();
}

bool DeviceStep::IsPinned(const ConstTensorRef& host) const {
  char* const begin = static_cast<char*>(Address(host));
  auto after = pinned_.upper_bound(begin);
  if (after == pinned_.begin()) return false;
  --after;
  return begin + BytesOf(host) <= after->first + after->second;
}

bool DeviceStep::SendRange(Range values, const ConstTensorRef& parameters, AwaitParameters await) {
  const bool is_pinned = IsPinned(parameters);
  const int64_t most = (is_pinned ? kPinnedPartBytes : kPartBytes) / BytesOf(value_);
  // While one part crosses, the host copies the next.
  for (int64_t begin = values.begin; begin < values.end; begin += most) {
    const int64_t size = std::min(most, values.end - begin);
    if (!await({begin, begin + size})) return false;
    ConstTensorRef part = parameters.Slice(begin, {size});
    if (!is_pinned) {
      const ConstTensorRef staged = staged_parameters_.Slice(begin, {size});
      std::memcpy(Address(staged), part.address(), BytesOf(part));
      copied_bytes_ += BytesOf(part);
      part = staged;
    }
    device_->Upload(Stream::kUpload, part.address(), Address(parameters_.Slice(begin, {size})),
                    BytesOf(part));
  }
  return true;
}

bool DeviceStep::SendParameters(size_t segment, const ConstTensorRef& parameters,
                                AwaitParameters await) {
  if (!sends_) return true;
  const ForwardSegment& sent = segments_[segment];
  if (ParametersCross()) {
    if (!SendRange(sent.parameters, parameters, await) ||
        !SendRange(sent.buffers, parameters, await)) {
      device_->Synchronize();
      return false;
    }
    device_->Order(Stream::kCompute, Stream::kUpload);
  }
  if (segment + 1 == segments_.size()) sent_ = version_;
  if (!IsHalf(dtype_)) return true;
  for (int64_t i = sent.nodes.begin; i < sent.nodes.end; ++i) {
    const Graph::Node& node = graph().nodes[i];
    if (node.parameters == 0 || node.layer->multiplications() == 0) continue;
    WriteFactors(*node.layer, max_batch_, parameters_.Slice(node.begin, {node.parameters}),
                 factors_.Slice(factor_begins_[i], {node.parameters}), &device_->kernels());
  }
  return true;
}

void DeviceStep::SendBatch(const ConstTensorRef& features, const Targets& targets,
                           std::optional<uint64_t> key) {
  RUBATO_CHECK(features.dtype() == value_ && features.size() <= features_.size());
  const auto upload = [&](const void* host, const void* device, int64_t bytes) {
    device_->Upload(Stream::kUpload, host, const_cast<void*>(device), bytes);
  };
  std::memcpy(Address(staged_features_), features.address(), BytesOf(features));
  upload(staged_features_.address(), features_.address(), BytesOf(features));
  int64_t n_targets = 0;
  if (IsClassification(objective_.loss)) {
    n_targets = static_cast<int64_t>(targets.labels.size());
    RUBATO_CHECK(n_targets <= targets_.size());
    std::copy(targets.labels.begin(), targets.labels.end(),
              staged_targets_.values<int32_t>().begin());
  } else {
    n_targets = static_cast<int64_t>(targets.values.size());
    RUBATO_CHECK(n_targets <= targets_.size());
    std::copy(targets.values.begin(), targets.values.end(),
              staged_targets_.values<float>().begin());
  }
  upload(staged_targets_.address(), targets_.address(), n_targets * BytesOf(targets_.dtype()));
  staged_scale_[0] = static_cast<float>(dtype_ == DType::kFloat16 ? scaler_.scale() : 1);
  staged_scale_[1] = static_cast<float>(staged_scale_[0] * targets.weight);
  upload(staged_scale_, scale_.address(), 2 * sizeof(float));
  if (key.has_value()) {
    const size_t nodes = graph().nodes.size();
    for (size_t i = 0; i < nodes; ++i) staged_keys_[i] = Key(*key, i);
    upload(staged_keys_, keys_, static_cast<int64_t>(nodes) * 8);
  }
  // Otherwise the first parameters, which come after it, are waited for.
  if (!ParametersCross()) device_->Order(Stream::kCompute, Stream::kUpload);
}

bool DeviceStep::EnqueueForward(int64_t n, bool training, BeginSegment begin) {
  if (!begin(0)) return false;
  const int64_t values = n * SizeOf(graph().shapes[0]);
  Network::Inputs inputs;
  inputs.parameters = parameters_;
  inputs.keys = keys_;
  inputs.x = features_.Slice(0, {values});
  if (IsHalf(dtype_)) {
    inputs.factors = factors_;
    inputs.factor_begins = factor_begins_;
    inputs.indices = inputs.x;
    const TensorRef converted = converted_.Slice(0, {values});
    device_->kernels().Convert(inputs.x, converted);
    inputs.x = converted;
  }
  size_t next = 1;
  const auto enter = [&](Range read) {
    if (next == segments_.size() || read.begin != segments_[next].parameters.begin ||
        read.size() == 0) {
      return true;
    }
    return begin(next++);
  };
  logits_ = network_->Forward(inputs, training, training ? gradients_[kept_] : TensorRef(), enter);
  RUBATO_CHECK(logits_.is_null() || next == segments_.size());
  return !logits_.is_null();
}

void DeviceStep::EnqueueLoss(int64_t n) {
  DeviceKernels& kernels = device_->kernels();
  const int64_t n_targets = targets_.size() / max_batch_ * n;
  const ConstTensorRef targets = targets_.Slice(0, {n_targets});
  const ConstTensorRef factor = scale_.Slice(1, {1});
  kernels.SetToZero(sums_and_flags_);
  if (IsClassification(objective_.loss)) {
    CrossEntropyOptions options = CrossEntropyOptionsOf(objective_, /*gradient_scale=*/1);
    if (!class_weights_.is_null()) options.class_weights = class_weights_.values<float>().data();
    kernels.CrossEntropy(logits_.Reshaped({n_targets, logits_.shape().back()}), targets, options,
                         factor, network_->output_gradient(), rows_, sums_);
  } else {
    kernels.RegressionLoss(logits_.Reshaped({n, objective_.outputs}), targets,
                           RegressionOptionsOf(objective_),
                           1.0 / static_cast<double>(objective_.outputs), factor,
                           network_->output_gradient(), rows_, sums_);
  }
}

void DeviceStep::FinishPart(const Part& part, const Summing& summing) {
  const auto in = [&](int gradient) {
    return gradients_[gradient].Slice(part.begin, {part.end - part.begin});
  };
  // In the order of the tree: the smallest sums first. The last one's place is the sum's.
  for (int i = 1; i < summing.adds; ++i) {
    device_->kernels().AddTensors(in(kept_ - i), in(kept_), in(kept_));
  }
  const TensorRef sum = in(kept_ - summing.adds);
  if (summing.adds > 0) device_->kernels().AddTensors(sum, in(kept_), sum);
  if (!summing.leaves) return;
  const int64_t i = static_cast<int64_t>(parts_.size());
  const TensorRef flag = flags_.Slice(i, {1});
  if (!summing.stays) device_->kernels().FlagNonFinite(sum, flag);
  device_->Order(Stream::kDownload, Stream::kCompute);
  if (!summing.stays) {
    device_->Download(Stream::kDownload, flag.address(), Address(staged_flags_.Slice(i, {1})), 8);
    device_->Download(Stream::kDownload, sum.address(),
                      Address(target_.Slice(part.begin, {part.end - part.begin})), BytesOf(sum));
  }
  device_->Signal(Stream::kDownload);
  parts_.push_back(part);
}

void DeviceStep::EnqueueZeros(const Summing& summing) {
  device_->kernels().SetToZero(gradients_[kept_]);
  device_->kernels().SetToZero(sums_and_flags_);
  if (graph().trainable < graph().size) FinishPart({graph().trainable, graph().size}, summing);
  FinishPart({0, graph().trainable}, summing);
}

bool DeviceStep::EnqueueGradient(int64_t n, const Summing& summing, BeginSegment begin) {
  parts_.clear();
  if (n == 0) {
    if (!begin(0)) return false;
    EnqueueZeros(summing);
  } else {
    if (!EnqueueForward(n, /*training=*/true, begin)) return false;
    EnqueueLoss(n);
    int64_t end = graph().size;
    network_->Backward(parameters_, gradients_[kept_], [&](int64_t begin) {
      const int64_t least = kPartBytes / BytesOf(value_);
      // What is measured is not scaled, so it is a part by itself.
      if (begin == end || (begin > 0 && begin != graph().trainable && end - begin < least)) return;
      if (dtype_ == DType::kFloat16 && begin < graph().trainable) {
        device_->kernels().Unscale(scale_.Slice(0, {1}),
                                   gradients_[kept_].Slice(begin, {end - begin}),
                                   sums_.Slice(2, {1}));
      }
      FinishPart({begin, end}, summing);
      end = begin;
    });
    RUBATO_CHECK(end == 0);
  }
  device_->Download(Stream::kCompute, sums_.address(), Address(staged_sums_), BytesOf(sums_));
  if (summing.leaves) device_->Order(Stream::kCompute, Stream::kDownload);
  return true;
}

bool DeviceStep::RunGradient(int64_t n, const Summing& summing, Recording* recording,
                             BeginSegment send) {
  if (recording->is_whole) {
    for (size_t i = 0; i < recording->ids.size(); ++i) {
      if (!send(i)) return false;
      device_->Replay(recording->ids[i]);
    }
    return true;
  }
  // The first time as it comes, so that libraries make their choices; the next time recorded.
  const bool records = recording->has_run;
  const auto replay = [&] {
    recording->ids.push_back(device_->EndRecording());
    device_->Replay(recording->ids.back());
  };
  Forget(recording);  // of a step that ended early
  const bool is_done = EnqueueGradient(n, summing, [&](size_t i) {
    if (records && i > 0) replay();
    if (!send(i)) return false;
    if (records) device_->BeginRecording();
    return true;
  });
  if (!is_done) return false;
  if (records) replay();
  if (!records) recording->parts = parts_;
  recording->has_run = true;
  recording->is_whole = records;
  return true;
}

BatchResult DeviceStep::ResultOf(int64_t n, const Targets& targets) const {
  const absl::Span<const double> sums = staged_sums_.values<double>();
  const double share =
      1.0 / static_cast<double>(IsClassification(objective_.loss) ? objective_.places
                                                                  : objective_.outputs);
  return {sums[0] * share * targets.weight, sums[1] * share, Judged(objective_, targets, n), n,
          targets.weight > 0 ? static_cast<double>(n) : 0.0};
}

BatchResult DeviceStep::Evaluate(const ConstTensorRef& parameters, const ConstTensorRef& features,
                                 const Targets& targets) {
  const int64_t n = features.size() / SizeOf(graph().shapes[0]);
  BeginParameters();
  SendBatch(features, targets, /*key=*/std::nullopt);
  EnqueueForward(n, /*training=*/false, [&](size_t segment) {
    return SendParameters(segment, parameters, AllHaveArrived);
  });
  EnqueueLoss(n);
  device_->Download(Stream::kCompute, sums_.address(), Address(staged_sums_), BytesOf(sums_));
  device_->Synchronize();
  return ResultOf(n, targets);
}

std::optional<BatchResult> DeviceStep::Gradient(const ConstTensorRef& parameters,
                                                const ConstTensorRef& features,
                                                const Targets& targets, uint64_t key,
                                                const TensorRef& gradient,
                                                absl::FunctionRef<void(int64_t begin)> ready,
                                                AwaitParameters await, const Summing& summing) {
  const int64_t n = features.size() / SizeOf(graph().shapes[0]);
  RUBATO_CHECK(summing.adds <= kept_ && (summing.leaves || kept_ - summing.adds < keeps()));
  BeginParameters();
  if (n > 0) SendBatch(features, targets, key);
  device_->ResetSignals();
  const bool comes = summing.leaves && !summing.stays, is_pinned = comes && IsPinned(gradient);
  target_ = is_pinned ? gradient : staged_gradient_;
  Recording& recording = recordings_[{n, kept_, summing.adds, summing.leaves,
                                      comes ? static_cast<char*>(Address(target_)) : nullptr}];
  const auto send = [&](size_t segment) {
    if (n > 0) return SendParameters(segment, parameters, await);
    bool sent = true;  // zeros need none, but the next micro-batch may
    for (size_t i = 0; sent && i < segments_.size(); ++i) {
      sent = SendParameters(i, parameters, await);
    }
    return sent;
  };
  if (!RunGradient(n, summing, &recording, send)) return std::nullopt;
  is_finite_ = true;
  for (size_t i = 0; i < recording.parts.size(); ++i) {  // none if nothing leaves
    const Part& part = recording.parts[i];
    device_->AwaitSignals(static_cast<int64_t>(i) + 1);
    if (comes && staged_flags_.values<double>()[i] != 0) is_finite_ = false;
    if (comes && !is_pinned) {
      const ConstTensorRef values = staged_gradient_.Slice(part.begin, {part.end - part.begin});
      std::memcpy(Address(gradient.Slice(part.begin, {part.end - part.begin})), values.address(),
                  BytesOf(values));
      copied_bytes_ += BytesOf(values);
    }
    ready(part.begin);
  }
  device_->Synchronize();
  kept_ += (summing.leaves ? 0 : 1) - summing.adds;
  has_stepped_ = true;
  if (staged_sums_.values<double>()[2] != 0) has_overflowed_ = true;
  return ResultOf(n, targets);
}

}  // namespace rubato
