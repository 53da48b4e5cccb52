// A specification of training, computed one unit after the other: which samples a unit has, how
// their gradients are added, which mode is in force where, how much an update weighs and by how
// much it is clipped. The invariants compare simulations with it. It uses no code that it checks,
// except the job's messages and the arithmetic on symbols.
#ifndef RUBATO_TOOLS_SIMULATOR_REFERENCE_H_
#define RUBATO_TOOLS_SIMULATOR_REFERENCE_H_

#include <cstdint>
#include <vector>

#include "proto/job.pb.h"
#include "proto/mode.pb.h"

namespace rubato::reference {

// A run of the samples of one epoch, in its order.
struct Samples {
  int64_t epoch = 0;
  int64_t begin = 0, end = 0;
  int64_t count() const { return end - begin; }
};

// Steps of sync, or contributions on arrival, from where the mode before has ended. A step has
// train.batch_size samples in train.micro_batches parts; a contribution is the share of a step that
// one of the first workers has, in whole parts and at least one. An epoch's last unit takes what is
// left of it.
class Units {
 public:
  // Unit `first` begins when `samples` samples are done.
  Units(const proto::Job& job, bool on_arrival, int64_t epoch_samples, int64_t first,
        int64_t samples);

  int64_t parts() const { return parts_; }
  const Samples& At(int64_t unit) const;
  // Samples of the whole job that are done when `unit` begins.
  int64_t Before(int64_t unit) const;
  // What the unit counts for: its samples, or of a script the sum of its parts' weights.
  int64_t Weight(int64_t unit) const;
  // The first unit that begins when `samples` are done, or more.
  int64_t From(int64_t samples) const;

  // The symbol of the gradient of one block over a unit at `parameters`. The unit's samples are
  // divided into parts as evenly as possible, and the parts are added as in a tournament, left to
  // right: a part without a partner of its size waits; at the end the waiting parts are added from
  // the right.
  uint64_t Gradient(uint64_t seed, int64_t unit, int64_t block, uint64_t parameters) const;

 private:
  // The samples of part `part` of a unit.
  Samples Part(int64_t unit, int64_t part) const;

  const bool is_script_;
  const uint64_t seed_;
  const int64_t epoch_samples_;
  const int64_t first_;
  int64_t parts_;
  int64_t unit_samples_;
  mutable std::vector<Samples> units_;  // as far as they have been asked for
};

// The samples of the whole training, which is counted in steps; of one that ends by time, more than
// will come.
int64_t TotalSamples(const proto::Job& job, int64_t epoch_samples);

// What the job's file has from one sample to another.
struct Stage {
  proto::Mode mode;
  int64_t until = 0;  // samples
};
// The stage that holds when `samples` are done.
Stage StageAt(const proto::Job& job, int64_t epoch_samples, int64_t samples);

// Whether what recurs `every` so often is due after `unit` of these units, of which the first is
// `first`: with the step that goes into it, or where the samples pass a multiple of its own.
bool IsDue(const proto::Job& job, const proto::Point& every, bool on_arrival, int64_t epoch_samples,
           const Units& units, int64_t first, int64_t unit);

// Whether a test of parameters that have seen `unit` units ends the training.
bool IsTarget(const proto::Job& job, int64_t unit);

// The factor of the learning rate for an update on arrival: its samples divided by those of a step;
// 1 if optimizer.learning_rate_parity is off.
double RateOf(const proto::Job& job, int64_t samples);

// By how much a step is scaled, so that the mean gradient's norm is at most
// optimizer.clip_grad_norm; `squares` is the sum of the squares of the gradient's sum, which
// divided by `weight` is the mean.
double ClipFactor(const proto::Job& job, double squares, int64_t weight);

}  // namespace rubato::reference

#endif  // RUBATO_TOOLS_SIMULATOR_REFERENCE_H_
