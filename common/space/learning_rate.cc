#include "common/space/learning_rate.h"

#include <algorithm>
#include <cmath>

#include "common/base/check.h"

namespace rubato {
namespace {

constexpr double kPi = 3.14159265358979323846;

}  // namespace

int64_t SamplesAt(const proto::Point& point, int64_t batch_size, int64_t samples_per_epoch) {
  switch (point.at_case()) {
    case proto::Point::kEpochs:
      return std::max<int64_t>(1, std::llround(point.epochs() * samples_per_epoch));
    case proto::Point::kSteps:
      return point.steps() * batch_size;
    case proto::Point::kSamples:
      return point.samples();
    case proto::Point::kTime:
    case proto::Point::AT_NOT_SET:
      break;
  }
  RUBATO_CHECK(false && "a point has epochs, steps or samples");
  return 0;
}

LearningRate::LearningRate(const proto::Optimizer& optimizer, int64_t batch_size,
                           int64_t samples_per_epoch, const proto::Point& train_until)
    : learning_rate_(optimizer.learning_rate()),
      name_(optimizer.schedule().name()),
      gamma_(optimizer.schedule().gamma()),
      final_ratio_(optimizer.schedule().final_ratio()),
      factors_(optimizer.schedule().factors().begin(), optimizer.schedule().factors().end()),
      steps_per_factor_(optimizer.schedule().steps_per_factor()),
      batch_size_(batch_size),
      samples_per_epoch_(samples_per_epoch) {
  RUBATO_CHECK(batch_size > 0 && samples_per_epoch > 0);
  const auto length_to = [&](const proto::Point& point) {
    return Length{static_cast<double>(SamplesAt(point, batch_size, samples_per_epoch)),
                  point.has_steps()};
  };
  const proto::Schedule& schedule = optimizer.schedule();
  if (schedule.has_warmup()) warmup_ = length_to(schedule.warmup());
  if (name_ == proto::Schedule::NAME_STEP) every_ = length_to(schedule.every());
  if (name_ == proto::Schedule::NAME_COSINE) {
    until_ = length_to(schedule.has_until() ? schedule.until() : train_until);
  }
}

float LearningRate::At(int64_t samples, double learning_rate) const {
  RUBATO_CHECK(samples >= 0);
  const double warmup = warmup_.samples == 0 ? 1 : std::min(1.0, Lengths(samples, warmup_));
  return static_cast<float>(learning_rate * warmup * Factor(samples));
}

int64_t LearningRate::InFullSteps(int64_t samples) const {
  const int64_t steps_per_epoch = (samples_per_epoch_ + batch_size_ - 1) / batch_size_;
  return samples / samples_per_epoch_ * (steps_per_epoch * batch_size_) +
         samples % samples_per_epoch_;
}

double LearningRate::Lengths(int64_t samples, const Length& length) const {
  return static_cast<double>(length.in_steps ? InFullSteps(samples) : samples) / length.samples;
}

double LearningRate::Factor(int64_t samples) const {
  switch (name_) {
    case proto::Schedule::NAME_CONSTANT:
      return 1;
    case proto::Schedule::NAME_STEP:
      return std::pow(gamma_, std::floor(Lengths(samples, every_)));
    case proto::Schedule::NAME_TABLE: {
      const int64_t step = InFullSteps(samples) / batch_size_;
      if (factors_.empty()) return 1;
      return factors_[std::min(static_cast<size_t>(step / steps_per_factor_), factors_.size() - 1)];
    }
    case proto::Schedule::NAME_COSINE:
      return final_ratio_ +
             (1 - final_ratio_) * (1 + std::cos(kPi * std::min(1.0, Lengths(samples, until_)))) / 2;
  }
  RUBATO_CHECK(false && "an unknown schedule");
  return 1;
}

}  // namespace rubato
