// What a distributed job must amount to, written out as one loop in one process: the oracle of the
// tests of bits. Of the product it uses only what computes one micro-batch's gradient, names the
// samples and draws the first parameters.
#ifndef RUBATO_TESTS_SEQUENTIAL_SGD_H_
#define RUBATO_TESTS_SEQUENTIAL_SGD_H_

#include <cstdint>
#include <string>
#include <vector>

#include "proto/job.pb.h"

namespace rubato {

struct SequentialResult {
  std::vector<double> losses;  // of each step, a sample
  double test_accuracy = 0;    // of the final parameters
  double test_loss = 0;        // a sample
  int64_t samples = 0;         // processed
  std::string digest;          // of the final parameters, named as in a run's file
};

// SGD with momentum over the job's `train.until` (steps or epochs): each step's batch is cut into
// micro_batches, whose gradients are added along the fixed tree. `rate_by_samples`: the learning
// rate of a step with fewer samples than batch_size is smaller in proportion, as on arrival.
SequentialResult TrainSequentially(const proto::Job& job, bool rate_by_samples);

}  // namespace rubato

#endif  // RUBATO_TESTS_SEQUENTIAL_SGD_H_
