#include "worker/step/push_encoder.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "common/base/random.h"
#include "common/frames/top_k.h"
#include "common/space/job_codec.h"

namespace rubato {

PushEncoder::PushEncoder(const proto::Job& job, const FlatSpace& space, int64_t trainable)
    : job_(job),
      space_(space),
      trainable_(trainable),
      codec_(PushCodec(job)),
      buffers_(space.blocks()) {
  if (codec_ != Codec::kTopK) return;
  Residuals::Settings settings;
  settings.momentum = static_cast<float>(job.optimizer().momentum());
  settings.nesterov = job.optimizer().nesterov();
  residuals_.emplace(trainable, settings);
}

void PushEncoder::Begin(const SampleSchedule& schedule, int64_t unit, Range node,
                        const Policy& policy) {
  step_.first = unit != unit_;
  unit_ = unit;
  node_ = node;
  if (!residuals_.has_value()) return;
  const SampleRange range = schedule.Unit(unit);
  density_ = Residuals::DensityAt(job_.wire().push().density(), static_cast<double>(range.epoch),
                                  static_cast<double>(job_.wire().push().warmup()));
  // Of a short unit: its gradients count for more, as far as its update's rate is not less.
  const int64_t whole =
      job_.train().batch_size() / job_.train().micro_batches() * schedule.leaves();
  const int64_t samples = range.positions.size();
  step_.weight = static_cast<float>(policy.RateOf(samples) / policy.RateOf(whole) *
                                    (static_cast<double>(whole) / static_cast<double>(samples)));
}

PushEncoder::Buffer PushEncoder::TakeBuffer(int64_t block, size_t bytes) {
  std::vector<Buffer>& buffers = buffers_[block];
  auto buffer = std::find_if(buffers.begin(), buffers.end(),
                             [](const Buffer& candidate) { return candidate.use_count() == 1; });
  if (buffer == buffers.end()) {
    buffer = buffers.insert(buffer, std::make_shared<std::vector<char>>());
  } else {
    std::atomic_thread_fence(std::memory_order_acquire);  // after what its last reader did
  }
  (*buffer)->resize(bytes);
  return *buffer;
}

Payload PushEncoder::Encode(int64_t block, const Payload& gradient) {
  const Range values = space_.BlockValues(block);
  if (residuals_.has_value()) return EncodeLargest(block, values, gradient);
  if (codec_ == Codec::kFloat32 || HoldsStatistics(values, trainable_)) return gradient;
  const Buffer buffer = TakeBuffer(block, EncodedBound(codec_, gradient.size));
  rubato::Encode(codec_, Key(job_.seed(), "int8", unit_, node_.begin, node_.end, block),
                 gradient.values(), buffer->data());
  return Payload(buffer, codec_, *buffer, gradient.size);
}

Payload PushEncoder::EncodeLargest(int64_t block, Range values, const Payload& gradient) {
  const size_t n = gradient.size, k = TopKCount(n, density_);
  if (k < n && !HoldsStatistics(values, trainable_)) {
    const Buffer buffer = TakeBuffer(block, EncodedBound(codec_, k));
    residuals_->Encode(values, gradient.values(), step_, k, buffer->data());
    return Payload(buffer, codec_, *buffer, n);
  }
  // All of them, as float32; statistics are none of the residuals'.
  const Range own = {values.begin, std::max(values.begin, std::min(values.end, trainable_))};
  const size_t bytes = own.size() * sizeof(float);
  const Buffer buffer = TakeBuffer(block, n * sizeof(float));
  if (!own.empty()) {
    residuals_->EncodeAll(own, gradient.values().first(own.size()), step_, buffer->data());
  }
  std::memcpy(buffer->data() + bytes, gradient.bytes.data() + bytes, gradient.bytes.size() - bytes);
  return Payload(buffer, Codec::kFloat32, *buffer, n);
}

}  // namespace rubato
