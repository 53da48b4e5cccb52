// The learning rate as a function of how far the training has come.
#ifndef RUBATO_COMMON_SPACE_LEARNING_RATE_H_
#define RUBATO_COMMON_SPACE_LEARNING_RATE_H_

#include <cstdint>
#include <vector>

#include "proto/job.pb.h"

namespace rubato {

// Samples from the start of training to `point`: an epoch is `samples_per_epoch` of them, a step
// `batch_size` (also where an epoch's last step is shorter). Fractions are rounded; at least 1.
int64_t SamplesAt(const proto::Point& point, int64_t batch_size, int64_t samples_per_epoch);

// The rate of the update that comes after s samples have been processed: a function of samples, not
// of updates, so that it is the same for one update of a large batch and many of small ones.
//
//   rate(s) = learning_rate · warm-up(s) · schedule(s)
//
//   warm-up   min(1, s / warmup); 1 without a warm-up
//   constant  1
//   step      gamma ^ floor(s / every)
//   cosine    r + (1 − r) · (1 + cos(π · min(1, s / until))) / 2,  r = final_ratio
//   table     factors[floor(t / steps_per_factor)], t the step of sync that sample s is in; the
//             last one behind the table
//
// The last step of an epoch may be short. Where a point is given as {steps: n}, s counts as if it
// were not: for steps of sync a point is then reached with the n-th, and `table` counts so, too.
//
// In PyTorch's terms: its step t, counted from 0 with scheduler.step() after each
// optimizer.step(), is the step of sync, and every point given as {steps: n} is PyTorch's n:
//
//   step      StepLR(step_size=every, gamma=gamma)
//   cosine    CosineAnnealingLR(T_max=until, eta_min=final_ratio · learning_rate) up to T_max;
//             where PyTorch's would rise again, ours stays
//   warm-up   LambdaLR(lambda t: min(1, t / warmup)); so the first update has rate 0
//
// and warm-up and schedule, which both count from the start of training, are multiplied.
class LearningRate {
 public:
  // `train_until` is the cosine's end where the schedule gives none. The job has been loaded, so
  // its values are in range; sizes are above 0.
  LearningRate(const proto::Optimizer& optimizer, int64_t batch_size, int64_t samples_per_epoch,
               const proto::Point& train_until);

  // Samples are at least 0.
  float At(int64_t samples) const { return At(samples, learning_rate_); }
  // Likewise with another learning_rate in place of the optimizer's.
  float At(int64_t samples, double learning_rate) const;

 private:
  struct Length {
    double samples = 0;     // 0: none
    bool in_steps = false;  // so many steps of batch_size samples, however short they were
  };
  double Factor(int64_t samples) const;
  // How often a length goes into what was trained.
  double Lengths(int64_t samples, const Length& length) const;
  // What the steps in which so many samples are trained would have, if none were short.
  int64_t InFullSteps(int64_t samples) const;

  double learning_rate_;
  proto::Schedule::Name name_;
  Length warmup_, every_, until_;
  double gamma_;
  double final_ratio_;
  std::vector<double> factors_;
  int64_t steps_per_factor_;
  int64_t batch_size_;
  int64_t samples_per_epoch_;
};

}  // namespace rubato

#endif  // RUBATO_COMMON_SPACE_LEARNING_RATE_H_
