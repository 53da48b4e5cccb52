// What a distributed job must amount to, written out as one loop in one process: the oracle of the
// tests of bits. Of the product it uses only what computes one micro-batch's gradient, names the
// samples and draws the first parameters.
#ifndef RUBATO_TESTS_SEQUENTIAL_SGD_H_
#define RUBATO_TESTS_SEQUENTIAL_SGD_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/job.pb.h"
#include "proto/layout.pb.h"
#include "worker/data/load.h"
#include "worker/model/model.h"

namespace rubato {

// The gradients of a job's model on its data.
class SequentialGradients {
 public:
  explicit SequentialGradients(const proto::Job& job);

  const proto::Layout& layout() const { return model_->layout(); }
  int64_t train_size() const { return data_->train.size(); }
  std::vector<float> InitialParameters() const;

  // The sum over `n` samples of an epoch, from position `begin` of its order on, cut into `leaves`
  // parts whose sums are added along the fixed tree. Adds the samples' losses to `loss`.
  std::vector<float> Sum(const std::vector<float>& w, int64_t epoch, int64_t begin, int64_t n,
                         int64_t leaves, double* loss);
  BatchResult Test(const std::vector<float>& w);

 private:
  absl::Span<const float> Read(const Dataset& split, const std::vector<int64_t>& indices);

  const uint64_t seed_;
  const absl::StatusOr<Data> data_;
  std::unique_ptr<Model> model_;
  std::vector<float> features_;  // of the batch at hand
  std::vector<int32_t> labels_;
};

// Of tensors that lie one after another, by their names in a file, to which `suffix` is added.
std::string FlatDigest(const proto::Layout& layout, const std::vector<float>& values,
                       const std::string& suffix = "");

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
